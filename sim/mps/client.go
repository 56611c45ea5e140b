// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// listenTime is how long a daemon may take until it listens.
const listenTime = 5 * time.Second

// errNoDaemon: nothing answers behind the pipe directory.
var errNoDaemon = errors.New("no control daemon")

// ask passes each line of the input on as a command and prints the answers.
func (w World) ask(ctx context.Context) error {
	lines := bufio.NewScanner(w.In)
	for lines.Scan() {
		command := strings.TrimSpace(lines.Text())
		if command == "" {
			continue
		}
		conn, err := dial(ctx, w.pipe())
		if err != nil {
			return errNoDaemon
		}
		_, err = fmt.Fprintln(conn, "command "+command)
		if err == nil {
			_, err = io.Copy(w.Out, conn)
		}
		_ = conn.Close() // nothing is left to be sent
		if err != nil {
			return fmt.Errorf("connection to the control daemon: %w", err)
		}
		if strings.HasPrefix(command, "quit") {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read commands: %w", err)
	}
	return nil
}

// daemonize starts the daemon in a new session, and returns when it listens: NVIDIA's programs ask at once. The status
// does not say whether it runs. As with the real one, only an answer shows it.
func (w World) daemonize(ctx context.Context) error {
	if conn, err := dial(ctx, w.pipe()); err == nil {
		// it was only to see
		_ = conn.Close()
		return fmt.Errorf("An instance of this daemon is already running: %w", sharing.ErrConflict) //nolint:staticcheck // the real one's text
	}
	cmd := exec.Command(w.Program, "-f") //nolint:noctx // it outlives this process on purpose
	cmd.Env, cmd.Dir = w.Env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the daemon: %w", err)
	}
	w.listens(ctx, cmd.Process.Pid)
	return cmd.Process.Release()
}

// listens waits until the daemon listens or has ended, for listenTime at most.
func (w World) listens(ctx context.Context, pid int) {
	ctx, cancel := context.WithTimeout(ctx, listenTime)
	defer cancel()
	look := time.NewTicker(listenTime / 500)
	defer look.Stop()
	for {
		if conn, err := dial(ctx, w.pipe()); err == nil {
			_ = conn.Close() // it was only to see
			return
		}
		if ended, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); ended == pid || err != nil {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}
