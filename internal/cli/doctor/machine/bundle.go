// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/cli/doctor/bundle"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
)

const (
	// callTimeout bounds each call to the agent and to journalctl.
	callTimeout = 30 * time.Second
	// stateDir is the directory of what outlives a reboot, if the agent has a separate one.
	stateDir = "/var/lib/kerf/state"
	// logLines is how much of a service's journal is read.
	logLines = "5000"
)

// addTo adds what this machine tells of Kerf: the checks, the agent's state, config and metrics, its checkpoint, and
// the journal of its services. It reads no environment of a process, and no audit log.
func addTo(ctx context.Context, a *command.App, socket string, to *bundle.Archive) {
	r := examine(ctx, a, socket)
	var text bytes.Buffer
	err := writeReport(&text, r, false)
	to.Text("doctor.txt", text.Bytes(), err)
	to.JSON("doctor.json", r, nil)
	addAgent(ctx, a, to)
	for _, dir := range []string{a.Dir, stateDir} {
		for name, path := range map[string]string{"checkpoint.json": "record.json", "cordons.json": "cordons.json",
			"gpu-settings.json": "gpu-rules.json", "config.yaml": "config.last-good.yaml"} {
			addFile(to, name, filepath.Join(dir, path))
		}
	}
	addFile(to, "driver.txt", "/proc/driver/nvidia/version")
	addFile(to, "kernel.txt", "/proc/version")
	for _, unit := range []string{"kerf-agent", "kerf-monitor"} {
		addJournal(ctx, to, unit)
	}
}

// addAgent adds what the agent answers.
func addAgent(ctx context.Context, a *command.App, to *bundle.Archive) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client, err := nodeclient.New(a.Dir)
	if err != nil {
		to.Text("status.json", nil, err)
		return
	}
	defer func() { _ = client.Close() }()
	p, err := client.Node(ctx)
	var status []byte
	if err == nil {
		status, err = protojson.Marshal(p)
	}
	to.JSON("status.json", json.RawMessage(status), err)
	var metrics bytes.Buffer
	err = nodeclient.Metrics(ctx, a.Dir, &metrics)
	to.Text("metrics.txt", metrics.Bytes(), err)
}

// addFile adds a file that is there.
func addFile(to *bundle.Archive, name, path string) {
	text, err := os.ReadFile(path)
	switch {
	case os.IsNotExist(err):
	case err == nil && json.Valid(text):
		to.JSON(name, json.RawMessage(text), nil)
	default:
		to.Text(name, text, err)
	}
}

// addJournal adds the end of a service's log, where systemd keeps it.
func addJournal(ctx context.Context, to *bundle.Archive, unit string) {
	program, err := exec.LookPath("journalctl")
	if err != nil {
		return // this machine has no journal
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, program, "--unit", unit, "--lines", logLines, "--no-pager", "--output", "short-iso")
	text, err := c.Output()
	if err != nil {
		err = fmt.Errorf("read the journal: %w", err)
	}
	to.Text("logs/"+unit+".log", text, err)
}
