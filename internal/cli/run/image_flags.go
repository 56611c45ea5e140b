// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/containerd"
	"github.com/kerf-gpu/kerf/sharing"
)

// imageOptions are the flags of run for a container.
type imageOptions struct {
	ref, pull, dir, socket string
	env, volumes           []string
	// mounts are the volumes as check read them.
	mounts []containerd.Mount
}

// onlyWithImage are the flags that mean nothing to a command without an image.
func onlyWithImage() []string {
	return []string{"pull", "workdir", "env", "volume", "containerd-socket"}
}

func (o *imageOptions) define(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.ref, "image", "", "run the command, or that of the image, in a container from this image")
	f.StringVar(&o.pull, "pull", string(containerd.PullMissing),
		"with --image: pull the image if missing, always, or never")
	f.StringVar(&o.dir, "workdir", "", "with --image: working directory in the container")
	f.StringArrayVarP(&o.env, "env", "e", nil, "with --image: NAME=VALUE, or NAME for its current value (repeatable)")
	f.StringArrayVarP(&o.volumes, "volume", "v", nil,
		"with --image: mount SOURCE:TARGET or SOURCE:TARGET:ro (repeatable)")
	f.StringVar(&o.socket, "containerd-socket", containerd.DefaultSocket, "with --image: socket of containerd")
	command.Complete(c, "pull", string(containerd.PullMissing), string(containerd.PullAlways),
		string(containerd.PullNever))
}

// check reads the flags. The error has every problem.
func (o *imageOptions) check(c *cobra.Command) error {
	var errs []error
	if !c.Flags().Changed("image") {
		for _, name := range onlyWithImage() {
			if f := c.Flags().Lookup(name); f.Changed {
				errs = append(errs, sharing.Invalid("--"+name, "", "leave it out, or give --image",
					"is for containers alone"))
			}
		}
		return errors.Join(errs...)
	}
	if _, err := containerd.FullName(o.ref); err != nil {
		errs = append(errs, err)
	}
	switch containerd.Pull(o.pull) {
	case containerd.PullMissing, containerd.PullAlways, containerd.PullNever:
	default:
		errs = append(errs, sharing.Invalid("--pull", o.pull, "write missing, always or never", "is not known"))
	}
	if o.dir != "" && !path.IsAbs(o.dir) {
		errs = append(errs, sharing.Invalid("--workdir", o.dir, "write an absolute path in the container",
			"is not absolute"))
	}
	for _, e := range o.env {
		if name, _, _ := strings.Cut(e, "="); name == "" || strings.ContainsRune(e, 0) {
			errs = append(errs, sharing.Invalid("--env", e, "write NAME=VALUE, or NAME", "is no variable"))
		}
	}
	o.mounts = nil
	for _, v := range o.volumes {
		m, err := parseVolume(v)
		if err != nil {
			errs = append(errs, err)
		}
		o.mounts = append(o.mounts, m)
	}
	return errors.Join(errs...)
}

// parseVolume reads SOURCE:TARGET[:ro]. The error is a *sharing.FieldError.
func parseVolume(v string) (containerd.Mount, error) {
	parts := strings.Split(v, ":")
	bad := func(problem string) (containerd.Mount, error) {
		return containerd.Mount{}, sharing.Invalid("--volume", v,
			"write SOURCE:TARGET or SOURCE:TARGET:ro with absolute paths", "%s", problem)
	}
	switch {
	case len(parts) < 2 || len(parts) > 3 || strings.ContainsRune(v, 0):
		return bad("is not a source and a target")
	case !path.IsAbs(parts[0]) || !path.IsAbs(parts[1]) || path.Clean(parts[1]) == "/":
		return bad("is not of two absolute paths below the root")
	case len(parts) == 3 && parts[2] != "ro" && parts[2] != "rw":
		return bad("has an option that is neither ro nor rw")
	}
	return containerd.Mount{Source: path.Clean(parts[0]), Target: path.Clean(parts[1]), ReadOnly: len(parts) == 3 &&
		parts[2] == "ro"}, nil
}

// environment are the variables for the container; a name alone has the value that it has here, and is left
// out when it has none.
func (o *imageOptions) environment(own []string) []string {
	var out []string
	for _, e := range o.env {
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
