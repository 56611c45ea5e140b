// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package mps is the adapter to nvidia-cuda-mps-control, the program that runs NVIDIA's MPS: it starts control
// daemons, queries them, and lists the running ones. It uses the interface of version 2, which all drivers since
// Volta have.
//
// It promises: each call ends by its context or within ten seconds. It accepts only output in the expected form. A
// daemon serves one GPU, which is its ordinal 0. It rejects a pipe directory whose socket path is too long, because
// the program would not report that. An error for something missing has the fix.
//
// It does not promise that a daemon serves because it was started. NVIDIA's programs report neither a socket that
// cannot be bound nor a server that ends at once, so ask for the server. It has no state and starts no goroutine.
package mps

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// maxSocket is the longest path of a socket, and longestSocket the longest name of one in a pipe directory.
const maxSocket, longestSocket = 107, "/control_privileged"

// Daemon is a control daemon, running or not: what it is of, and where it is reached.
type Daemon struct {
	Program Program
	// Pipe is its pipe directory and Logs that of its logs: absolute, present.
	Pipe, Logs string
	// GPU is the only one that its servers use; for them and their clients it is device 0.
	GPU sharing.GPUID
	// Shm is the folder that is /dev/shm for it and its servers, and must be for its clients; empty: that of the
	// caller.
	Shm string
	// Volume is a folder that it and its servers see in place of its parent, which they could not enter; empty: none.
	// Only with Shm.
	Volume string
}

// CheckPipe refuses a pipe directory in which the daemon could not bind its sockets. It would start, say nothing, and
// not be found.
func CheckPipe(dir string) error {
	if !filepath.IsAbs(dir) || strings.ContainsAny(dir, "\x00\n") {
		return sharing.Invalid("pipe directory", dir, "take an absolute path", "cannot be used")
	}
	if most := maxSocket - len(longestSocket); len(dir) > most {
		return sharing.Invalid("pipe directory", dir, fmt.Sprintf("take a path of at most %d bytes", most),
			"has %d bytes, too long for the sockets in it", len(dir))
	}
	return nil
}

func (d Daemon) env() []string {
	return []string{"CUDA_MPS_PIPE_DIRECTORY=" + d.Pipe, "CUDA_MPS_LOG_DIRECTORY=" + d.Logs, "CUDA_VISIBLE_DEVICES=" +
		string(d.GPU)}
}

// run executes the program where the daemon's mounts are.
func (d Daemon) run(ctx context.Context, stdin string, args ...string) (answer string, err error) {
	err = d.seeing(func() error {
		answer, err = d.Program.run(ctx, d.env(), stdin, args...)
		return err
	})
	return answer, err
}

// Start starts the daemon in the background, where it outlives the caller. That it was started does not say that it
// answers. Errors: sharing.ErrInvalid (the pipe directory), sharing.ErrUnavailable (it says why; one that runs already
// among them).
func (d Daemon) Start(ctx context.Context) error {
	err := CheckPipe(d.Pipe)
	if err == nil {
		_, err = d.run(ctx, "", "-d")
	}
	if err != nil {
		return fmt.Errorf("start the MPS control daemon of GPU %s: %w", d.GPU, err)
	}
	return nil
}

// ask sends one command. It is sharing.ErrUnavailable when no daemon answers.
func (d Daemon) ask(ctx context.Context, words ...string) (string, error) {
	answer, err := d.run(ctx, strings.Join(words, " ")+"\n")
	if err != nil {
		return "", fmt.Errorf("%s to the MPS control daemon of GPU %s: %w", words[0], d.GPU, err)
	}
	return answer, nil
}

// pids is ask for a list of processes.
func (d Daemon) pids(ctx context.Context, words ...string) ([]int, error) {
	answer, err := d.ask(ctx, words...)
	if err != nil {
		return nil, err
	}
	list, err := parsePIDs(answer)
	if err != nil {
		return nil, fmt.Errorf("%s to the MPS control daemon of GPU %s: %w", words[0], d.GPU, err)
	}
	return list, nil
}

// quiet is ask for a command whose answer tells nothing but a refusal.
func (d Daemon) quiet(ctx context.Context, words ...string) error {
	answer, err := d.ask(ctx, words...)
	if err != nil {
		return err
	}
	if err := carriedOut(answer); err != nil {
		return fmt.Errorf("%s to the MPS control daemon of GPU %s: %w", words[0], d.GPU, err)
	}
	return nil
}

// percent is ask for a command that answers with a share of the threads, which must be want where that is not 0.
func (d Daemon) percent(ctx context.Context, want sharing.Percent, words ...string) (float64, error) {
	answer, err := d.ask(ctx, words...)
	if err != nil {
		return 0, err
	}
	got, err := parsePercent(answer)
	if err == nil && want != 0 && got > float64(want) {
		err = fmt.Errorf("it answers %v instead of %v: %w", got, want, sharing.ErrUnavailable)
	}
	if err != nil {
		return 0, fmt.Errorf("%s to the MPS control daemon of GPU %s: %w", words[0], d.GPU, err)
	}
	return got, nil
}

// Servers returns the pids of the servers that run, ascending. sharing.ErrUnavailable: no daemon answers.
func (d Daemon) Servers(ctx context.Context) ([]int, error) { return d.pids(ctx, "get_server_list") }

// Clients returns the pids of a server's clients, as the daemon sees them, ascending.
func (d Daemon) Clients(ctx context.Context, server int) ([]int, error) {
	return d.pids(ctx, "get_client_list", strconv.Itoa(server))
}

// Status returns the status of a server.
func (d Daemon) Status(ctx context.Context, server int) (Status, error) {
	answer, err := d.ask(ctx, "get_server_status", strconv.Itoa(server))
	if err != nil {
		return "", err
	}
	s, err := parseStatus(answer)
	if err != nil {
		return "", fmt.Errorf("get_server_status to the MPS control daemon of GPU %s: %w", d.GPU, err)
	}
	return s, nil
}

// StartServer starts a server for a user. Success does not say that it serves: look at Servers and Status.
func (d Daemon) StartServer(ctx context.Context, uid uint32) error {
	return d.quiet(ctx, "start_server", "-uid", strconv.FormatUint(uint64(uid), 10))
}

// StopServer ends a server at once, with what its clients hold.
func (d Daemon) StopServer(ctx context.Context, server int) error {
	return d.quiet(ctx, "shutdown_server", strconv.Itoa(server), "-f")
}

// SetDefaultMemory sets the limit of each client of servers that start from now on, rounded down to whole MiB.
func (d Daemon) SetDefaultMemory(ctx context.Context, limit sharing.Bytes) error {
	text, err := amount(limit)
	if err != nil {
		return err
	}
	return d.quiet(ctx, "set_default_device_pinned_mem_limit", "0", text)
}

// SetMemory sets the limit of each client that comes to a server from now on, rounded down to whole MiB.
func (d Daemon) SetMemory(ctx context.Context, server int, limit sharing.Bytes) error {
	text, err := amount(limit)
	if err != nil {
		return err
	}
	return d.quiet(ctx, "set_device_pinned_mem_limit", strconv.Itoa(server), "0", text)
}

// SetDefaultPercent sets the share of the threads of each client of servers that start from now on. The daemon
// repeats it, which is checked.
func (d Daemon) SetDefaultPercent(ctx context.Context, p sharing.Percent) error {
	_, err := d.percent(ctx, p, "set_default_active_thread_percentage", strconv.Itoa(int(p)))
	return err
}

// SetPercent sets the share of the threads of each client that comes to a server from now on, and checks it.
func (d Daemon) SetPercent(ctx context.Context, server int, p sharing.Percent) error {
	_, err := d.percent(ctx, p, "set_active_thread_percentage", strconv.Itoa(server), strconv.Itoa(int(p)))
	return err
}

// DefaultPercent returns the share of the threads of clients of servers to come.
func (d Daemon) DefaultPercent(ctx context.Context) (float64, error) {
	return d.percent(ctx, 0, "get_default_active_thread_percentage")
}

// Quit ends the daemon and its servers; clients get so long to leave, in whole seconds, before they lose what they
// hold.
func (d Daemon) Quit(ctx context.Context, grace time.Duration) error {
	return d.quiet(ctx, "quit", "-t", strconv.Itoa(int(grace/time.Second)))
}

// ClientEnv is the environment that makes a process a client of the daemon behind a pipe directory (as the process sees
// it). It limits the memory and, unless it is 0, the percent of the threads, for each process separately. It names the
// device by its ordinal, which is 0 for every client of a daemon of one GPU. A limit that names an invisible GPU would
// drop all limits. The error is sharing.ErrInvalid when the memory is below one MiB.
func ClientEnv(pipe string, memory sharing.Bytes, percent sharing.Percent) ([]string, error) {
	text, err := amount(memory)
	if err != nil {
		return nil, err
	}
	env := []string{"CUDA_MPS_PIPE_DIRECTORY=" + pipe, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=" + text}
	if percent != 0 {
		env = append(env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="+strconv.Itoa(int(percent)))
	}
	return env, nil
}
