// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/hooks/oci"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/nodeclient/fakenode"
	"github.com/kerf-gpu/kerf/test/clitest"
)

const (
	gpuA    = "GPU-00000000-0000-0000-0000-00000000000a"
	gpuSpec = `{"cdiVersion":"0.5.0","kind":"kerf.dev/gpu","devices":[{"name":"` + gpuA +
		`","containerEdits":{"mounts":[{"hostPath":"/sim/nvidia0","containerPath":"/dev/nvidia0","options":["bind","rw"]}]}}]}`
	plainSpec = `{"ociVersion":"1.3.0","process":{"args":["train"],"cwd":"/","user":{"uid":0,"gid":0},"env":["A=b"]},"root":{"path":"rootfs"},"linux":{}}`
)

// containerNode is a fake agent that grants containers, and the directory of its sockets.
func containerNode(t *testing.T, change func(*nodeapi.ReserveResponse)) (*fakenode.Server, string) {
	t.Helper()
	dir, cdiDir := t.TempDir(), t.TempDir()
	clitest.WriteFile(t, cdiDir, "kerf.dev-gpu.json", gpuSpec, 0o644)
	s := &fakenode.Server{
		OnReserve: func(r *nodeapi.ReserveRequest) (*nodeapi.ReserveResponse, error) {
			if !r.GetContainer() {
				return nil, status.Error(codes.InvalidArgument, "not for a container")
			}
			resp := &nodeapi.ReserveResponse{
				Grant: &nodeapi.Grant{Id: "k-1", Level: "driver",
					Shares: []*nodeapi.Share{{Gpu: gpuA, MemoryBytes: r.GetMemoryBytes(), Percent: 25}}},
				Container: &nodeapi.ContainerGrant{
					CdiDevices: []string{"kerf.dev/gpu=" + gpuA}, CdiDirs: []string{"/nowhere", cdiDir},
					HookPath: "/opt/kerf/1/kerf-hook", HookSocket: "/run/kerf/hook.sock",
					Requests: []string{"gpu-memory-gib:10"},
					Env:      map[string]string{"KERF_GRANT": "k-1"}, Annotation: "note",
				},
			}
			if change != nil {
				change(resp)
			}
			return resp, nil
		},
		OnRelease: func(*nodeapi.ReleaseRequest) (*nodeapi.ReleaseResponse, error) {
			return &nodeapi.ReleaseResponse{},
				nil
		},
	}
	return s.Start(t, dir), dir
}

func TestOCIPatch(t *testing.T) {
	s, dir := containerNode(t, nil)
	bundle := t.TempDir()
	file := clitest.WriteFile(t, bundle, "config.json", plainSpec, 0o600)
	p := clitest.New(nil)
	if code, err := p.App.Execute([]string{"--run-dir", dir, "oci", "patch", bundle, "--memory", "10GiB"},
		Commands); code != command.ExitOK {
		t.Fatalf("%d, %v: %s", code, err, p.ErrOut.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	if n := len(spec.Hooks.CreateRuntime); n != 2 || len(spec.Mounts) != 1 ||
		!slices.Contains(spec.Process.Env, "KERF_GRANT=k-1") || spec.Annotations["kerf.dev/grant"] != "note" {
		t.Errorf("spec %s", text)
	}
	if args := strings.Join(spec.Hooks.CreateRuntime[1].Args,
		" "); args != "kerf-hook activate --socket /run/kerf/hook.sock --grant k-1 --request gpu-memory-gib:10" {
		t.Errorf("hook %q", args)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for _, want := range []string{"grant   k-1\n", "gpu     " + gpuA + " (10GiB, 25%)\n", "device  kerf.dev/gpu=" +
		gpuA + "\n", "held    5m0s"} {
		if !strings.Contains(p.Out.String(), want) {
			t.Errorf("%q is not in %q", want, p.Out.String())
		}
	}
	if slices.Contains(s.Calls(), "Release") {
		t.Error("released what was patched")
	}
	// A second grant has no place: it is given back, and the file is as it was.
	again := clitest.New(nil)
	if code, _ := again.App.Execute([]string{"--run-dir", dir, "oci", "patch", bundle, "--memory", "10GiB"},
		Commands); code != command.ExitFailure {
		t.Errorf("again: %d", code)
	}
	if !slices.Contains(s.Calls(), "Release") || !strings.Contains(again.ErrOut.String(), "make the spec again") {
		t.Errorf("calls %v, said %q", s.Calls(), again.ErrOut.String())
	}
	if now, err := os.ReadFile(file); err != nil || !bytes.Equal(now, text) {
		t.Errorf("the file changed: %v", err)
	}
}

func TestOCIHook(t *testing.T) {
	_, dir := containerNode(t, nil)
	hooks := t.TempDir()
	p := clitest.New(nil)
	if code, err := p.App.Execute([]string{"--run-dir", dir, "oci", "hook", hooks, "--memory", "10GiB", "-o", "json"},
		Commands); code != command.ExitOK {
		t.Fatalf("%d, %v: %s", code, err, p.ErrOut.String())
	}
	var result ociResult
	if err := json.Unmarshal(p.Out.Bytes(), &result); err != nil || result.Grant.ID != "k-1" ||
		result.ReserveSeconds != 300 || len(result.Devices) != 1 {
		t.Errorf("said %s, %v", p.Out.String(), err)
	}
	var hook engineHook
	text, err := os.ReadFile(result.File)
	if err != nil || json.Unmarshal(text, &hook) != nil {
		t.Fatalf("hook %q: %v", text, err)
	}
	if hook.Version != "1.0.0" || !hook.When["always"] || !slices.Equal(hook.Stages, []string{"createRuntime"}) ||
		hook.Hook.Timeout == nil || len(hook.Hook.Env) == 0 {
		t.Errorf("hook %s", text)
	}
	if entries, err := os.ReadDir(hooks); err != nil || len(entries) != 2 {
		t.Errorf("files %v, %v", entries, err)
	}
}

// Whatever goes wrong after the grant, the grant is given back; wrong usage makes none.
func TestOCIRefusals(t *testing.T) {
	bundle := t.TempDir()
	clitest.WriteFile(t, bundle, "config.json", plainSpec, 0o600)
	link := t.TempDir()
	if err := os.Symlink(filepath.Join(bundle, "config.json"), filepath.Join(link, "config.json")); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args   []string
		change func(*nodeapi.ReserveResponse)
		code   int
		text   string
	}{
		"no bundle": {[]string{"patch", t.TempDir(), "--memory", "1GiB"}, nil, command.ExitFailure, "no such file"},
		"a link":    {[]string{"patch", link, "--memory", "1GiB"}, nil, command.ExitFailure, "no regular file"},
		"no directory": {[]string{"hook", filepath.Join(bundle, "none"), "--memory", "1GiB"}, nil, command.ExitFailure,
			"is no directory"},
		"no spec": {[]string{"patch", bundle, "--memory", "1GiB"},
			func(r *nodeapi.ReserveResponse) { r.Container.CdiDirs = []string{bundle} }, command.ExitFailure,
			"not there"},
		"no such GPU": {[]string{"patch", bundle, "--memory", "1GiB"},
			func(r *nodeapi.ReserveResponse) { r.Container.CdiDevices[0] += "b" }, command.ExitFailure, "GPU"},
		"other device": {[]string{"patch", bundle, "--memory", "1GiB"},
			func(r *nodeapi.ReserveResponse) { r.Container.CdiDevices[0] = "nvidia.com/gpu=all" }, command.ExitFailure,
			"no GPU of kerf.dev/gpu"},
		"no device": {[]string{"patch", bundle, "--memory", "1GiB"},
			func(r *nodeapi.ReserveResponse) { r.Container.CdiDevices = nil }, command.ExitFailure, "names no GPU"},
		"odd request": {[]string{"patch", bundle, "--memory", "1GiB"},
			func(r *nodeapi.ReserveResponse) { r.Container.Requests = []string{"x"} }, command.ExitFailure,
			`request "x"`},
		"nothing requested": {[]string{"patch", bundle}, nil, command.ExitUsage, "--memory"},
		"all wrong": {[]string{"patch", bundle, "--memory", "x", "--reserve-for", "0s", "-o", "x", "--name", "A"}, nil,
			command.ExitUsage, "--reserve-for"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s, dir := containerNode(t, tt.change)
			p := clitest.New(nil)
			code, _ := p.App.Execute(append([]string{"--run-dir", dir, "oci"}, tt.args...), Commands)
			if code != tt.code || !strings.Contains(p.ErrOut.String(), tt.text) {
				t.Errorf("%d, %q", code, p.ErrOut.String())
			}
			if reserved, released := slices.Contains(s.Calls(), "Reserve"), slices.Contains(s.Calls(),
				"Release"); reserved != (tt.code == command.ExitFailure) || released != reserved {
				t.Errorf("calls %v", s.Calls())
			}
			if text, err := os.ReadFile(filepath.Join(bundle, "config.json")); err != nil || string(text) != plainSpec {
				t.Errorf("config.json is %s, %v", text, err)
			}
		})
	}
}

func patchGrant() oci.Grant {
	return oci.Grant{ID: "k-1", HookPath: "/opt/kerf/1/kerf-hook", Socket: "/run/kerf/hook.sock"}
}

// What this program does not know of a spec stays; where it cannot, the spec is refused.
func TestPatchTextKeepsWhatIsNew(t *testing.T) {
	const text = `{"ociVersion":"9.0","future":{"a":[1,{"b":18446744073709551615}]},"process":{"args":["x"],"cwd":"/","user":{"uid":0,"gid":0},"newer":"yes","terminal":false},"linux":{"newer":{"c":1},"seccomp":null,"devices":[]},"mounts":[{"destination":"/a<b","blank":""}]}`
	out, err := patchText("config.json", []byte(text), patchGrant())
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := decode(out, &got); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"b": 18446744073709551615`, `"newer": "yes"`, `"c": 1`, `"destination": "/a<b"`,
		"kerf-hook"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in %s", want, out)
		}
	}
	// One field in two spellings would leave it to the runtime which one counts.
	out, err = patchText("config.json", []byte(strings.Replace(plainSpec, `"linux":{}`,
		`"linux":{},"Hooks":{"createRuntime":[{"path":"/x"}]}`, 1)), patchGrant())
	if err != nil || strings.Contains(string(out), `"Hooks"`) || !strings.Contains(string(out), `"/x"`) {
		t.Errorf("two spellings: %s, %v", out, err)
	}
	for name, bad := range map[string]string{
		"new in a list":   `{"process":{"args":["x"],"cwd":"/","user":{"uid":0,"gid":0}},"linux":{},"mounts":[{"destination":"/a","newer":1}]}`,
		"text after":      plainSpec + "{}",
		"another shape":   `{"process":[]}`,
		"not even JSON":   `{`,
		"without process": `{"linux":{}}`,
	} {
		if out, err := patchText("config.json", []byte(bad), patchGrant()); err == nil {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// Whatever the input, a patched spec has the hook, and nothing that was there is lost without a message.
func FuzzPatchText(f *testing.F) {
	f.Add([]byte(plainSpec))
	f.Add([]byte(`{"process":{"args":["x"],"z":[]},"linux":{},"mounts":[{"z":0}],"z":{"y":1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		out, err := patchText("config.json", text, patchGrant())
		if err != nil {
			return
		}
		var before, after map[string]any
		if decode(text, &before) != nil || decode(out, &after) != nil {
			t.Fatalf("%q became %q", text, out)
		}
		for name, value := range before {
			// The decoder takes names without regard to case; the spec's own spelling is what is written.
			if _, ok := after[name]; !ok && !blank(value) && !known(name) {
				t.Errorf("%q is lost: %q became %q", name, text, out)
			}
		}
		if !strings.Contains(string(out), "kerf-hook") {
			t.Errorf("no hook in %q", out)
		}
	})
}

func known(name string) bool {
	return slices.ContainsFunc([]string{"ociVersion", "process", "root", "hostname", "domainname", "mounts", "hooks",
		"annotations", "linux", "solaris", "windows", "vm", "zos", "freebsd"},
		func(s string) bool { return strings.EqualFold(s, name) })
}
