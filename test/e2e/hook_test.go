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

// messages is the line of the source that says which version of the messages hook and agent speak.
const messages = "\tVersion = 1\n"

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
	if err := json.Unmarshal([]byte(r.out), &spec); err != nil || len(spec.Devices) != 1 ||
		len(spec.Devices[0].ContainerEdits.Hooks) != 1 {
		e.Fatalf("%s: %v, %v", guardSpec, r, err)
	}
	return spec.Devices[0].ContainerEdits.Hooks[0].Path
}

// otherHook builds kerf-hook as of another version, with the messages' version as given.
func (e *testCase) otherHook(version, speaks string) string {
	e.Helper()
	frame := filepath.Join(e.node.env["REPO"], "hooks/oci/wire/frame.go")
	source, err := os.ReadFile(frame)
	if err != nil {
		e.Fatal(err)
	}
	if !strings.Contains(string(source), messages) {
		e.Fatalf("%s does not say %q", frame, messages)
	}
	dir := e.node.env["E2E_DIR"] + "/node/hooks/" + version // a folder that the node sees, too
	changed, overlay := filepath.Join(dir, "frame.go"), filepath.Join(dir, "overlay.json")
	text, _ := json.Marshal(map[string]map[string]string{"Replace": {frame: changed}}) // strings alone
	for file, data := range map[string]string{changed: strings.Replace(string(source), messages, "\tVersion = "+speaks+
		"\n", 1), overlay: string(text)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			e.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(data), 0o644); err != nil {
			e.Fatal(err)
		}
	}
	return e.buildHook(e.node.env["REPO"], version, "-overlay", overlay)
}

// noHistory stands for a program that cannot be built.
const noHistory = "none"

// firstHook is the source of the first hook with today's messages, from the history. It is empty without the history:
// in a copy of the source alone, or a shallow clone.
func (e *testCase) firstHook() string {
	e.Helper()
	git := func(args ...string) (string, error) {
		r := command("git", append([]string{"-C", e.node.env["REPO"]}, args...)...)
		return strings.TrimSpace(r.out), r.err
	}
	if shallow, err := git("rev-parse", "--is-shallow-repository"); err != nil || shallow != "false" {
		return ""
	}
	commits, err := git("log", "--format=%H", "-S"+strings.TrimSpace(messages), "--", "hooks/oci/wire/frame.go")
	if err != nil || commits == "" {
		e.Fatalf("no commit brought %q: %v", strings.TrimSpace(messages), err)
	}
	all := strings.Fields(commits)
	dir := e.node.env["E2E_DIR"] + "/node/hooks/first" // a folder that the node sees, too
	if out, err := exec.Command("sh", "-ec",
		`rm -rf "$2" && mkdir -p "$2" && git -C "$1" archive "$3" | tar -x -C "$2"`, "sh",
		e.node.env["REPO"], dir, all[len(all)-1]).CombinedOutput(); err != nil {
		e.Fatalf("take the first hook out of the history: %v\n%s", err, out)
	}
	return dir
}

// buildHook builds the hook of a source as of a version.
func (e *testCase) buildHook(source, version string, flags ...string) string {
	e.Helper()
	out := filepath.Join(e.node.env["E2E_DIR"], "node/hooks", version, "kerf-hook")
	args := append(append([]string{"build", "-buildvcs=false", "-trimpath"}, flags...), "-ldflags", "-X main.version="+
		version, "-o", out, "./cmd/kerf-hook")
	build := exec.Command("go", args...)
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		e.Fatalf("build kerf-hook: %v\n%s", err, text)
	}
	return out
}

// state is what an OCI runtime gives a hook.
func state(id, status string, pid int) string {
	return fmt.Sprintf(
		`{"ociVersion": "1.3.0", "id": %q, "status": %q, "pid": %d, "bundle": "/", "annotations": {"kerf.dev/grant": "forged"}}`, id, status, pid)
}

// The hook, run by hand on the node, lets only an activated container pass: otherwise it ends with status 1 and says
// why in one line. Its version may differ from the agent's, as long as both use the same messages. The first such hook
// works, too.
func TestHookByHand(t *testing.T) {
	e := beginWithAgent(t)
	p, plain := e.create(one("share", gibs(5), hold)), e.create(one("plain", nil, hold))
	p.running()
	plain.running()
	before := e.heldBy(p)
	g := e.grantOf(p, "main")
	if len(g.PIDs) == 0 {
		t.Fatalf("the grant has no processes: %+v", g)
	}
	id, pid, hook := p.id("main"), g.PIDs[0], e.hookPath()
	stranger, first := plain.id("main"), noHistory
	if dir := e.firstHook(); dir != "" {
		first = e.buildHook(dir, "v0.0.0-first")
	}
	strangerPID := e.pidOf(stranger)
	tests := map[string]struct {
		hook, state string
		uid         string // root where empty
		args        []string
		want        []string // words of the one line; none where it passes
	}{
		"active already":  {state: state(id, "creating", pid)},
		"its own amount":  {state: state(id, "creating", pid), args: []string{"--request", "gpu-memory-gib:5"}},
		"another version": {hook: e.otherHook("v0.0.0-e2e", "1"), state: state(id, "creating", pid)},
		"the first hook": {hook: first, state: state(id, "creating", pid),
			args: []string{"--ask", "gpu-memory-gib:5"}},
		"the first, refused": {hook: first, state: state(id, "creating", pid),
			args: []string{"--ask", "gpu-memory-gib:6"}, want: []string{`"gpu-memory-gib:6"`, "gpu-memory-gib:5"}},
		"other messages": {hook: e.otherHook("v9.0.0-e2e", "2"), state: state(id, "creating", pid),
			want: []string{"version 1", "version 2"}},
		"another amount": {state: state(id, "creating", pid), args: []string{"--request", "gpu-memory-gib:6"},
			want: []string{`"gpu-memory-gib:6"`, "gpu-memory-gib:5"}},
		"another resource": {state: state(id, "creating", pid), args: []string{"--request", "gpu-percent:5"},
			want: []string{`"gpu-percent:5"`}},
		"running":           {state: state(id, "running", pid), want: []string{`status "running"`}},
		"stopped":           {state: state(id, "stopped", 0), want: []string{`status "stopped"`}},
		"no state":          {state: "", want: []string{"OCI state cannot be used"}},
		"another's process": {state: state(id, "creating", strangerPID), want: []string{"is not the container's"}},
		"no such process":   {state: state(id, "creating", 4194000), want: []string{"no such process"}},
		"init of the node":  {state: state(id, "creating", 1), want: []string{"pid 1"}},
		"without a grant": {state: state(stranger, "creating", strangerPID),
			want: []string{"made without its grant"}},
		"another's container": {state: state(stranger, "creating", pid), want: []string{"is not the container's"}},
		"unknown container": {state: state(strings.Repeat("0", 64), "creating", pid),
			want: []string{"is not the container's"}},
		"no grant of that id": {state: state(stranger, "creating", strangerPID), args: []string{"--grant", g.ID},
			want: []string{"another container has it"}},
		"no root": {state: state(id, "creating", pid), uid: "65534", want: []string{"permission denied"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.hook == "" {
				tc.hook = hook
			}
			if tc.hook == noHistory {
				t.Skip("the history of the source is not here, or not whole: the first hook cannot be built")
			}
			enter := []string{"-t", e.node.env["NODE_INIT"], "-m", "-u", "-i", "-n", "-p", "-C"}
			if tc.uid != "" {
				enter = append(enter, "-S", tc.uid, "-G", tc.uid)
			}
			verb := "activate"
			if tc.hook == first {
				verb = "arm" // its name in that version
			}
			args := append(append(enter, "--", tc.hook, verb, "--socket", "/run/kerf/hook.sock", "--wait", "5s"),
				tc.args...)
			r := commandWith(tc.state, "nsenter", args...)
			if len(tc.want) == 0 {
				if r.err != nil || r.out+r.errOut != "" {
					t.Errorf("%v", r)
				}
				return
			}
			if r.err == nil || r.err.Error() != "exit status 1" || r.out != "" || strings.Count(r.errOut, "\n") != 1 ||
				!strings.HasPrefix(r.errOut, "kerf-hook: ") {
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
