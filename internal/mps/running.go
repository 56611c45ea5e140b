// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
)

// commLength is what the kernel keeps of a program's name; in it both names are the same.
const commLength = 15

const killTime = 2 * time.Second

// Process is a control daemon or a server that runs.
type Process struct {
	PID int
	// Start is when it started, in clock ticks since boot.
	Start uint64
	// Server tells a server from a control daemon.
	Server bool
	// Pipe is its pipe directory.
	Pipe string
}

// Running returns the control daemons and servers whose pipe directory lies below root, from their names and
// environments. Any program with such a name counts. Use it to find daemons that the caller knows by pid and start
// time, or to end what does not belong below root. A control program without the flags -d and -f is a client of a
// daemon: it is not returned.
func Running(root string) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for MPS processes: %w (%w)", err, sharing.ErrUnavailable)
	}
	var all []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := look(pid); ok && strings.HasPrefix(p.Pipe, filepath.Clean(root)+"/") {
			all = append(all, p)
		}
	}
	return all, nil
}

// look tells what a process is. The handle says that what was read is of one process.
func look(pid int) (Process, bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	comm, err := os.ReadFile(dir + "/comm")
	if err != nil || strings.TrimSpace(string(comm)) != controlName[:commLength] {
		return Process{}, false
	}
	h, err := process.Open(pid)
	if err != nil {
		return Process{}, false
	}
	defer h.Close()
	command, err1 := os.ReadFile(dir + "/cmdline")
	environ, err2 := os.ReadFile(dir + "/environ")
	if err1 != nil || err2 != nil || !h.Alive() {
		return Process{}, false
	}
	args := strings.Split(string(command), "\x00")
	p := Process{PID: pid, Start: h.StartTime(), Server: filepath.Base(args[0]) == serverName}
	if !p.Server && !slices.Contains(args, "-d") && !slices.Contains(args, "-f") {
		return Process{}, false
	}
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if v, ok := bytes.CutPrefix(entry, []byte("CUDA_MPS_PIPE_DIRECTORY=")); ok {
			p.Pipe = string(v)
		}
	}
	return p, p.Pipe != ""
}

// Kill ends the process, and returns when it has ended. Errors: sharing.ErrNotFound or sharing.ErrStale (it has ended
// already), sharing.ErrUnavailable (it does not end in time), sharing.ErrDenied.
func (p Process) Kill(ctx context.Context) error {
	h, err := process.OpenAt(p.PID, p.Start)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := h.Signal(unix.SIGKILL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, killTime)
	defer cancel()
	look := time.NewTicker(killTime / 200)
	defer look.Stop()
	for h.Alive() {
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("kill process %d: it does not end: %w", p.PID, sharing.ErrUnavailable)
		}
	}
	return nil
}

const (
	controlName = "nvidia-cuda-mps-control"
	serverName  = "nvidia-cuda-mps-server"

	callTime  = 10 * time.Second
	maxOutput = 1 << 20
)

// Program is nvidia-cuda-mps-control on this machine.
type Program struct {
	// Path is where it lies, absolute.
	Path string
	// Env is the environment of the program, its daemons and servers in addition to MPS's variables: PATH, and
	// LD_LIBRARY_PATH if the driver's library needs it.
	Env []string
}

// Find looks the program up in the folders of a PATH. Servers look for the driver's library in the folders libraries
// too, which become LD_LIBRARY_PATH. It is sharing.ErrUnsupported, with the remedy, when it or the server's program is
// missing.
func Find(path string, libraries []string) (Program, error) {
	control, server := lookUp(controlName, path), lookUp(serverName, path)
	for name, found := range map[string]string{controlName: control, serverName: server} {
		if found == "" {
			return Program{}, fmt.Errorf("there is no %s in PATH; install the driver's compute utilities (Debian: "+
				"nvidia-cuda-mps, Ubuntu: nvidia-compute-utils): %w",
				name, sharing.ErrUnsupported)
		}
	}
	env := []string{"PATH=" + path}
	if len(libraries) > 0 {
		env = append(env, "LD_LIBRARY_PATH="+strings.Join(libraries, string(filepath.ListSeparator)))
	}
	return Program{Path: control, Env: env}, nil
}

func lookUp(name, path string) string {
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && filepath.IsAbs(file) && info.Mode().IsRegular() &&
			info.Mode().Perm()&0o111 != 0 {
			return file
		}
	}
	return ""
}

// run executes the program. Errors: sharing.ErrUnavailable (it failed, with what it printed, or was too slow).
func (p Program) run(ctx context.Context, env []string, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Path, args...)
	cmd.Env = append(append([]string{}, p.Env...), env...)
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = time.Second
	var out limited
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", fmt.Errorf("it does not answer: %w (%w)", ctx.Err(), sharing.ErrUnavailable)
	}
	// A daemon in the background may keep the output open: that is no failure.
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return "", fmt.Errorf("%w, it says %q (%w)", err, shorten(out.kept.String()), sharing.ErrUnavailable)
	}
	if out.truncated {
		return "", fmt.Errorf("it answers with more than %d bytes: %w", maxOutput, sharing.ErrUnavailable)
	}
	return out.kept.String(), nil
}

// limited keeps the beginning of what is written.
type limited struct {
	kept      bytes.Buffer
	truncated bool // something was left out
}

// Write never fails: a program that prints without end shall not hang on it.
func (l *limited) Write(p []byte) (int, error) {
	keep := min(maxOutput-l.kept.Len(), len(p))
	l.truncated = l.truncated || keep < len(p)
	_, _ = l.kept.Write(p[:keep]) // a buffer takes all
	return len(p), nil
}

func shorten(s string) string {
	s = strings.TrimSpace(s)
	return s[:min(len(s), 200)]
}
