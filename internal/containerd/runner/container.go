// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	base "github.com/kerf-gpu/kerf/internal/containerd"
	"github.com/kerf-gpu/kerf/sharing"
)

// labelRun, of a containerd container, marks those that Create makes for kerf run --image, and Sweep removes when they
// are left over.
const labelRun = sharing.Domain + "/run"

// cgroupParent is the cgroup of the containers that Create makes, apart from the agent's own groups.
const cgroupParent = "/kerf-containers"

// waitPause is the time between two waits while the runtime is away.
const waitPause = 200 * time.Millisecond

// staleAfter is when a container that does not run was forgotten: long after the slowest start.
const staleAfter = 15 * time.Minute

// ContainerOptions are what a container is made of.
type ContainerOptions struct {
	// ID names it, unique in the namespace of kerf.
	ID    string
	Image *Image
	// Args replace the image's command, after its entry point; empty leaves it as it is.
	Args []string
	// Env are variables NAME=value that win over the image's. Dir replaces its working directory.
	Env []string
	Dir string
	// Mounts are bind mounts of the host's files.
	Mounts []Mount
	// TTY gives the program a terminal, whose other end Stdin and Stdout are. Stderr is not used then.
	TTY            bool
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Edit changes the OCI spec when it is complete.
	Edit func(*specs.Spec) error
}

// Mount is a bind mount.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// Container is one that Create made. Its maker calls Remove in the end.
type Container struct {
	client    *Client
	container containerd.Container
	options   ContainerOptions
	task      containerd.Task
	exit      <-chan containerd.ExitStatus
	// waiting is the context of the wait, which stopWait ends.
	waiting  context.Context //nolint:containedctx // it outlives every call
	stopWait context.CancelFunc
	// broken is true once a wait broke off.
	broken bool
}

// Create makes a container with the host's network, its own file system and its own view of processes. No
// program runs yet.
func (c *Client) Create(ctx context.Context, o ContainerOptions) (*Container, error) {
	ctx = namespaces.WithNamespace(ctx, base.NamespaceKerf)
	doing := fmt.Sprintf("create container %q", o.ID)
	// Between snapshot and container, nothing else keeps the snapshot.
	leased, done, err := c.ctr.WithLease(ctx)
	if err != nil {
		return nil, c.Plain(ctx, doing, err)
	}
	defer func() { _ = done(context.WithoutCancel(leased)) }() // it ends by itself a day later
	made, err := c.ctr.NewContainer(leased, o.ID,
		containerd.WithImage(o.Image.image),
		containerd.WithContainerLabels(map[string]string{labelRun: "1"}),
		containerd.WithNewSnapshot(o.ID, o.Image.image),
		containerd.WithNewSpec(specOpts(o)...),
	)
	if err != nil {
		return nil, c.Plain(ctx, doing, err)
	}
	return &Container{client: c, container: made, options: o}, nil
}

// specOpts make the OCI spec, the caller's edit last.
func specOpts(o ContainerOptions) []oci.SpecOpts {
	opts := []oci.SpecOpts{oci.WithDefaultPathEnv, oci.WithImageConfigArgs(o.Image.image, o.Args), oci.WithEnv(o.Env)}
	if o.TTY {
		opts = append(opts, oci.WithTTY)
	}
	if o.Dir != "" {
		opts = append(opts, oci.WithProcessCwd(o.Dir))
	}
	opts = append(opts, oci.WithHostNamespace(specs.NetworkNamespace), oci.WithCgroup(cgroupParent+"/"+o.ID))
	if _, err := os.Stat("/etc/resolv.conf"); err == nil {
		opts = append(opts, oci.WithHostResolvconf)
	}
	if _, err := os.Stat("/etc/hosts"); err == nil {
		opts = append(opts, oci.WithHostHostsFile)
	}
	return append(opts, func(_ context.Context, _ oci.Client, _ *containers.Container, s *specs.Spec) error {
		asOnTheHost(s)
		for _, m := range o.Mounts {
			s.Mounts = append(s.Mounts, bind(m))
		}
		if o.Edit == nil {
			return nil
		}
		return o.Edit(s)
	})
}

// asOnTheHost removes limits of the default spec that a program on the host would not have. They are few open files,
// and a /dev/shm of 64 MiB, which data loaders of machine learning overrun.
func asOnTheHost(s *specs.Spec) {
	s.Process.Rlimits = nil
	for i, m := range s.Mounts {
		if m.Destination != "/dev/shm" {
			continue
		}
		var kept []string
		for _, option := range m.Options {
			if !strings.HasPrefix(option, "size=") {
				kept = append(kept, option)
			}
		}
		s.Mounts[i].Options = kept
	}
}

func bind(m Mount) specs.Mount {
	out := specs.Mount{Type: "bind", Source: m.Source, Destination: m.Target,
		Options: []string{"rbind", "rprivate", "rw"}}
	if m.ReadOnly {
		out.Options[2] = "ro"
	}
	return out
}

// Start runs the OCI hooks and then the program. When it fails, nothing of the program ran; the error holds
// what a hook said.
func (k *Container) Start(ctx context.Context) error {
	ctx = namespaces.WithNamespace(ctx, base.NamespaceKerf)
	doing := fmt.Sprintf("start container %q", k.container.ID())
	in := &closingReader{from: k.options.Stdin}
	streams := []cio.Opt{cio.WithStreams(in.orNil(), k.options.Stdout, k.options.Stderr)}
	if k.options.TTY {
		streams = append(streams, cio.WithTerminal)
	}
	task, err := k.container.NewTask(ctx, cio.NewCreator(streams...))
	if err != nil {
		return k.client.Plain(ctx, doing, err)
	}
	k.task = task
	in.onEnd(func() {
		if k.options.TTY {
			return // a terminal has no end; to close it would hang up on the program
		}
		// The shim keeps the other end open, so the program sees the end of its input only after CloseIO. An ended
		// program does not need it.
		_ = task.CloseIO(context.WithoutCancel(ctx), containerd.WithStdinCloser)
	})
	k.waiting, k.stopWait = context.WithCancel(context.WithoutCancel(ctx))
	if k.exit, err = task.Wait(k.waiting); err != nil { //nolint:contextcheck // the wait outlives this call
		return k.client.Plain(ctx, doing, err)
	}
	return k.client.Plain(ctx, doing, task.Start(ctx))
}

// PID is the program's process id on the host once it was started, else 0.
func (k *Container) PID() int {
	if k.task == nil {
		return 0
	}
	return int(k.task.Pid())
}

// Wait waits for the program's end, and for the last of its output, and returns its exit status. After a signal that is
// 128 and the signal's number. A restart of the container runtime meanwhile changes nothing.
func (k *Container) Wait(ctx context.Context) (int, error) {
	for {
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case status := <-k.exit:
			code, _, err := status.Result()
			if err == nil {
				k.task.IO().Wait()
				return int(code), nil
			}
			if err := k.waitAgain(ctx, err); err != nil {
				return 0, err
			}
		}
	}
}

// waitAgain waits again after a wait that broke off, or returns why it cannot.
func (k *Container) waitAgain(ctx context.Context, broken error) error {
	doing := fmt.Sprintf("wait for container %q", k.container.ID())
	switch err := k.client.Plain(ctx, doing, broken); {
	case errors.Is(err, sharing.ErrNotFound) && k.broken:
		// A restarting container runtime deletes ended containers, with their status.
		return &base.Error{
			Text: doing + ": it ended while the container runtime was away, and its exit status is lost",
			Kind: sharing.ErrLost}
	case !errors.Is(err, sharing.ErrUnavailable):
		return err
	}
	k.broken = true
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(waitPause):
	}
	var err error
	if k.exit, err = k.task.Wait(k.waiting); err != nil { //nolint:contextcheck // as the first wait
		return k.client.Plain(ctx, doing, err)
	}
	return nil
}

// Signal sends a signal to the program. One that has ended is no error.
func (k *Container) Signal(ctx context.Context, s syscall.Signal) error {
	err := k.task.Kill(namespaces.WithNamespace(ctx, base.NamespaceKerf), s)
	if errdefs.IsNotFound(err) {
		return nil
	}
	return k.client.Plain(ctx, fmt.Sprintf("signal container %q", k.container.ID()), err)
}

// Resize tells the program's terminal its size in characters.
func (k *Container) Resize(ctx context.Context, width, height int) error {
	//nolint:gosec // the size of a terminal
	err := k.task.Resize(namespaces.WithNamespace(ctx, base.NamespaceKerf), uint32(width), uint32(height))
	return k.client.Plain(ctx, fmt.Sprintf("resize terminal of container %q", k.container.ID()), err)
}

// Remove ends the program if it runs and deletes container and snapshot. What is gone already is no error.
func (k *Container) Remove(ctx context.Context) error {
	ctx = namespaces.WithNamespace(ctx, base.NamespaceKerf)
	doing := fmt.Sprintf("remove container %q", k.container.ID())
	if k.stopWait != nil {
		defer k.stopWait()
	}
	var taskErr error
	if k.task == nil { // a start that was broken off may have got this far
		k.task, _ = k.container.Task(ctx, nil)
	}
	if k.task != nil {
		_, taskErr = k.task.Delete(ctx, containerd.WithProcessKill)
	}
	return k.client.Plain(ctx, doing, errors.Join(gone(taskErr),
		gone(k.container.Delete(ctx, containerd.WithSnapshotCleanup))))
}

func gone(err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

// Sweep removes containers of Create that do not run and were left long ago by killed callers. It is best effort; the
// error is for logs.
func (c *Client) Sweep(ctx context.Context) error {
	ctx = namespaces.WithNamespace(ctx, base.NamespaceKerf)
	list, err := c.ctr.Containers(ctx, fmt.Sprintf("labels.%q==1", labelRun))
	if err != nil {
		return c.Plain(ctx, "list left-over containers", err)
	}
	var errs []error
	for _, container := range list {
		info, err := container.Info(ctx, containerd.WithoutRefreshedMetadata)
		if err != nil || time.Since(info.CreatedAt) < staleAfter {
			errs = append(errs, gone(err))
			continue
		}
		task, err := container.Task(ctx, nil)
		if err == nil {
			if status, err := task.Status(ctx); err != nil || status.Status != containerd.Stopped {
				continue // it runs, or may
			}
			if _, err := task.Delete(ctx); gone(err) != nil {
				errs = append(errs, err)
				continue
			}
		} else if !errdefs.IsNotFound(err) {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, gone(container.Delete(ctx, containerd.WithSnapshotCleanup)))
	}
	return c.Plain(ctx, "remove left-over containers", errors.Join(errs...))
}
