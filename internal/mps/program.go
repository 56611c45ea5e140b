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
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

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
	// Env is what it, and the daemons and servers that it starts, get beside MPS's own variables: PATH, and
	// LD_LIBRARY_PATH where the driver's library needs it.
	Env []string
}

// Find looks the program up in the folders of a PATH. Servers look for the driver's library in the folders libraries too,
// which become LD_LIBRARY_PATH. It is sharing.ErrUnsupported, with the remedy, when it or the server's program is missing.
func Find(path string, libraries []string) (Program, error) {
	control, server := lookUp(controlName, path), lookUp(serverName, path)
	for name, found := range map[string]string{controlName: control, serverName: server} {
		if found == "" {
			return Program{}, fmt.Errorf("there is no %s in PATH; install the driver's compute utilities (Debian: nvidia-cuda-mps, Ubuntu: nvidia-compute-utils): %w",
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
		if info, err := os.Stat(file); err == nil && filepath.IsAbs(file) && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
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
	if out.cut {
		return "", fmt.Errorf("it answers with more than %d bytes: %w", maxOutput, sharing.ErrUnavailable)
	}
	return out.kept.String(), nil
}

// limited keeps the beginning of what is written.
type limited struct {
	kept bytes.Buffer
	cut  bool // something was left out
}

// Write never fails: a program that prints without end shall not hang on it.
func (l *limited) Write(p []byte) (int, error) {
	keep := min(maxOutput-l.kept.Len(), len(p))
	l.cut = l.cut || keep < len(p)
	_, _ = l.kept.Write(p[:keep]) // a buffer takes all
	return len(p), nil
}

func shorten(s string) string {
	s = strings.TrimSpace(s)
	return s[:min(len(s), 200)]
}
