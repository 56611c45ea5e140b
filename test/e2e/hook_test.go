// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// guardSpec is where the node's container runtime finds the hook.
const guardSpec = "/etc/cdi/kerf.dev-guard.json"

// hookPath is the hook that containers get now.
func (e *testCase) hookPath() string {
	e.Helper()
	r := e.node.in("cat", guardSpec)
	var spec struct {
		Devices []struct {
			ContainerEdits struct {
				Hooks []struct{ Path string }
			}
		}
	}
	if err := json.Unmarshal([]byte(r.out), &spec); err != nil || len(spec.Devices) != 1 || len(spec.Devices[0].ContainerEdits.Hooks) != 1 {
		e.Fatalf("%s: %v, %v", guardSpec, r, err)
	}
	return spec.Devices[0].ContainerEdits.Hooks[0].Path
}

// otherHook builds kerf-hook as of another version, with the messages' version as given.
func (e *testCase) otherHook(version, messages string) string {
	e.Helper()
	frame := filepath.Join(e.node.env["REPO"], "hooks/oci/wire/frame.go")
	source, err := os.ReadFile(frame)
	if err != nil {
		e.Fatal(err)
	}
	const ours = "\tVersion = 1\n"
	if !strings.Contains(string(source), ours) {
		e.Fatalf("%s does not say %q", frame, ours)
	}
	dir := e.node.env["E2E_DIR"] + "/node/hooks/" + version // a folder that the node sees, too
	changed, overlay, out := filepath.Join(dir, "frame.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "kerf-hook")
	text, _ := json.Marshal(map[string]map[string]string{"Replace": {frame: changed}}) // strings alone
	for file, data := range map[string]string{changed: strings.Replace(string(source), ours, "\tVersion = "+messages+"\n", 1), overlay: string(text)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			e.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(data), 0o644); err != nil {
			e.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-overlay", overlay, "-ldflags", "-X main.version="+version, "-o", out, "./cmd/kerf-hook")
	build.Dir, build.Env = e.node.env["REPO"], append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		e.Fatalf("build kerf-hook: %v\n%s", err, text)
	}
	return out
}

// state is what an OCI runtime gives a hook.
func state(id, status string, pid int) string {
	return fmt.Sprintf(`{"ociVersion": "1.3.0", "id": %q, "status": %q, "pid": %d, "bundle": "/", "annotations": {"kerf.dev/grant": "forged"}}`, id, status, pid)
}

// The hook, run by hand on the node, lets nothing pass but what is armed: it ends with status 1 and says why in
// one line. It can be of another version than the agent, as long as both speak the same messages.
func TestHookByHand(t *testing.T) {
	e := beginWithAgent(t)
	p, plain := e.create(one("share", gibs(5), hold)), e.create(one("plain", nil, hold))
	p.running()
	plain.running()
	before := e.holdings(p)
	g := e.grantOf(p, "main")
	if len(g.PIDs) == 0 {
		t.Fatalf("the grant has no processes: %+v", g)
	}
	id, pid, hook := p.id("main"), g.PIDs[0], e.hookPath()
	stranger := plain.id("main")
	strangerPID := e.pidOf(stranger)
	tests := map[string]struct {
		hook, state string
		uid         string // root where empty
		args        []string
		want        []string // words of the one line; none where it passes
	}{
		"armed already":       {state: state(id, "creating", pid)},
		"its own amount":      {state: state(id, "creating", pid), args: []string{"--ask", "gpu-memory-gib:5"}},
		"another version":     {hook: e.otherHook("v0.0.0-e2e", "1"), state: state(id, "creating", pid)},
		"other messages":      {hook: e.otherHook("v9.0.0-e2e", "2"), state: state(id, "creating", pid), want: []string{"version 1", "version 2"}},
		"another amount":      {state: state(id, "creating", pid), args: []string{"--ask", "gpu-memory-gib:6"}, want: []string{`"gpu-memory-gib:6"`, "gpu-memory-gib:5"}},
		"another resource":    {state: state(id, "creating", pid), args: []string{"--ask", "gpu-percent:5"}, want: []string{`"gpu-percent:5"`}},
		"running":             {state: state(id, "running", pid), want: []string{`status "running"`}},
		"stopped":             {state: state(id, "stopped", 0), want: []string{`status "stopped"`}},
		"no state":            {state: "", want: []string{"OCI state cannot be used"}},
		"another's process":   {state: state(id, "creating", strangerPID), want: []string{"is not the container's"}},
		"no such process":     {state: state(id, "creating", 4194000), want: []string{"no such process"}},
		"init of the node":    {state: state(id, "creating", 1), want: []string{"pid 1"}},
		"without a grant":     {state: state(stranger, "creating", strangerPID), want: []string{"made without its grant"}},
		"another's container": {state: state(stranger, "creating", pid), want: []string{"is not the container's"}},
		"unknown container":   {state: state(strings.Repeat("0", 64), "creating", pid), want: []string{"is not the container's"}},
		"no grant of that id": {state: state(stranger, "creating", strangerPID), args: []string{"--grant", g.ID}, want: []string{"another container has it"}},
		"no root":             {state: state(id, "creating", pid), uid: "65534", want: []string{"permission denied"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.hook == "" {
				tc.hook = hook
			}
			enter := []string{"-t", e.node.env["NODE_INIT"], "-m", "-u", "-i", "-n", "-p", "-C"}
			if tc.uid != "" {
				enter = append(enter, "-S", tc.uid, "-G", tc.uid)
			}
			args := append(append(enter, "--", tc.hook, "arm", "--socket", "/run/kerf/hook.sock", "--wait", "5s"), tc.args...)
			r := commandWith(tc.state, "nsenter", args...)
			if len(tc.want) == 0 {
				if r.err != nil || r.out+r.errOut != "" {
					t.Errorf("%v", r)
				}
				return
			}
			if r.err == nil || r.err.Error() != "exit status 1" || r.out != "" || strings.Count(r.errOut, "\n") != 1 || !strings.HasPrefix(r.errOut, "kerf-hook: ") {
				t.Errorf("%v", r)
			}
			for _, w := range tc.want {
				if !strings.Contains(r.errOut, w) {
					t.Errorf("it does not say %q: %s", w, r.errOut)
				}
			}
		})
	}
	e.wantSame(before, p)
	e.wantHeld(p, "main", share(5*gib, 0))
	if caps := plain.caps("main"); len(caps) > 0 {
		t.Errorf("the driver holds %v for a container without a share", caps)
	}
}

// pidOf is the first process of a container, as the node numbers it.
func (e *testCase) pidOf(containerID string) int {
	e.Helper()
	r := e.node.in(e.node.env["BIN"]+"/ctr", "-n", "k8s.io", "tasks", "ls")
	for line := range strings.Lines(r.out) {
		var id, status string
		var pid int
		if n, _ := fmt.Sscan(line, &id, &pid, &status); n == 3 && id == containerID {
			return pid
		}
	}
	e.Fatalf("containerd has no task of container %s: %v", containerID, r)
	return 0
}
