// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/daemon"
)

const (
	// readyFD is the descriptor at which a daemon finds the pipe for its report: the first after the standard
	// three.
	readyFD   = 3
	maxReport = 64 << 10
	readyWord = "ready\n"
)

// Program is how the daemon's program is started: it gets args and, added to them, `--ready-fd N`.
type Program struct {
	Path string
	Args []string
}

// Start runs the daemon in the background, in a new session, with its output in dir's log, and returns its status once
// it answers. ctx bounds the wait. It is sharing.ErrConflict when one runs there.
func Start(ctx context.Context, dir string, p Program) (control.Status, error) {
	var status control.Status
	if pid, err := daemon.Owner(dir); err != nil {
		return status, err
	} else if pid > 0 {
		return status,
			fmt.Errorf("a simulated driver runs in %q already, as process %d; end it with `gpusim stop --dir %s`: %w",
				dir, pid, Quote(dir), sharing.ErrConflict)
	}
	if err := spawn(ctx, dir, p); err != nil {
		return status, err
	}
	err := control.Call(ctx, dir, control.Request{Command: control.CmdStatus}, &status)
	return status, err
}

// spawn starts the program and waits for its report.
func spawn(ctx context.Context, dir string, p Program) error {
	log, err := os.OpenFile(LogPath(dir), os.O_CREATE|os.O_WRONLY|os.O_APPEND, publicFile)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer log.Close()
	report, theirs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer report.Close()
	cmd := exec.Command(p.Path, append(p.Args, "--ready-fd", strconv.Itoa(readyFD))...) //nolint:noctx // it outlives ctx on purpose
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = theirs.Close() // the child has its own
	if err != nil {
		return fmt.Errorf("start %q: %w", p.Path, err)
	}
	text, err := readReport(ctx, report)
	if err == nil && text == readyWord {
		return cmd.Process.Release()
	}
	// Nothing may be left behind by a start that did not work.
	_ = cmd.Process.Kill() // it may have ended by itself
	_ = cmd.Wait()         // how it ended is of no matter now
	switch {
	case err != nil:
		return fmt.Errorf("the simulated driver does not become ready; see %q: %w", LogPath(dir), err)
	case text == "":
		return fmt.Errorf("the simulated driver has ended at once; see %q: %w", LogPath(dir), sharing.ErrUnavailable)
	}
	return errors.New(strings.TrimSuffix(text, "\n"))
}

// readReport reads until the child closes the pipe, or ctx ends.
func readReport(ctx context.Context, r *os.File) (string, error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := r.SetReadDeadline(deadline); err != nil {
			return "", fmt.Errorf("wait: %w", err)
		}
	}
	var text bytes.Buffer
	_, err := io.Copy(&text, io.LimitReader(r, maxReport))
	return text.String(), err
}

// Report passes the outcome of the daemon's start to a waiting Start. fd is the value of --ready-fd, negative if no
// Start waits.
func Report(fd int, failure error) error {
	if fd < 0 {
		return nil
	}
	pipe := os.NewFile(uintptr(fd), "report")
	if pipe == nil {
		return sharing.Invalid("--ready-fd", strconv.Itoa(fd), "leave it out", "is not an open descriptor")
	}
	text := readyWord
	if failure != nil {
		text = failure.Error() + "\n"
	}
	_, err := pipe.WriteString(text)
	if err = errors.Join(err, pipe.Close()); err != nil {
		return fmt.Errorf("report to the starter: %w", err)
	}
	return nil
}
