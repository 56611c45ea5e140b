// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/cli/job"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	defaultHold = 5 * time.Minute
	maxHold     = time.Hour
)

// ociOptions are the flags of oci patch and oci hook as they were typed.
type ociOptions struct {
	flags        sharing.Flags
	name, output string
	hold         time.Duration
	quiet        bool
}

// ociResult is what oci patch and oci hook print with -o json.
type ociResult struct {
	Grant          present.Grant `json:"grant"`
	ReserveSeconds int64         `json:"reserveSeconds"`
	// File is the file that was written, and Devices the CDI names of the grant's GPUs.
	File    string   `json:"file"`
	Devices []string `json:"devices"`
}

func ociCommand(a *command.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "oci",
		Short: "Add a grant to a container of any OCI runtime",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(ociPatchCommand(a), ociHookCommand(a))
	return c
}

func ociPatchCommand(a *command.App) *cobra.Command {
	o := &ociOptions{}
	c := &cobra.Command{
		Use:   "patch BUNDLE [flags]",
		Short: "Add a grant to the config.json of an OCI bundle",
		Long: `Add a grant to the config.json of an OCI bundle. The file gets the devices and
libraries of the GPUs, and a hook that activates the cap before the program
runs. If the hook fails, the container does not start. Start the bundle with
runc or crun as root. Its ID needs at least 8 characters, and the name of its
cgroup must contain the ID, as by default. Each start needs a new grant, and so
a new patch.

The reservation lasts for --reserve-for. Start the container within that time.
The grant ends with the container. The command replaces the file completely or
not at all.

For Slurm's OCI containers, call it on the bundle that oci.conf's CreateEnvFile
or RunTimeCreate made, with a runtime that runs as root. Podman and Docker
create their bundles themselves: see kerf oci hook.`,
		Example: `  kerf oci patch ./bundle --memory 10GiB && runc run --bundle ./bundle train-1`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return putGrant(a, c, o, func(resp *nodeapi.ReserveResponse) (string,
				error) {
				return patchBundle(args[0], resp)
			})
		},
	}
	o.define(c, a.CompleteGPUs)
	return c
}

func ociHookCommand(a *command.App) *cobra.Command {
	o := &ociOptions{}
	c := &cobra.Command{
		Use:   "hook DIR [flags]",
		Short: "Write the hook of a grant for Podman's --hooks-dir",
		Long: `Write the hook of a grant into DIR, for engines that create the OCI bundle and
add hooks from a directory. Use an empty directory for each container: the
engine adds the hook to each container that it starts with it. Run the container
as root, with the devices that the command prints:

  podman run --hooks-dir DIR --device kerf.dev/gpu=GPU-... IMAGE

The reservation lasts for --reserve-for. Start the container within that time.
Never use --device without --hooks-dir: the container would have the GPU without
a cap.`,
		Example: `  d=$(mktemp -d) && kerf oci hook $d --memory 10GiB`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return putGrant(a, c, o, func(resp *nodeapi.ReserveResponse) (string,
				error) {
				return writeHook(args[0], resp)
			})
		},
	}
	o.define(c, a.CompleteGPUs)
	return c
}

func (o *ociOptions) define(c *cobra.Command, completeGPUs command.Completer) {
	job.DefineAmounts(c, &o.flags, completeGPUs)
	f := c.Flags()
	f.StringVar(&o.name, "name", "", "name of the grant, unique on the node")
	f.DurationVar(&o.hold, "reserve-for", defaultHold, "time for the start of the container, up to 1h")
	f.StringVarP(&o.output, "output", "o", "", "json")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no warnings")
	command.Complete(c, "output", "json")
}

// check reads the flags. The error has every problem.
func (o *ociOptions) check() (sharing.Request, error) {
	r, err := sharing.RequestFromFlags(o.flags)
	errs := []error{err}
	if o.name != "" {
		errs = append(errs, sharing.ValidateName("--name", o.name))
	}
	if o.hold < time.Second || o.hold > maxHold {
		errs = append(errs, sharing.Invalid("--reserve-for", o.hold.String(), "write 1s to 1h", "is out of range"))
	}
	if o.output != "" && o.output != "json" {
		errs = append(errs, sharing.Invalid("--output", o.output, "write json, or leave it out",
			"is not a form of output"))
	}
	return r, errors.Join(errs...)
}

// putGrant grants, writes, and prints the grant. A grant that could not be written is given back.
func putGrant(a *command.App, c *cobra.Command, o *ociOptions, write func(*nodeapi.ReserveResponse) (string,
	error)) error {
	request, err := o.check()
	if err != nil {
		return command.Misused(err)
	}
	in := reserveRequest(request, o.name)
	in.ReserveSeconds = uint32(math.Ceil(o.hold.Seconds()))
	ctx, signals := command.Catch(c.Context())
	client, resp, err := reserveContainer(ctx, a.Dir, in)
	if err != nil {
		signals.Release()
		return command.Fail(err)
	}
	file, err := write(resp)
	signals.Release()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = showOCI(a, o, in, resp, file)
	}
	if err != nil {
		// A grant with a time outlives this process.
		err = errors.Join(err, client.Release(context.WithoutCancel(ctx), resp.GetGrant().GetId()))
	}
	if err := errors.Join(err, client.Close()); err != nil {
		if stopped, ok := errors.AsType[*command.InterruptedError](err); ok {
			return command.Exit(stopped.Code(), err)
		}
		return command.Fail(err)
	}
	return nil
}

func showOCI(a *command.App, o *ociOptions, in *nodeapi.ReserveRequest, resp *nodeapi.ReserveResponse,
	file string) error {
	g, devices := resp.GetGrant(), resp.GetContainer().GetCdiDevices()
	if w := unenforced(g); w != "" && !o.quiet {
		_, _ = fmt.Fprintf(a.ErrOut, "kerf oci: %s\n", w)
	}
	if o.output == "json" {
		text, err := present.JSON(ociResult{Grant: present.FromGrant(g), ReserveSeconds: int64(in.GetReserveSeconds()),
			File: file, Devices: devices}, true)
		if err != nil {
			return err
		}
		_, err = a.Out.Write(text)
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "grant   %s\nlevel   %s\nfile    %s\n", g.GetId(), g.GetLevel(), file)
	for _, f := range g.GetShares() {
		amount := "whole"
		if !f.GetWhole() {
			amount = sharing.Bytes(f.GetMemoryBytes()).String()
			if f.GetPercent() > 0 {
				amount += fmt.Sprintf(", %d%%", f.GetPercent())
			}
		}
		fmt.Fprintf(&text, "gpu     %s (%s)\n", f.GetGpu(), amount)
	}
	for _, d := range devices {
		fmt.Fprintf(&text, "device  %s\n", d)
	}
	fmt.Fprintf(&text, "held    %s: start the container within that time\n",
		time.Duration(in.GetReserveSeconds())*time.Second)
	_, err := fmt.Fprint(a.Out, text.String())
	return err
}
