// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/job"
	"github.com/kerf-gpu/kerf/internal/containerd"
	"github.com/kerf-gpu/kerf/internal/containerd/runner"
	"github.com/kerf-gpu/kerf/sharing"
)

// imageOptions are the flags of run for a container of this machine.
type imageOptions struct {
	socket  string
	volumes []string
	// mounts are the volumes as check read them.
	mounts []runner.Mount
}

// onlyForMachines returns the flags that have an effect only on a machine.
func onlyForMachines() []string { return []string{"volume", "containerd-socket", "status-file"} }

func (o *imageOptions) define(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVarP(&o.volumes, "volume", "v", nil,
		"with --image: mount SOURCE:TARGET or SOURCE:TARGET:ro (repeatable)")
	f.StringVar(&o.socket, "containerd-socket", containerd.DefaultSocket, "with --image: socket of containerd")
}

// check reads the flags. The error has every problem.
func (o *imageOptions) check(c *cobra.Command, image string) error {
	if !c.Flags().Changed("image") {
		return job.WithoutImage(c, []string{"volume", "containerd-socket"})
	}
	var errs []error
	if _, err := runner.FullName(image); err != nil {
		errs = append(errs, err)
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
func parseVolume(v string) (runner.Mount, error) {
	parts := strings.Split(v, ":")
	bad := func(problem string) (runner.Mount, error) {
		return runner.Mount{}, sharing.Invalid("--volume", v,
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
	return runner.Mount{Source: path.Clean(parts[0]), Target: path.Clean(parts[1]), ReadOnly: len(parts) == 3 &&
		parts[2] == "ro"}, nil
}
