// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/cli/job"
	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/sharing"
)

// run becomes the command on a grant, or returns the *command.Failure that says why not. On success it does not
// return.
func run(a *command.App, c *cobra.Command, o *runOptions, args []string) error {
	report := &statusFile{path: o.statusFile}
	if runsRemotely(a, c, o) {
		return runJob(a, c, o, args)
	}
	for _, name := range job.OnlyForJobs() {
		if command.Changed(c, name) {
			return refuse(report, sharing.Invalid("--"+name, "", "leave it out, or name a cluster with --context",
				"is for a cluster alone"))
		}
	}
	if o.Image != "" {
		return runImage(a, c, o, report, args)
	}
	return refuse(report, runReported(a, c, o, report, args))
}

// runJob runs the command in a Job of the cluster.
func runJob(a *command.App, c *cobra.Command, o *runOptions, args []string) error {
	request, err := o.check(c, args)
	for _, name := range onlyForMachines() {
		if command.Changed(c, name) {
			err = errors.Join(err, sharing.Invalid("--"+name, "",
				"leave it out, or name a machine's agent with --run-dir",
				"is for one machine alone"))
		}
	}
	return job.Run(a, c, &o.Options, args, request, err)
}

// runsRemotely tells whether the command is for the cluster: where that is meant, and for an image also where no agent
// is on this machine. A command without an image is a program of this machine, and its agent is missed where it is not
// there.
func runsRemotely(a *command.App, c *cobra.Command, o *runOptions) bool {
	return a.Meant(c) && !command.Changed(c, "run-dir") || o.Image != "" && a.Remote(c)
}

// refuse returns the failure of a command that did not run. It also writes it to the status file.
func refuse(report *statusFile, err error) error {
	var stopped *command.InterruptedError
	var f *command.Failure
	code := exitRefused
	switch {
	case errors.As(err, &stopped):
		code = stopped.Code()
	case errors.As(err, &f):
		code = f.Code
	}
	return command.Exit(code, errors.Join(err, report.refused(err)))
}

// runReported is run without the report of a failure.
func runReported(a *command.App, c *cobra.Command, o *runOptions, report *statusFile, args []string) error {
	request, err := o.check(c, args)
	if err != nil {
		return err
	}
	// Look up the command first: one that cannot run must not reserve a share, even briefly.
	path, err := lookup(args[0], a.Getenv("PATH"))
	if err != nil {
		return err
	}
	if err := report.clear(); err != nil {
		return err
	}
	ctx, signals := command.Catch(c.Context())
	activated, byEnv, err := grant(ctx, a.Dir, reserveRequest(request, o.Name))
	signals.Release()
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return become(a, o, report, activated, byEnv, path, args)
}

// grant reserves and activates. When it returns without an error, this process is in the grant's cgroup and its cap
// is enforced. With byEnv, the environment names the library of the backend, if it has one.
func grant(ctx context.Context, dir string, r *nodeapi.ReserveRequest) (activated *nodeapi.ActivateResponse, byEnv bool,
	err error) {
	client, g, err := reserve(ctx, dir, r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		return nil, false, err
	}
	byEnv = g.GetBackend() == libkerf && !preloadFileFree(preloadFile)
	activated, err = client.Activate(ctx, &nodeapi.ActivateRequest{Id: g.GetId(), NoPreloadFile: byEnv})
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err := errors.Join(err, client.Close()); err != nil {
		return nil, false, err
	}
	if activated.GetGrant().GetId() != g.GetId() {
		return nil, false, fmt.Errorf("activate %q: the agent's answer is for %q: %w", g.GetId(),
			activated.GetGrant().GetId(),
			sharing.ErrUnavailable)
	}
	return activated, byEnv, nil
}

// become hides the other GPUs and executes the command. Namespaces belong to threads, so all of it happens
// on one.
func become(a *command.App, o *runOptions, report *statusFile, activated *nodeapi.ActivateResponse, byEnv bool,
	path string, argv []string) error {
	runtime.LockOSThread()
	warnings, masked, err := hide(activated)
	if err != nil {
		return err
	}
	if err := showLibrary(activated, masked); err != nil {
		return fmt.Errorf("mount the library that holds the command to its memory: %w", err)
	}
	if !o.Quiet {
		for _, w := range warnings {
			_, _ = fmt.Fprintf(a.ErrOut, "kerf run: %s\n", w)
		}
	}
	if err := report.running(activated.GetGrant()); err != nil {
		return err
	}
	env := preloading(withEnv(a.Environ(), activated.GetEnv()), activated, byEnv, a.Getenv(preloadEnv))
	err = a.Exec(path, argv, env)
	if errors.Is(err, unix.ENOEXEC) && isScript(path) {
		// A script without an interpreter line: shells and execvp take sh.
		err = a.Exec("/bin/sh", append([]string{"sh", path}, argv[1:]...), env)
	}
	return execFailure(path, err)
}

// hide masks the node's other GPUs where this process may, and returns what the user should know. With the
// right to mask, a mask that does not work is an error: the command would see GPUs that are not its own.
func hide(activated *nodeapi.ActivateResponse) (warnings []string, masked bool, err error) {
	if w := unenforced(activated.GetGrant()); w != "" {
		warnings = append(warnings, w)
	}
	switch others := activated.GetHiddenDevices(); {
	case len(others)+len(activated.GetVisibleFiles()) == 0:
	case mountns.Allowed():
		if err := mountns.Mask(others); err != nil {
			return nil, false, fmt.Errorf("hide the other GPUs: %w", err)
		}
		for _, o := range activated.GetVisibleFiles() {
			if err := mountns.Only(o.GetFolder(), o.GetFiles()); err != nil {
				return nil, false, fmt.Errorf("hide the other MIG instances: %w", err)
			}
		}
		masked = true
	case len(others) == 0:
	case !activated.GetOtherGpusCapped():
		warnings = append(warnings,
			"the other GPUs of this machine stay reachable for the command: hiding them needs CAP_SYS_ADMIN")
	}
	return warnings, masked, nil
}

// unenforced is what the user should know of a grant that nothing holds beforehand; empty for any other.
func unenforced(g *nodeapi.Grant) string {
	var w string
	switch g.GetLevel() {
	case sharing.LevelNone.String(), sharing.LevelUnknown.String():
		w = "this grant is not enforced (level " + g.GetLevel() + ")"
	case sharing.LevelReactive.String():
		w = "this grant is watched (level reactive): nothing refuses memory past its size, and what holds more may " +
			"be killed"
	default:
		return ""
	}
	if g.GetLevelReason() != "" {
		w += ": " + g.GetLevelReason()
	}
	return w
}

// isScript tells text from a binary in the way of shells: there is no NUL in its first line.
func isScript(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 128)
	n, _ := f.Read(head) // an empty file is a script too
	first, _, _ := bytes.Cut(head[:n], []byte("\n"))
	return bytes.IndexByte(first, 0) < 0
}
