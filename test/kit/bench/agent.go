// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Agent is a kerf-agent of a step's own: its folders are the step's, and it changes no setting of a GPU.
type Agent struct {
	b    *Bench
	dir  string
	proc *Proc
	// grants counts the grants that were asked for.
	grants int
}

// patience is how long an agent may take to be ready.
const patience = 20 * time.Second

// Config is the SharingConfig of an agent whose pool has these further fields.
func Config(pool string) string {
	return "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools:\n  - {name: default, autoMIGMode: " +
		"false, " + pool + "}\n"
}

// StartAgent starts an agent whose pool has these further fields, such as "backends: [driver, reactive]".
func (b *Bench) StartAgent(ctx context.Context, pool string) (*Agent, error) {
	dir, err := b.folder("a")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(Config(pool)), 0o644); err != nil {
		return nil, err
	}
	a := &Agent{b: b, dir: dir}
	err = a.Start(ctx)
	return a, err
}

// Start starts the agent's process, again after a Kill, and waits until it is ready.
func (a *Agent) Start(ctx context.Context) error {
	p, err := a.b.Start(Way{env: a.b.Env}, a.b.Program("kerf-agent"), "--run-dir", a.dir+"/run", "--state-dir",
		a.dir+"/state", "--lock-dir", a.dir+"/locks",
		"--cdi-dir", a.dir+"/cdi", "--config", a.dir+"/config.yaml", "--gpu-settings", "read-only", "--library",
		a.b.Program("libkerf.so"))
	if err != nil {
		return err
	}
	a.proc = p
	ready := make(chan error, 1)
	go func() {
		out, code, err := a.Kerf(ctx, "status", "--wait", "ready", "--timeout", patience.String())
		if err == nil && code != 0 {
			err = fmt.Errorf("%s", strings.TrimSpace(out))
		}
		ready <- err
	}()
	select {
	case err = <-ready:
	case <-p.Ended():
		err = fmt.Errorf("it ended with status %d", p.code)
	}
	if err != nil {
		return fmt.Errorf("start kerf-agent: %w; its log ends with: %s", err, lastLine(p.Says()))
	}
	return nil
}

func lastLine(text string) string { return text[strings.LastIndexByte(text, '\n')+1:] }

// Kerf runs the command line on this agent.
func (a *Agent) Kerf(ctx context.Context, args ...string) (string, int, error) {
	return a.b.Output(ctx, Way{env: a.b.Env}, a.b.Program("kerf"), append([]string{"--run-dir", a.dir + "/run"},
		args...)...)
}

// Dir is the folder of its sockets.
func (a *Agent) Dir() string { return a.dir + "/run" }

// Grant starts programs in a grant of this machine's GPU. Flags are those of kerf run.
func (a *Agent) Grant(name string, flags ...string) Way {
	a.grants++ // a name is free again only when the grant before has ended
	argv := []string{a.b.Program("kerf"), "--run-dir", a.dir + "/run", "run", "-q", "--name",
		fmt.Sprintf("%s-%d", name, a.grants), "--gpu-uuid", a.b.Machine.UUID}
	return Way{Name: name, argv: append(append(argv, flags...), "--"), env: a.b.environ()}
}

// environ is without the choice of a GPU, which is the agent's.
func (b *Bench) environ() []string {
	var out []string
	for _, e := range b.Env {
		if !strings.HasPrefix(e, "CUDA_VISIBLE_DEVICES=") {
			out = append(out, e)
		}
	}
	return out
}

// Status is the part of kerf status that steps read.
type Status struct {
	GPUs []struct {
		UUID   string
		Levels []string
	}
	Grants []struct {
		Name, Level, Cgroup string
		Memory              uint64  `json:"memoryBytes"`
		Used                *uint64 `json:"usedBytes"`
		PIDs                []int
	}
	Warnings []string
}

// Status asks the agent.
func (a *Agent) Status(ctx context.Context) (s Status, err error) {
	out, code, err := a.Kerf(ctx, "status", "-o", "json")
	if err != nil || code != 0 {
		return s, fmt.Errorf("kerf status ended with %d: %s (%w)", code, strings.TrimSpace(out), err)
	}
	err = json.Unmarshal([]byte(out), &s)
	return s, err
}

// Levels are those that shares of the machine's GPU can have here.
func (a *Agent) Levels(ctx context.Context) ([]string, error) {
	s, err := a.Status(ctx)
	for _, g := range s.GPUs {
		if g.UUID == a.b.Machine.UUID {
			return g.Levels, err
		}
	}
	return nil, err
}

// Idle waits until the agent has no grant.
func (a *Agent) Idle(ctx context.Context) error {
	out, code, err := a.Kerf(ctx, "status", "--wait", "grants=0", "--timeout", "20s")
	if err == nil && code != 0 {
		err = fmt.Errorf("%s", strings.TrimSpace(out))
	}
	return err
}

// Kill ends the agent as a crash would.
func (a *Agent) Kill() {
	a.proc.Signal(syscall.SIGKILL)
	<-a.proc.Ended()
}

// Stop ends the agent in the usual way.
func (a *Agent) Stop() { a.proc.End() }

// Log is the end of the agent's log.
func (a *Agent) Log() string { return a.proc.Says() }
