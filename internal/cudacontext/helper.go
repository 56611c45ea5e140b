// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cudacontext

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// ready is what a helper prints once it has its context.
	ready = "ready"
	// endTime is how long a killed helper has to end.
	endTime = 5 * time.Second
	// lineMost is more than a helper says.
	lineMost = 1024
)

// RunHelper is the work of a helper. Once it reads a byte from in, it makes a context by Make, reports that on out, and
// returns when in ends. The caller then ends the process.
func RunHelper(in io.Reader, out io.Writer, libraries []string) error {
	agent := bufio.NewReader(in)
	if _, err := agent.ReadByte(); err != nil {
		return fmt.Errorf("wait for the agent: %w", err)
	}
	if err := Make(libraries); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, ready)
	if err == nil {
		_, err = io.Copy(io.Discard, agent)
	}
	return err
}

// Start is how a helper is started. All fields are required.
type Start struct {
	// Program and Args are a program that calls RunHelper with its standard input and output.
	Program string
	Args    []string
	// GPU is the one that CUDA shows to it.
	GPU sharing.GPUID
	// Folders have the driver's libraries.
	Folders []string
	// NoMPS is a path that does not exist: the helper finds no MPS daemon, whose clients have contexts of another size.
	NoMPS string
	// MoveToCgroup moves the process to its cgroup, before it calls the driver.
	MoveToCgroup func(pid int) error
}

// Helper is a process that makes one context.
type Helper struct {
	cmd     *exec.Cmd
	in, out *os.File
	ended   chan struct{}
}

// Run starts the helper, which is killed when ctx ends. It makes its context when Ready is called. The caller calls
// Stop. Errors: those of MoveToCgroup, and sharing.ErrUnavailable.
func (s Start) Run(ctx context.Context) (*Helper, error) {
	h := &Helper{ended: make(chan struct{})}
	if err := h.start(ctx, s); err != nil {
		return nil, fmt.Errorf("start context helper: %w (%w)", err, sharing.ErrUnavailable)
	}
	go func() {
		defer close(h.ended)
		_ = h.cmd.Wait() // it is killed, mostly
	}()
	if err := s.MoveToCgroup(h.PID()); err != nil {
		return nil, fmt.Errorf("start context helper: %w", errors.Join(err, h.Stop()))
	}
	return h, nil
}

func (h *Helper) start(ctx context.Context, s Start) error {
	childIn, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer childIn.Close()
	out, childOut, err := os.Pipe()
	if err != nil {
		return errors.Join(err, in.Close())
	}
	defer childOut.Close()
	h.in, h.out = in, out
	h.cmd = exec.CommandContext(ctx, s.Program, s.Args...)
	h.cmd.Stdin, h.cmd.Stdout, h.cmd.Stderr, h.cmd.Dir = childIn, childOut, childOut, "/"
	h.cmd.Env = []string{
		"CUDA_VISIBLE_DEVICES=" + string(s.GPU), "CUDA_MPS_PIPE_DIRECTORY=" + s.NoMPS, "CUDA_CACHE_DISABLE=1",
		"LD_LIBRARY_PATH=" + strings.Join(s.Folders, string(filepath.ListSeparator)),
	}
	if err := h.cmd.Start(); err != nil {
		h.close()
		return err
	}
	return nil
}

// PID is the helper.
func (h *Helper) PID() int { return h.cmd.Process.Pid }

// Ready has the helper make its context, and waits for it. The error wraps sharing.ErrUnavailable and has what the
// helper says.
func (h *Helper) Ready(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = h.out.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := h.in.WriteString("\n")
	line := ""
	if err == nil {
		line, err = bufio.NewReader(io.LimitReader(h.out, lineMost)).ReadString('\n')
	}
	switch line = strings.TrimSpace(line); {
	case line == ready:
		return nil
	case line != "":
		return fmt.Errorf("context helper: %s: %w", line, sharing.ErrUnavailable)
	}
	return fmt.Errorf("context helper made no context: %w (%w)", err, sharing.ErrUnavailable)
}

// Stop kills the helper and waits until it has ended. With an error, which wraps sharing.ErrUnavailable, the driver
// holds it in the kernel: it ends later, or never.
func (h *Helper) Stop() error {
	_ = h.cmd.Process.Kill() // it may have ended
	h.close()
	select {
	case <-h.ended:
		return nil
	case <-time.After(endTime):
		return fmt.Errorf("context helper %d does not end: %w", h.PID(), sharing.ErrUnavailable)
	}
}

func (h *Helper) close() {
	_ = errors.Join(h.in.Close(), h.out.Close()) // the agent's ends of pipes, on which nothing waits
}
