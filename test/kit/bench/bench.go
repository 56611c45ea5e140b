// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench has the tools of the hardware kit's steps: programs, a separate agent, regions of libkerf, and the
// driver, which it never changes.
package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/test/kit/core"
)

// Machine is what the first step found.
type Machine struct {
	UUID      string `json:"uuid"`
	Total     uint64 `json:"total_bytes"`
	Simulated bool   `json:"simulated"`
	// Lacks gives the reason for each need that the machine does not meet.
	Lacks map[core.Need]string `json:"lacks"`
	Facts []core.Fact          `json:"facts"`
}

// Task is the input of a step's process.
type Task struct {
	Step string `json:"step"`
	// Home is the folder of the programs. Work is an own folder with a short path. Raw is for what is recorded.
	Home, Work, Raw string
	Scale           float64
	Machine         Machine
}

// Paths of what a step's process leaves in its Work folder.
const (
	outcomeFile = "outcome.json"
	machineFile = "machine.json"
)

// Bench is one step at work. Its methods may be called by several goroutines.
type Bench struct {
	Task
	// Env is the environment of native programs, which use only the GPU of the machine.
	Env []string

	mu      sync.Mutex
	outcome core.Outcome
	procs   []*Proc
	serial  int
}

// New is a step on a machine. Environ is the environment that the kit was started in.
func New(t Task, environ []string) *Bench {
	env := append([]string{}, environ...)
	if t.Machine.UUID != "" {
		env = append(env, "CUDA_VISIBLE_DEVICES="+t.Machine.UUID)
	}
	return &Bench{Task: t, Env: env}
}

// Fact records a number or a text.
func (b *Bench) Fact(name, format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outcome.Facts = append(b.outcome.Facts, core.Fact{Name: name, Value: fmt.Sprintf(format, args...)})
	b.save()
}

// Add records verdicts.
func (b *Bench) Add(results ...core.Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outcome.Results = append(b.outcome.Results, results...)
	b.save()
}

// save keeps what there is, so that a crash loses nothing. The caller has the lock.
func (b *Bench) save() {
	if data, err := json.Marshal(b.outcome); err == nil {
		_ = atomicfile.Write(filepath.Join(b.Work, outcomeFile), data, 0o644)
	}
}

// Found records the machine, for the steps that follow.
func (b *Bench) Found(m Machine) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.Work, machineFile), data, 0o644)
}

// Outcome reads what a step's process left in its folder, complete or not. An empty outcome is no error.
func Outcome(work string) (o core.Outcome, err error) {
	err = read(filepath.Join(work, outcomeFile), &o)
	return o, err
}

// FoundIn reads what the first step found.
func FoundIn(work string) (m Machine, err error) {
	err = read(filepath.Join(work, machineFile), &m)
	return m, err
}

func read(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// Save keeps raw data under the step's name.
func (b *Bench) Save(name string, data []byte) {
	_ = os.WriteFile(filepath.Join(b.Raw, b.Step+"-"+name), data, 0o644)
}

// SaveJSON keeps a value in the same way.
func (b *Bench) SaveJSON(name string, v any) {
	if data, err := json.MarshalIndent(v, "", " "); err == nil {
		b.Save(name, append(data, '\n'))
	}
}

// Time is how long to do what takes so many seconds in a full run, at least a fifth of a second.
func (b *Bench) Time(seconds float64) time.Duration {
	return max(time.Duration(seconds*b.Scale*float64(time.Second)), 200*time.Millisecond)
}

// Wait is a pause that ends with the context.
func Wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Program is the path of one of the kit's programs.
func (b *Bench) Program(name string) string { return filepath.Join(b.Home, name) }

// folder makes a new folder in the step's folder.
func (b *Bench) folder(name string) (string, error) {
	b.mu.Lock()
	b.serial++
	dir := filepath.Join(b.Work, fmt.Sprintf("%s%d", name, b.serial))
	b.mu.Unlock()
	return dir, os.MkdirAll(dir, 0o755)
}

// Close ends what the step started.
func (b *Bench) Close() {
	b.mu.Lock()
	procs := b.procs
	b.mu.Unlock()
	var all sync.WaitGroup
	for _, p := range procs {
		all.Go(p.End)
	}
	all.Wait()
}

// settingsFile is what the step settings leaves.
const settingsFile = "settings.json"

// Set keeps settings for the comparison.
func (b *Bench) Set(s core.Settings) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.Work, settingsFile), data, 0o644)
}

// SetIn reads them.
func SetIn(work string) (s core.Settings, err error) {
	err = read(filepath.Join(work, settingsFile), &s)
	return s, err
}
