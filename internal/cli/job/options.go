// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"errors"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/sharing"
)

// ExitRefused is the exit status if Kerf fails. Every other status is that of the command.
const ExitRefused = 125

// The values of --pull.
const (
	pullMissing = "missing"
	pullAlways  = "always"
	pullNever   = "never"
)

// Options are the flags of kerf run that name a request and a container.
type Options struct {
	// Flags are the amounts and constraints of the request.
	Flags sharing.Flags
	Name  string
	Quiet bool
	// Image, Pull, Dir and Env describe the container.
	Image, Pull, Dir   string
	Env                []string
	scheduler, account string
	keep, detach       bool
}

// OnlyForJobs returns the flags that have an effect only in a cluster.
func OnlyForJobs() []string { return []string{"scheduler", "service-account", "keep", "detach"} }

// onlyWithImage returns the flags that have an effect only with --image.
func onlyWithImage() []string { return []string{"pull", "workdir", "env"} }

// Define defines the flags.
func (o *Options) Define(c *cobra.Command, completeGPUs command.Completer) {
	DefineAmounts(c, &o.Flags, completeGPUs)
	f := c.Flags()
	f.BoolVarP(&o.Quiet, "quiet", "q", false, "no warnings")
	f.StringVar(&o.Image, "image", "", "run the command, or that of the image, in a container from this image")
	f.StringVar(&o.Pull, "pull", pullMissing, "with --image: pull the image if missing, always, or never")
	f.StringVar(&o.Dir, "workdir", "", "with --image: working directory in the container")
	f.StringArrayVarP(&o.Env, "env", "e", nil, "with --image: NAME=VALUE, or NAME for its current value (repeatable)")
	f.StringVar(&o.scheduler, "scheduler", "kerf-scheduler",
		"in a cluster: schedulerName of the pod; empty for the default scheduler")
	f.StringVar(&o.account, "service-account", "", "in a cluster: service account of the pod")
	f.BoolVar(&o.keep, "keep", false, "in a cluster: keep the Job at the end and on ctrl-C")
	f.BoolVar(&o.detach, "detach", false, "in a cluster: create the Job, print its name and return")
	command.Complete(c, "pull", pullMissing, pullAlways, pullNever)
}

// DefineAmounts defines the flags of a request.
func DefineAmounts(c *cobra.Command, flags *sharing.Flags, completeGPUs command.Completer) {
	f := c.Flags()
	f.StringVar(&flags.Memory, "memory", "", "GPU memory, such as 10GiB; the total over all GPUs")
	f.StringVar(&flags.Percent, "percent", "",
		"compute percent, 1 to 100 per GPU; without --memory, also percent of memory")
	f.StringVar(&flags.GPUs, "gpus", "",
		"number of whole GPUs; with --memory or --percent, GPUs that share the amounts")
	f.StringVar(&flags.MIG, "mig", "", "MIG profile, such as 1g.10gb, 1g or '>= 16GiB'; Kerf creates the instance")
	f.StringArrayVar(&flags.Models, "gpu-model", nil,
		"only GPUs whose model matches this glob, '!GLOB' for all others (repeatable)")
	f.StringArrayVar(&flags.UUIDs, "gpu-uuid", nil, "only the GPU with this UUID (repeatable)")
	f.StringVar(&flags.Placement, "placement-policy", "", "pack (prefer used GPUs) or spread (prefer empty GPUs)")
	f.StringVar(&flags.Profile, "profile", "", "profile of the SharingConfig; other flags restrict it")
	f.StringVar(&flags.Level, "min-enforcement", "",
		"minimum enforcement level: exclusive, hardware, driver, userspace, reactive "+
			"(default for shares) or none (without enforcement, if the pool allows it)")
	command.Complete(c, "placement-policy", "pack", "spread")
	command.CompleteWith(c, "gpu-uuid", completeGPUs)
	command.Complete(c, "min-enforcement", "exclusive", "hardware", "driver", "userspace", "reactive", "none")
}

// Check reads the flags. The error has every problem.
func (o *Options) Check(c *cobra.Command, args []string) (sharing.Request, error) {
	var errs []error
	for _, name := range []string{"memory", "percent", "gpus", "mig", "placement-policy", "profile", "min-enforcement",
		"name", "status-file"} {
		if f := c.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			errs = append(errs, sharing.Invalid("--"+name, "", "give it a value, or leave the flag out", "is empty"))
		}
	}
	r, err := sharing.RequestFromFlags(o.Flags)
	// After an empty value, "requests nothing" would only repeat it.
	if err != nil && (len(errs) == 0 || o.Flags.Memory+o.Flags.Percent+o.Flags.GPUs+o.Flags.MIG+o.Flags.Profile != "") {
		errs = append(errs, err)
	}
	if o.Name != "" {
		errs = append(errs, sharing.ValidateName("--name", o.Name))
	}
	errs = append(errs, o.checkContainer(c))
	if o.keep && o.detach {
		errs = append(errs, sharing.Invalid("--keep", "", "leave out one of them", "has no effect with --detach"))
	}
	if len(args) == 0 && o.Image == "" {
		errs = append(errs, sharing.Invalid("the command", "",
			"write it after --, as in kerf run --memory 10GiB -- python train.py", "is missing"))
	}
	return r, errors.Join(errs...)
}

// checkContainer reads the flags of the container. The error has every problem.
func (o *Options) checkContainer(c *cobra.Command) error {
	if !c.Flags().Changed("image") {
		return WithoutImage(c, onlyWithImage())
	}
	var errs []error
	switch o.Pull {
	case pullMissing, pullAlways, pullNever:
	default:
		errs = append(errs, sharing.Invalid("--pull", o.Pull, "write missing, always or never", "is not known"))
	}
	if o.Dir != "" && !path.IsAbs(o.Dir) {
		errs = append(errs, sharing.Invalid("--workdir", o.Dir, "write an absolute path in the container",
			"is not absolute"))
	}
	for _, e := range o.Env {
		if name, _, _ := strings.Cut(e, "="); name == "" || strings.ContainsRune(e, 0) {
			errs = append(errs, sharing.Invalid("--env", e, "write NAME=VALUE, or NAME", "is no variable"))
		}
	}
	return errors.Join(errs...)
}

// WithoutImage rejects the given flags of a command without --image.
func WithoutImage(c *cobra.Command, names []string) error {
	var errs []error
	for _, name := range names {
		if c.Flags().Changed(name) {
			errs = append(errs, sharing.Invalid("--"+name, "", "leave it out, or give --image",
				"is for containers alone"))
		}
	}
	return errors.Join(errs...)
}

// Environment returns the variables for the container. A name without a value has its value of own; Environment omits
// it if own has none.
func (o *Options) Environment(own []string) []string {
	var out []string
	for _, e := range o.Env {
		if strings.Contains(e, "=") {
			out = append(out, e)
			continue
		}
		for _, have := range own {
			if strings.HasPrefix(have, e+"=") {
				out = append(out, have)
			}
		}
	}
	return out
}
