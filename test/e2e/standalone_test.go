// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// kerf runs the command on the node.
func (e *testCase) kerf(args ...string) result {
	return e.node.in(append([]string{e.node.kerf()}, args...)...)
}

// exitCode is a command's exit status, -1 if it has none.
func exitCode(r result) int {
	if exit, ok := errors.AsType[*exec.ExitError](r.err); ok {
		return exit.ExitCode()
	}
	if r.err != nil {
		return -1
	}
	return 0
}

// noneNamed is the error while the agent shows a grant of that name.
func (e *testCase) noneNamed(name string) error {
	s, err := e.status()
	if err != nil {
		return err
	}
	for _, g := range s.Grants {
		if g.Name == name {
			return fmt.Errorf("%+v is still there", g)
		}
	}
	return nil
}

// loadOf reads what gpuload printed on a separate line.
func (e *testCase) loadOf(r result) loaded {
	e.Helper()
	var l loaded
	if err := json.Unmarshal([]byte(r.out), &l); err != nil {
		e.Fatalf("gpuload has not printed its result: %v", r)
	}
	return l
}

// A command in a container that is no pod's gets its share by the same hook, and leaves nothing.
func TestImageWithoutPod(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	ctr := e.node.env["BIN"] + "/ctr"
	if r := e.node.in(ctr, "-n", "kerf", "images", "import", "--local", e.node.env["E2E_DIR"]+
		"/img/gpuload.tar"); r.err != nil {
		t.Fatal(r)
	}
	run := func(rest ...string) result {
		return e.kerf(append([]string{"run", "--name", "by-hand", "--memory", "4GiB", "--image", "kerf.test/gpuload:1",
			"--pull", "never", "--"}, rest...)...)
	}
	r := run("gpuload", "--json", "--alloc", "3GiB")
	if l := e.loadOf(r); r.err != nil || l.Error != nil || l.Total == nil || *l.Total != 4*gib {
		t.Errorf("below its cap: %v", r)
	}
	if l := e.loadOf(run("gpuload", "--json", "--alloc", "5GiB")); l.Error == nil {
		t.Errorf("past its cap: %v", l)
	}
	if l := e.loadOf(run("gpuload", "--json", "--gpu", "1")); l.Error == nil {
		t.Errorf("on another GPU: %v", l)
	}
	if r := run("/bin/sh", "-c", "exit 7"); exitCode(r) != 7 {
		t.Errorf("a program that ends with 7: %v", r)
	}
	if r := run("no-such-program"); exitCode(r) != 127 {
		t.Errorf("a program that is not in the image: %v", r)
	}
	eventually(e, "end of the grant", func() error { return e.noneNamed("by-hand") })
	if r := e.node.in(ctr, "-n", "kerf", "containers", "ls", "-q"); r.err != nil || strings.TrimSpace(r.out) != "" {
		t.Errorf("containers that are left: %v", r)
	}
}

// A bundle for runc gets its share, once; a second start of the same bundle is refused.
func TestBundleWithoutPod(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	bundle := e.node.env["E2E_DIR"] + "/node/bundle" // a folder that the node sees, too
	e.Cleanup(func() {
		if err := os.RemoveAll(bundle); err != nil {
			e.Error(err)
		}
	})
	rootfs := filepath.Join(bundle, "rootfs")
	if err := os.MkdirAll(rootfs, 0o755); err != nil {
		t.Fatal(err)
	}
	unpack := exec.CommandContext(t.Context(), "sh", "-c", `tar -xOf "$1" layer.tar | tar -x -C "$2"`, "sh",
		e.node.env["E2E_DIR"]+"/img/gpuload.tar", rootfs)
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpack the image: %v: %s", err, out)
	}
	runc := e.node.env["BIN"] + "/runc"
	if r := e.node.in("sh", "-c", "cd "+bundle+" && "+runc+" spec"); r.err != nil {
		t.Fatal(r)
	}
	file := filepath.Join(bundle, "config.json")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(`"terminal": true`, `"terminal": false`, `"sh"`,
		`"/bin/sh", "-c", "gpuload --json --alloc 3GiB; gpuload --json --alloc 5GiB; gpuload --json --gpu 1; true"`).Replace(string(data))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := e.kerf("oci", "patch", bundle, "--memory", "4GiB", "--name", "bundle"); r.err != nil {
		t.Fatal(r)
	}
	start := func(id string) result { return e.node.in(runc, "run", "--bundle", bundle, id) }
	r := start("kerf-bundle-1")
	if r.err != nil {
		t.Fatal(r)
	}
	var loads []loaded
	for line := range strings.Lines(r.out) {
		loads = append(loads, e.loadOf(result{out: line}))
	}
	if len(loads) != 3 || loads[0].Error != nil || loads[0].Total == nil || *loads[0].Total != 4*gib {
		t.Fatalf("in the bundle, below its cap: %v", r)
	}
	if past, other := loads[1], loads[2]; past.Error == nil || other.Error == nil {
		t.Errorf("past its cap %v, on another GPU %v", past, other)
	}
	eventually(e, "end of the grant", func() error { return e.noneNamed("bundle") })
	if r := start("kerf-bundle-2"); r.err == nil || !strings.Contains(r.errOut, "does not exist") {
		t.Errorf("a start without a grant: %v", r)
	}
}
