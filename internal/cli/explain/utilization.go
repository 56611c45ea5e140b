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

// activations is the memory that SGLang needs besides weights and cache, by its documentation (5 to 8 GB).
const activations = "6GiB"

// server is an inference server, with the option that takes the fraction.
type server string

const (
	serverVLLM   server = "vllm"
	serverTRTLLM server = "trtllm"
	serverSGLang server = "sglang"
)

// utilizationFlags are the flags as they are typed.
type utilizationFlags struct {
	seen, server, model, activation, output string
	gpus, use                               int
}

func suggestUtilizationCommand(a *command.App) *cobra.Command {
	var o utilizationFlags
	c := &cobra.Command{
		Use:   "gpu-memory-utilization MEMORY --visible-memory SIZE",
		Short: "Compute the memory fraction that a program must use",
		Long: `Compute the memory fraction that an inference server must use for its grant:

  vllm    --gpu-memory-utilization, of the memory that it sees:
          target x grant / visible
  sglang  --mem-fraction-static, of the memory that it sees:
          (target x grant - activations) / visible
  trtllm  --kv_cache_free_gpu_memory_fraction, of the memory that is free
          after it loaded the model:
          (target x grant - model) / (visible - model)

MEMORY is the grant's total over all its GPUs, as the pod requests it.
--visible-memory is the memory that the container sees on each GPU, as
nvidia-smi prints it there.
At level userspace and above, that is the grant's own memory. At levels reactive
and none, it is the whole GPU.

The result goes to standard output, and the calculation to standard error. The
result is rounded down.`,
		Example: "  kerf suggest gpu-memory-utilization 40GiB --visible-memory 40GiB\n" +
			"  kerf suggest gpu-memory-utilization 48GiB --gpus 2 --visible-memory 81559MiB\n" +
			"  kerf suggest gpu-memory-utilization 40GiB --visible-memory 80GiB \\\n" +
			"    --server trtllm --model-memory 16GiB\n" +
			"  vllm serve MODEL --gpu-memory-utilization \\\n" +
			"    $(kerf suggest gpu-memory-utilization 20GiB --visible-memory 80GiB)",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := command.CheckOutput(o.output); err != nil {
				return err
			}
			if server(o.server) != serverSGLang && !c.Flags().Changed("activation-memory") {
				o.activation = "" // the default is for one server
			}
			u, err := utilizationOf(args[0], o)
			if err != nil {
				return command.Misused(err)
			}
			_, _ = fmt.Fprintf(a.ErrOut, "%s suggest gpu-memory-utilization: %s\n", a.Name(), u)
			return command.Fail(a.Answer(o.output, u.answer(), func() string { return u.number() + "\n" }))
		},
	}
	f := c.Flags()
	f.StringVar(&o.seen, "visible-memory", "", "memory of each GPU as the container sees it, such as 80GiB (required)")
	f.StringVar(&o.server, "server", string(serverVLLM), "inference server: vllm, trtllm or sglang")
	f.StringVar(&o.model, "model-memory", "",
		"trtllm: memory of each GPU that the loaded model uses, such as 16GiB (required)")
	f.StringVar(&o.activation, "activation-memory", activations,
		"sglang: memory of each GPU for activations and CUDA graphs")
	f.IntVar(&o.gpus, "gpus", 1, "number of GPUs that share MEMORY")
	f.IntVar(&o.use, "target-percent", usePercent, "percent of its grant that the program is to use, 1 to 100")
	command.OutputFlag(c, &o.output)
	return c
}

// utilization is a part of the memory that a program sees.
type utilization struct {
	// granted and seen are those of one GPU, use is in percent, and thousandths is the part.
	granted, seen    sharing.Bytes
	use, thousandths uint64
	server           server
	// less is memory that the fraction does not cover: the model, or activations.
	less sharing.Bytes
}

// utilizationOf reckons, and says what is wrong with the input.
func utilizationOf(memory string, o utilizationFlags) (utilization, error) {
	u, err := readUtilization(memory, o)
	if err != nil {
		return utilization{}, err
	}
	of := u.seen
	if u.server == serverTRTLLM {
		if u.less >= u.seen {
			return utilization{}, sharing.Invalid("--model-memory", o.model, "use a smaller model or a larger grant",
				"is not less than the %s that are seen", u.seen)
		}
		of -= u.less
	}
	// In KiB, so that no product leaves 64 bits; each is rounded to where the part gets smaller.
	target, less := (uint64(min(u.granted, u.seen))>>10)*u.use, kibibytesUp(u.less)*100
	if target > less {
		u.thousandths = (target - less) * 10 / kibibytesUp(of)
	}
	switch {
	case u.thousandths == 0 && u.less > 0:
		return utilization{}, sharing.Invalid("MEMORY", memory, "use a larger grant or a smaller model",
			"leaves no memory for the cache: %d percent of %s is not more than %s", u.use, u.granted, u.less)
	case u.thousandths == 0:
		return utilization{}, sharing.Invalid("MEMORY", memory, "use a larger grant",
			"is less than a thousandth of the %s that are seen", u.seen)
	}
	return u, nil
}

func kibibytesUp(n sharing.Bytes) uint64 {
	if n == 0 {
		return 0
	}
	return (uint64(n-1) >> 10) + 1
}

// readUtilization reads the input.
func readUtilization(memory string, o utilizationFlags) (utilization, error) {
	switch {
	case o.seen == "":
		return utilization{}, sharing.Invalid("--visible-memory", "",
			"write what nvidia-smi shows inside of the container, such as 80GiB", "is missing")
	case o.gpus < 1 || o.gpus > sharing.MaxGPUs:
		return utilization{}, sharing.Invalid("--gpus", strconv.Itoa(o.gpus),
			"write 1 to "+strconv.Itoa(sharing.MaxGPUs), "is not a number of GPUs")
	case o.use < 1 || o.use > 100:
		return utilization{}, sharing.Invalid("--target-percent", strconv.Itoa(o.use), "write 1 to 100",
			"is not a percentage")
	case o.model != "" && server(o.server) != serverTRTLLM:
		return utilization{}, sharing.Invalid("--model-memory", o.model, "leave it out", "is for --server trtllm")
	}
	if o.activation != "" && server(o.server) != serverSGLang {
		return utilization{}, sharing.Invalid("--activation-memory", o.activation, "leave it out",
			"is for --server sglang")
	}
	all, err := unitSize("MEMORY", memory)
	if err != nil {
		return utilization{}, err
	}
	u := utilization{use: uint64(o.use), server: server(o.server)} // #nosec G115 -- 1 to 100
	if u.seen, err = unitSize("--visible-memory", o.seen); err != nil {
		return utilization{}, err
	}
	over := sharing.Bytes(o.gpus) // #nosec G115 -- 1 to MaxGPUs
	if u.granted = all / over; u.granted*over != all {
		return utilization{}, sharing.Invalid("MEMORY", memory, "write what the grant has",
			"does not divide evenly by %d GPUs", o.gpus)
	}
	switch u.server {
	case serverVLLM:
	case serverSGLang:
		u.less, err = unitSize("--activation-memory", o.activation)
	case serverTRTLLM:
		u.less, err = unitSize("--model-memory", o.model)
	default:
		err = sharing.Invalid("--server", o.server, "write vllm, trtllm or sglang", "is not a known server")
	}
	return u, err
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
	Utilization   json.Number `json:"utilization"`
	Server        server      `json:"server"`
	GrantedBytes  uint64      `json:"grantedBytes"`
	SeenBytes     uint64      `json:"visibleBytes"`
	DeductedBytes uint64      `json:"deductedBytes,omitempty"`
	UsePercent    uint64      `json:"targetPercent"`
}

func (u utilization) answer() utilizationAnswer {
	return utilizationAnswer{json.Number(u.number()), u.server, uint64(u.granted), uint64(u.seen), uint64(u.less),
		u.use}
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
	uses := min(u.granted, u.seen)
	switch {
	case u.server == serverTRTLLM:
		return fmt.Sprintf("the container sees %s and may use %s, and the model takes %s: "+
			"(%s x %s - %s) / (%s - %s) = %s", u.seen, uses, u.less, part, uses, u.less, u.seen, u.less, u.number())
	case u.server == serverSGLang:
		return fmt.Sprintf("the container sees %s and may use %s, with %s for activations: (%s x %s - %s) / %s = %s",
			u.seen, uses, u.less, part, uses, u.less, u.seen, u.number())
	case u.granted >= u.seen:
		return fmt.Sprintf("the container sees no more than its grant (%s of %s): %s of that is %s", u.seen, u.granted,
			part, u.number())
	}
	return fmt.Sprintf("the container sees %s and may use %s: %s x %s / %s = %s", u.seen, u.granted, part, u.granted,
		u.seen, u.number())
}
