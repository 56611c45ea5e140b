// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/spf13/cobra"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/hooks/oci"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/containerd/runner"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/sharing"
)

// removeWindow is how long the removal of a container may take.
const removeWindow = 30 * time.Second

// errSaid is an error that needs no words: the program itself has said what there was to say.
var errSaid = errors.New("")

// runImage runs the command in a container and returns its exit status as a *command.Failure, or nil for 0.
func runImage(a *command.App, c *cobra.Command, o *runOptions, report *statusFile, args []string) error {
	request, err := o.check(c, args)
	if err == nil && os.Geteuid() != 0 {
		err = fmt.Errorf("--image needs root: containerd and the hook of the container are root's; try sudo: %w",
			sharing.ErrDenied)
	}
	if err == nil {
		err = report.clear()
	}
	if err != nil {
		return refuse(report, err)
	}
	r := &imageRun{app: a, options: o, report: report, args: args}
	ctx, signals := command.Catch(c.Context())
	err = r.start(ctx, reserveRequest(request, o.Name))
	if err == nil {
		r.forward = forwardTo(r.container) // before the signals are released, so that none is lost
	}
	signals.Release()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return refuse(report, errors.Join(err, r.end()))
	}
	code, err := r.wait(c.Context())
	if err := errors.Join(err, r.end()); err != nil {
		return command.Exit(exitRefused, err)
	}
	if code != 0 {
		return command.Exit(code, errSaid)
	}
	return nil
}

// imageRun is one container from its grant to its removal.
type imageRun struct {
	app     *command.App
	options *runOptions
	report  *statusFile
	args    []string

	runtime   *runner.Client
	node      *nodeclient.Client
	container *runner.Container
	console   *console
	forward   *forwarder
}

// start does everything up to the program's start. What it made, end removes, also after an error.
func (r *imageRun) start(ctx context.Context, request *nodeapi.ReserveRequest) (err error) {
	o := r.options
	if r.runtime, err = runner.Open(o.image.socket); err != nil {
		return err
	}
	// Before anything is reserved: an image may be long on its way.
	image, err := r.runtime.Image(ctx, o.Image, runner.Pull(o.Pull), r.notice)
	if err != nil {
		return err
	}
	if err := r.runtime.Sweep(ctx); err != nil {
		r.notice(err.Error())
	}
	var reserved *nodeapi.ReserveResponse
	if r.node, reserved, err = reserveContainer(ctx, r.app.Dir, request); err != nil {
		return err
	}
	grant, err := containerGrant(reserved)
	if err != nil {
		return err
	}
	r.warn(reserved.GetGrant())
	r.console = openConsole(r.app.In, r.app.Out)
	r.container, err = r.runtime.Create(ctx, runner.ContainerOptions{
		ID: "kerf-run-" + grant.ID, Image: image, Args: r.args, Env: o.Environment(r.app.Environ()), Dir: o.Dir,
		Mounts: o.image.mounts,
		TTY:    r.console != nil, Stdin: r.app.In, Stdout: r.app.Out, Stderr: r.app.ErrOut,
		Edit: func(s *specs.Spec) error {
			if len(s.Process.Args) == 0 {
				return sharing.Invalid("the command", "", "write it after --", "is missing, and the image has none")
			}
			return oci.Patch(s, grant)
		},
	})
	if err != nil {
		return err
	}
	if err := r.container.Start(ctx); err != nil {
		return startFailure(r.args, err)
	}
	if err := r.console.raw(); err != nil {
		return err
	}
	r.console.follow(r.container) //nolint:contextcheck // sizes change as long as the program runs
	return r.report.runningAs(r.now(ctx, reserved.GetGrant()), r.container.PID())
}

// startFailure gives a start that failed for the command's own sake the status of a shell. The OCI runtime
// tells it in words alone.
func startFailure(args []string, err error) error {
	text := err.Error()
	if strings.Contains(text, "createRuntime") { // a hook's own words may look like anything
		return err
	}
	_, why, ok := strings.Cut(text, `exec: "`)
	if !ok {
		_, why, ok = strings.Cut(text, "exec /")
	}
	name := "the image's command"
	if len(args) > 0 {
		name = strconv.Quote(args[0])
	}
	if ok && (strings.Contains(why, "executable file not found") ||
		strings.Contains(why, "no such file or directory")) {
		return command.Exit(exitNotFound, fmt.Errorf("%s: command not found in the image", name))
	}
	for _, reason := range []string{"permission denied", "exec format error", "is a directory"} {
		if ok && strings.Contains(why, reason) {
			return command.Exit(exitNotExec, fmt.Errorf("%s: cannot be executed in the image: %s", name, reason))
		}
	}
	return err
}

// wait passes signals on until the program has ended.
func (r *imageRun) wait(ctx context.Context) (int, error) {
	code, err := r.container.Wait(ctx)
	if s := r.forward.ended(); s != 0 && err == nil {
		code = 128 + int(s)
	}
	return code, err
}

// end puts back what start changed, in the reverse order. The caller's context may have ended.
func (r *imageRun) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), removeWindow)
	defer cancel()
	r.forward.stop()
	var errs []error
	if r.container != nil {
		errs = append(errs, r.container.Remove(ctx))
	}
	errs = append(errs, r.console.restore())
	if r.node != nil {
		errs = append(errs, r.node.Close())
	}
	if r.runtime != nil {
		errs = append(errs, r.runtime.Close())
	}
	return errors.Join(errs...)
}

// now is the grant as the agent shows it once it is activated, or as it was when the agent does not answer.
func (r *imageRun) now(ctx context.Context, g *nodeapi.Grant) *nodeapi.Grant {
	if picture, err := r.node.Node(ctx); err == nil {
		for _, now := range picture.GetGrants() {
			if now.GetId() == g.GetId() {
				return now
			}
		}
	}
	return g
}

// warn says what the user should know of the grant's level.
func (r *imageRun) warn(g *nodeapi.Grant) {
	if w := unenforced(g); w != "" {
		r.notice(w)
	}
}

func (r *imageRun) notice(s string) {
	if !r.options.Quiet {
		_, _ = fmt.Fprintf(r.app.ErrOut, "kerf run: %s\n", s)
	}
}
