// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// machine is the node that the demo runs on: a driver, simulated or real, and the agent.
type machine struct {
	bin, sim, dir string // sim is empty with a real driver
	env           []string
	agent         *exec.Cmd
	logs          *os.File
	loads         []*load
}

// sharingConfig leaves the enforcement of shares to the default; a real GPU is to keep the MIG mode that it has.
const sharingConfig = `apiVersion: kerf.dev/v1alpha2
kind: SharingConfig
spec:
  pools:
  - {name: default, autoMIGMode: false}
`

// newMachine has this machine's driver where driver is empty, else a simulated one of that release.
func newMachine(ctx context.Context, bin, driver string) (*machine, error) {
	root, err := os.MkdirTemp("", "kerf-demo")
	if err != nil {
		return nil, err
	}
	m := &machine{bin: bin, dir: filepath.Join(root, "agent"), env: os.Environ()}
	if m.logs, err = os.Create(filepath.Join(root, "agent.log")); err != nil {
		return nil, err
	}
	if err := os.WriteFile(m.config(), []byte(sharingConfig), 0o600); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	if driver == "" {
		say("This machine has an NVIDIA driver: the demo uses it.")
		if err := m.startAgent(); err != nil {
			return nil, err
		}
		return m, nil
	}
	m.sim = filepath.Join(root, "gpu")
	say("No NVIDIA driver here: this demo uses a simulated node (8 x H100 80GB, driver %s).", driver)
	if _, err := m.command(ctx, "gpusim", "start", "--machine", "h100x8", "--driver", driver, "--dir",
		m.sim); err != nil {
		m.close()
		return nil, err
	}
	// The exports that gpusim prints are for a shell; a shell evaluates them.
	out, err := exec.CommandContext(ctx, "sh", "-c", `eval "$("$0" env --dir "$1")" && env -0`,
		filepath.Join(bin, "gpusim"), m.sim).Output()
	if err != nil {
		m.close()
		return nil, fmt.Errorf("environment of the simulated driver: %w", err)
	}
	m.env = strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	if err := m.startAgent(); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *machine) config() string { return filepath.Join(filepath.Dir(m.dir), "sharing.yaml") }

func (m *machine) startAgent() error {
	m.agent = exec.Command(filepath.Join(m.bin, "kerf-agent"), "--run-dir", m.dir, "--config", m.config())
	m.agent.Env, m.agent.Stdout, m.agent.Stderr = m.env, m.logs, m.logs
	if err := m.agent.Start(); err != nil {
		return fmt.Errorf("start kerf-agent: %w", err)
	}
	return nil
}

// kill ends the agent as a crash would.
func (m *machine) kill() {
	_ = m.agent.Process.Kill()
	_ = m.agent.Wait()
	m.agent = nil
}

// close ends everything that was started and removes its files.
func (m *machine) close() {
	for _, l := range m.loads {
		l.end()
	}
	if m.agent != nil {
		_ = m.agent.Process.Signal(syscall.SIGTERM)
		_ = m.agent.Wait()
	}
	if m.sim != "" {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := m.command(ctx, "gpusim", "stop", "--dir", m.sim); err != nil {
			say("%v", err)
		}
	}
	_ = m.logs.Close()
	_ = os.RemoveAll(filepath.Dir(m.dir))
}

// tail shows the end of the agent's log, for a demo that went wrong.
func (m *machine) tail() {
	data, err := os.ReadFile(m.logs.Name())
	if err != nil {
		return
	}
	lines := bytes.Split(data, []byte("\n"))
	fmt.Fprintf(os.Stderr, "the agent's last words:\n%s\n", bytes.Join(lines[max(0, len(lines)-15):], []byte("\n")))
}

// command runs one of our programs to its end and returns what it printed.
func (m *machine) command(ctx context.Context, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, filepath.Join(m.bin, name), args...)
	c.Env = m.env
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), err
}

// kerf runs the CLI on the demo's agent.
func (m *machine) kerf(ctx context.Context, args ...string) (string, error) {
	return m.command(ctx, "kerf", append([]string{"--run-dir", m.dir}, args...)...)
}

// status is the part of kerf status -o json that the demo reads.
type status struct {
	GPUs []struct {
		UUID   string
		Index  int
		Model  string
		Levels []string
		Memory uint64 `json:"capacityBytes"`
		Kept   uint64 `json:"reservedBytes"`
	}
	Grants   []grant
	Warnings []string
}

type grant struct {
	ID, Name, Level, Cgroup string
	GPUs                    []string
	PIDs                    []int
	Memory                  uint64  `json:"memoryBytes"`
	Used                    *uint64 `json:"usedBytes"`
}

func (m *machine) status(ctx context.Context) (status, error) {
	out, err := m.kerf(ctx, "status", "-o", "json")
	if err != nil {
		return status{}, err
	}
	var s status
	err = json.Unmarshal([]byte(out), &s)
	return s, err
}

func (s status) grant(name string) (grant, bool) {
	for _, g := range s.Grants {
		if g.Name == name {
			return g, true
		}
	}
	return grant{}, false
}

// load is one kerf run of gpuload.
type load struct {
	name string
	// file is what kerf run says of the grant.
	file string
	cmd  *exec.Cmd
	// done is closed when it has ended; code is then its exit status.
	done   chan struct{}
	code   int
	errs   bytes.Buffer
	report report
}

// report is the line that gpuload prints.
type report struct {
	Allocated uint64 `json:"allocated_bytes"`
	Error     string
	Total     uint64 `json:"total_bytes"`
}

// run starts gpuload under kerf run and waits for its report, or for its end if it comes without one.
func (m *machine) run(ctx context.Context, name string, ask []string, loadArgs ...string) (*load, error) {
	file := filepath.Join(filepath.Dir(m.dir), name+".json")
	args := append([]string{"--run-dir", m.dir, "run", "-q", "--name", name, "--status-file", file}, ask...)
	args = append(append(args, "--", filepath.Join(m.bin, "gpuload"), "--json"), loadArgs...)
	l := &load{name: name, file: file, cmd: exec.Command(filepath.Join(m.bin, "kerf"), args...),
		done: make(chan struct{})}
	l.cmd.Env, l.cmd.Stderr = m.env, &l.errs
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := l.cmd.Start(); err != nil {
		return nil, fmt.Errorf("kerf run --name %s: %w", name, err)
	}
	m.loads = append(m.loads, l)
	first := make(chan error, 1)
	go func() {
		defer close(l.done)
		first <- json.NewDecoder(out).Decode(&l.report)
		var exit *exec.ExitError
		if err := l.cmd.Wait(); errors.As(err, &exit) {
			l.code = exit.ExitCode()
			if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
				l.code = 128 + int(s.Signal())
			}
		}
	}()
	select {
	case <-first:
	case <-ctx.Done():
		return l, fmt.Errorf("kerf run --name %s: %w", name, ctx.Err())
	}
	return l, nil
}

func (l *load) running() bool {
	select {
	case <-l.done:
		return false
	default:
		return true
	}
}

// wait returns the exit status.
func (l *load) wait(ctx context.Context) (int, error) {
	select {
	case <-l.done:
		return l.code, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for %s: %w", l.name, ctx.Err())
	}
}

func (l *load) end() {
	if l.running() {
		_ = l.cmd.Process.Signal(syscall.SIGTERM)
	}
	<-l.done
}
