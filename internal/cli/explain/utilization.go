// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/sharing"
)

// usePercent is how much of its grant a program takes where nothing else is said: the rest is for what it does not
// count itself.
const usePercent = 90

func suggestUtilizationCommand(a *command.App) *cobra.Command {
	var seen, output string
	var gpus, use int
	c := &cobra.Command{
		Use:   "gpu-memory-utilization MEMORY --visible-memory SIZE",
		Short: "Compute the memory fraction that a program must use",
		Long: `Compute the memory fraction that a program must use for its grant, such as
vLLM's --gpu-memory-utilization. Programs apply this fraction to the memory that
they see.

MEMORY is the grant's total over all its GPUs, as the pod requests it.
--visible-memory is the memory that the container sees on each GPU, as
nvidia-smi prints it there.
At level userspace and above, that is the grant's own memory. At levels reactive
and none, it is the whole GPU.

The result goes to standard output, and the calculation to standard error. The
result is rounded down.`,
		Example: "  kerf suggest gpu-memory-utilization 40GiB --visible-memory 40GiB\n" +
			"  kerf suggest gpu-memory-utilization 48GiB --gpus 2 --visible-memory 81559MiB\n" +
			"  vllm serve MODEL --gpu-memory-utilization \\\n" +
			"    $(kerf suggest gpu-memory-utilization 20GiB --visible-memory 80GiB)",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := command.CheckOutput(output); err != nil {
				return err
			}
			u, err := utilizationOf(args[0], seen, gpus, use)
			if err != nil {
				return command.Misused(err)
			}
			_, _ = fmt.Fprintf(a.ErrOut, "%s suggest gpu-memory-utilization: %s\n", a.Name(), u)
			return command.Fail(a.Answer(output, u.answer(), func() string { return u.number() + "\n" }))
		},
	}
	f := c.Flags()
	f.StringVar(&seen, "visible-memory", "", "memory of each GPU as the container sees it, such as 80GiB (required)")
	f.IntVar(&gpus, "gpus", 1, "number of GPUs that share MEMORY")
	f.IntVar(&use, "target-percent", usePercent, "percent of its grant that the program is to use, 1 to 100")
	command.OutputFlag(c, &output)
	return c
}

// utilization is a part of the memory that a program sees.
type utilization struct {
	// granted and seen are those of one GPU, use is in percent, and thousandths is the part.
	granted, seen    sharing.Bytes
	use, thousandths uint64
}

// utilizationOf reckons, and says what is wrong with the input.
func utilizationOf(memory, seen string, gpus, use int) (utilization, error) {
	switch {
	case seen == "":
		return utilization{}, sharing.Invalid("--visible-memory", "",
			"write what nvidia-smi shows inside of the container, such as 80GiB", "is missing")
	case gpus < 1 || gpus > sharing.MaxGPUs:
		return utilization{}, sharing.Invalid("--gpus", strconv.Itoa(gpus), "write 1 to "+strconv.Itoa(sharing.MaxGPUs),
			"is not a number of GPUs")
	case use < 1 || use > 100:
		return utilization{}, sharing.Invalid("--target-percent", strconv.Itoa(use), "write 1 to 100",
			"is not a percentage")
	}
	all, err := unitSize("MEMORY", memory)
	if err != nil {
		return utilization{}, err
	}
	u := utilization{use: uint64(use)} // #nosec G115 -- 1 to 100
	if u.seen, err = unitSize("--visible-memory", seen); err != nil {
		return utilization{}, err
	}
	over := sharing.Bytes(gpus) // #nosec G115 -- 1 to MaxGPUs
	if u.granted = all / over; u.granted*over != all {
		return utilization{}, sharing.Invalid("MEMORY", memory, "write what the grant has",
			"does not divide evenly by %d GPUs", gpus)
	}
	// In KiB, so that no product leaves 64 bits; each is rounded to where the part gets smaller.
	of := (uint64(u.seen-1) >> 10) + 1
	u.thousandths = (uint64(min(u.granted, u.seen)) >> 10) * u.use * 10 / of
	if u.thousandths == 0 {
		return utilization{}, sharing.Invalid("MEMORY", memory, "use a larger grant",
			"is less than a thousandth of the %s that are seen", u.seen)
	}
	return u, nil
}

// unitSize reads a size, and refuses one that lacks its unit: 40 is 40 bytes.
func unitSize(field, text string) (sharing.Bytes, error) {
	size, err := sharing.ParseSize(field, text)
	if err == nil && size < sharing.MinShare {
		return 0, sharing.Invalid(field, text, "write it with its unit, such as 40GiB",
			"is less than the %s of the smallest grant", sharing.MinShare)
	}
	return size, err //nolint:wrapcheck // it names the field
}

// utilizationAnswer is what scripts are answered; amounts are of one GPU.
type utilizationAnswer struct {
	Utilization  json.Number `json:"utilization"`
	GrantedBytes uint64      `json:"grantedBytes"`
	SeenBytes    uint64      `json:"visibleBytes"`
	UsePercent   uint64      `json:"targetPercent"`
}

func (u utilization) answer() utilizationAnswer {
	return utilizationAnswer{json.Number(u.number()), uint64(u.granted), uint64(u.seen), u.use}
}

// number is the part as programs take it, with two digits or three.
func (u utilization) number() string {
	if u.thousandths%10 == 0 {
		return fmt.Sprintf("%d.%02d", u.thousandths/1000, u.thousandths%1000/10)
	}
	return fmt.Sprintf("%d.%03d", u.thousandths/1000, u.thousandths%1000)
}

// String is the reckoning.
func (u utilization) String() string {
	part := utilization{thousandths: u.use * 10}.number()
	if u.granted >= u.seen {
		return fmt.Sprintf("the container sees no more than its grant (%s of %s): %s of that is %s", u.seen, u.granted,
			part, u.number())
	}
	return fmt.Sprintf("the container sees %s and may use %s: %s x %s / %s = %s", u.seen, u.granted, part, u.granted,
		u.seen, u.number())
}
