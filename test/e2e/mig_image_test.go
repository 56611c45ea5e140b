// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// imageWithInstance runs a standalone container on a MIG instance that is created for it. The node has MIG GPUs with so
// many instances of pods. The container sees only its own instance, at its size, with the two device nodes of its
// capabilities. After it has ended, the agent destroys the instance when it was kept for long enough. kerf run starts
// images by containerd only.
func (e *testCase) imageWithInstance(others int) {
	e.Helper()
	if e.node.env["E2E_RUNTIME"] == "crio" {
		return
	}
	ctr := e.node.env["BIN"] + "/ctr"
	if r := e.node.in(ctr, "-n", "kerf", "images", "import", "--local", e.node.env["E2E_DIR"]+
		"/img/gpuload.tar"); r.err != nil {
		e.Fatal(r)
	}
	dir := e.TempDir() // the node sees this machine's /tmp
	run := func(profile, script string) result {
		return e.kerf("run", "--name", "by-hand", "--mig", profile, "--image", loadImage, "--pull", "never", "-v",
			dir+":/at", "--", "/bin/sh", "-c", script)
	}
	before, _, _, err := e.bothSides()
	if err != nil {
		e.Fatal(err)
	}
	ended := make(chan result, 1)
	go func() {
		ended <- run("1g.10gb",
			look2+
				`; echo level $KERF_LEVEL device $CUDA_VISIBLE_DEVICES; touch /at/looked; until [ -e /at/go ]; do sleep 0.05; done; exit 7`)
	}()
	eventually(e, "a container that has looked around", func() error {
		select {
		case r := <-ended:
			return final("it has ended: %v", r)
		default:
		}
		_, err := os.Stat(filepath.Join(dir, "looked"))
		return err
	})
	var device string
	gpus, err := e.cutGPUs()
	if err != nil {
		e.Fatal(err)
	}
	for _, g := range gpus {
		for _, in := range g.MIGState.Instances {
			if strings.Contains(in.Holder, "by-hand") && in.Profile == "1g.10gb" {
				device = in.UUID
			}
		}
	}
	if now, _, _, err := e.bothSides(); err != nil || device == "" || !slices.Contains(now, device) ||
		slices.Contains(before, device) || len(now) != len(before)+1 {
		e.Errorf("the driver had %q, and has %q (%v); the container has %q", before, now, err, device)
	}
	var held grant
	for _, g := range e.picture().Grants {
		if g.Name == "by-hand" {
			held = g
		}
	}
	if held.Level != "hardware" || len(held.Shares) != 1 || held.Shares[0].Profile != "1g.10gb" ||
		len(held.PIDs) == 0 {
		e.Errorf("its grant: %+v", held)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		e.Fatal(err)
	}
	r := <-ended
	if exitCode(r) != 7 {
		e.Errorf("a program that ends with 7: %v", r)
	}
	var loads []loaded
	for line := range strings.Lines(r.out) {
		if strings.HasPrefix(line, "{") {
			loads = append(loads, decode[loaded](e.T, line))
		}
	}
	if len(loads) != 3 || loads[0].Error != nil || loads[0].Total == nil || *loads[0].Total < 9*gib ||
		*loads[0].Total > 11*gib || loads[1].Error == nil || loads[2].Error == nil {
		e.Errorf("what it saw: its own instance, a second device, more than it has: %v", loads)
	}
	if n := strings.Count(r.out, "cap nvidia-cap"); n != 2 || !strings.Contains(r.out, "level hardware device "+device+
		"\n") {
		e.Errorf("%d capability nodes, and %s: %s", n, device, r.out)
	}
	eventually(e, "end of its instance",
		func() error { return errors.Join(e.noneNamed("by-hand"), e.cutAsBooked(others)) })
	if r := e.node.in(ctr, "-n", "kerf", "containers", "ls", "-q"); r.err != nil || strings.TrimSpace(r.out) != "" {
		e.Errorf("containers that are left: %v", r)
	}
	if r := run("9g.90gb", "true"); exitCode(r) != 125 || !strings.Contains(r.errOut, "1g.10gb") {
		e.Errorf("a profile that is none: %v", r)
	}
}
