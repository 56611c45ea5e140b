// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/sharing"
)

func spec(kind string, names ...string) string {
	out := `{"cdiVersion":"0.5.0","kind":"` + kind + `","devices":[`
	for i, n := range names {
		if i > 0 {
			out += ","
		}
		out += `{"name":"` + n + `","containerEdits":{"env":["A=` + kind + `"]}}`
	}
	return out + "]}"
}

func deviceNames(s SourceSpec) (out []string) {
	for _, d := range s.Devices {
		out = append(out, d.Name)
	}
	slices.Sort(out)
	return out
}

func TestSource(t *testing.T) {
	etc, run := t.TempDir(), t.TempDir()
	writeFile(t, etc, "nvidia.yaml", spec("nvidia.com/gpu", "0", "1", "all"))
	writeFile(t, etc, "other.json", spec("example.com/gpu", "0"))
	writeFile(t, etc, "management.json", spec("management.nvidia.com/gpu", "all"))
	writeFile(t, etc, "mig.json", spec("nvidia.com/mig", "0"))
	writeFile(t, etc, "broken.json", "{")
	newer := writeFile(t, run, "nvidia.json", spec("nvidia.com/gpu", "0", "all"))
	got, err := Source([]string{etc, run, filepath.Join(etc, "missing")})
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v (%v)", got, err)
	}
	// What both give is the later folder's.
	for _, s := range got {
		want := []string{"1"}
		if s.Path == newer {
			want = []string{"0", "all"}
		}
		if names := deviceNames(s); !slices.Equal(names, want) {
			t.Errorf("%q has %q, want %q", s.Path, names, want)
		}
	}
}

func TestSourceWithout(t *testing.T) {
	dir := t.TempDir()
	broken := writeFile(t, dir, "nvidia.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: [")
	writeFile(t, dir, "other.json", spec("example.com/gpu", "0"))
	got, err := Source([]string{dir})
	if !errors.Is(err, sharing.ErrNotFound) || got != nil {
		t.Fatalf("%+v (%v), want %v", got, err, sharing.ErrNotFound)
	}
	for _, want := range []string{"nvidia-ctk cdi generate", dir, broken} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not tell of %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q has more than one line", err)
	}
}

func TestConflicts(t *testing.T) {
	own, other := t.TempDir(), t.TempDir()
	dirs := []string{own, other, filepath.Join(own, "missing")}
	if _, _, err := InstallStatic(own, small, testHook); err != nil {
		t.Fatal(err)
	}
	writeFile(t, own, "nvidia.yaml", spec("nvidia.com/gpu", "0"))
	writeFile(t, other, "notes.txt", spec("kerf.dev/guard", "armed"))
	writeFile(t, other, "broken.json", "{")
	writeFile(t, other, "broken too.json", `{"kind":"example.com/gpu"`)
	if err := Conflicts(own, dirs); err != nil {
		t.Errorf("no conflict: %v", err)
	}
	for name, tc := range map[string]struct{ dir, file, data string }{
		"guard without a hook": {own, "zz.json", spec("kerf.dev/guard", "armed")},
		"yaml": {own, "zz.yaml",
			"cdiVersion: 0.5.0\nkind: kerf.dev/ask\ndevices:\n- name: gpu:1\n  containerEdits: {env: [A=b]}\n"},
		"our file in another folder": {other, "kerf.dev-ask.json", spec("kerf.dev/ask", "gpu:1")},
		"gpu":                        {other, "a.json", spec("kerf.dev/gpu", string(gpuA))},
		"that this library cannot read": {other, "new.json",
			`{"cdiVersion":"9.0.0","kind":"kerf.dev/near","teleport":true}`},
	} {
		path := writeFile(t, tc.dir, tc.file, tc.data)
		if err := Conflicts(own, dirs); !errors.Is(err, sharing.ErrConflict) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want a conflict that names %q", name, err, path)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	// A link counts as what it leads to.
	real := writeFile(t, t.TempDir(), "x", spec("kerf.dev/guard", "armed"))
	link := filepath.Join(other, "link.json")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	if err := Conflicts(own, dirs); !errors.Is(err, sharing.ErrConflict) {
		t.Errorf("link: %v, want a conflict", err)
	}
	if err := os.Remove(real); err != nil {
		t.Fatal(err)
	}
	if err := Conflicts(own, dirs); err != nil {
		t.Errorf("link to nowhere: %v", err)
	}
}

func TestEditsFor(t *testing.T) {
	derived, err := Derive(source(t, "nvidia-toolkit.yaml"), node)
	if err != nil {
		t.Fatal(err)
	}
	got, err := editsFor(derived.File.Data, sharing.CDIGPU, []string{string(gpuB), string(gpuA)})
	if err != nil {
		t.Fatal(err)
	}
	checkTight(t, got)
	paths := map[string]int{}
	for _, d := range got.DeviceNodes {
		paths[d.Path]++
	}
	if !slices.Equal(minors(got), []int{0, 3}) || paths["/dev/nvidiactl"] != 1 || len(got.Hooks) != 3 ||
		len(got.Mounts) != 3 {
		t.Errorf("nodes %v, %d hooks, %d mounts", paths, len(got.Hooks), len(got.Mounts))
	}
	one, err := editsFor(derived.File.Data, sharing.CDIGPU, []string{string(gpuA)})
	if err != nil || !slices.Equal(minors(one), []int{0}) {
		t.Errorf("one GPU brings /dev/nvidia%v (%v)", minors(one), err)
	}
	if _, err := editsFor(derived.File.Data, sharing.CDIGPU, []string{string(gpuA), string(gpuC)}); !errors.Is(err,
		sharing.ErrNotFound) {
		t.Errorf("a GPU that is not there: %v", err)
	}
	if _, err := EditsFor(t.TempDir(), []sharing.GPUID{gpuA}); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("no spec: %v", err)
	}
	if _, err := editsFor([]byte(spec("nvidia.com/gpu", string(gpuA))), sharing.CDIGPU,
		[]string{string(gpuA)}); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("another's spec: %v", err)
	}
}

func TestEditsForAsksTheMachine(t *testing.T) {
	dir := t.TempDir()
	put := func(node specs.DeviceNode) {
		f, err := newFile(&specs.Spec{Kind: sharing.CDIGPU,
			Devices: []specs.Device{{Name: string(gpuA),
				ContainerEdits: specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{&node}}}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Install(dir, []File{f}); err != nil {
			t.Fatal(err)
		}
	}
	// /dev/null is character device 1:3 on every Linux.
	for name, node := range map[string]specs.DeviceNode{
		"nothing said": {Path: "/dev/null", Permissions: "rwm"},
		"host path":    {Path: "/dev/nvidia7", HostPath: "/dev/null"},
		"type said":    {Path: "/dev/null", Type: "c"},
	} {
		put(node)
		got, err := EditsFor(dir, []sharing.GPUID{gpuA})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := got.DeviceNodes[0]; d.Type != "c" || d.Major != 1 || d.Minor != 3 || d.FileMode == nil ||
			*d.FileMode == 0 || d.Permissions != "rw" || d.Path != node.Path {
			t.Errorf("%s: %+v", name, *d)
		}
	}
	put(specs.DeviceNode{Path: "/nonexistent/nvidia0", Type: "c", Major: 195, Minor: 9})
	if got, err := EditsFor(dir, []sharing.GPUID{gpuA}); err != nil || got.DeviceNodes[0].Minor != 9 {
		t.Errorf("all said: %v", err)
	}
	put(specs.DeviceNode{Path: "/nonexistent/nvidia0"})
	if _, err := EditsFor(dir, []sharing.GPUID{gpuA}); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("no such file: %v", err)
	}
	for _, node := range []specs.DeviceNode{{Path: dir}, {Path: "/dev/null", Type: "b"}} {
		put(node)
		if _, err := EditsFor(dir, []sharing.GPUID{gpuA}); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%+v: %v, want a refusal", node, err)
		}
	}
}

func TestHoles(t *testing.T) {
	dir := t.TempDir()
	for _, list := range []string{"deviceNodes", "netDevices", "hooks", "mounts"} {
		text :=
			"cdiVersion: 1.1.0\nkind: example.com/gpu\ndevices:\n- name: a\n  containerEdits:\n    env: [A=b]\n    " +
				list + ":\n    -\n"
		path := writeFile(t, dir, "x.yaml", text)
		if _, err := Source([]string{dir}); !errors.Is(err, sharing.ErrInvalid) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want a refusal that names the file", list, err)
		}
		common := strings.Replace(text, "devices:", "containerEdits: {"+list+": [null]}\ndevices:", 1)
		common = strings.Replace(common, "    "+list+":\n    -\n", "", 1)
		if _, err := parse([]byte(common)); !errors.Is(err, errHole) {
			t.Errorf("%s of all devices: %v, want %v", list, err, errHole)
		}
		ours := strings.Replace(text, "example.com/gpu", sharing.CDIRequest, 1)
		if !reflect.DeepEqual(recorded(sharing.CDIRequest, []byte(ours)), Maxima{}) {
			t.Errorf("%s: amounts of a file that is none", list)
		}
		if _, found := declares([]byte(ours)); !found {
			t.Errorf("%s: a file that names our kind is no conflict", list)
		}
	}
}
