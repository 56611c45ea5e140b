// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func golden(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

const runc = "io.containerd.runc.v2"

func TestConfigurations(t *testing.T) {
	dirs := []string{"/etc/cdi", "/var/run/cdi"}
	tests := map[string]struct {
		version string
		read    func(*Report, []byte)
		text    []byte
		want    Report
	}{
		"containerd 1.7": {"1.7.24", asContainerd, golden(t, "containerd-1.7.json"), Report{
			CDI: No, CDIDirs: dirs, CgroupDriver: CgroupSystemd, DefaultRuntime: "nvidia",
			Handlers: []Handler{
				{Name: "nvidia", Type: runc, Binary: "/usr/bin/nvidia-container-runtime",
					ContainerAnnotations: []string{"cdi.k8s.io/*"}},
				{Name: "runc", Type: runc, PodAnnotations: []string{}, ContainerAnnotations: []string{}},
			},
		}},
		"containerd 2.4": {"2.4.2", asContainerd, golden(t, "containerd-2.4.json"), Report{
			CDI: Yes, CDIDirs: dirs, CgroupDriver: CgroupFS, DefaultRuntime: "runc",
			Handlers: []Handler{{Name: "runc", Type: runc}},
		}},
		"2.0 with CDI off": {"2.0.5", asContainerd, []byte(`{"enableCDI":false}`), Report{CDI: No}},
		"1.7 with CDI on":  {"1.7.2", asContainerd, []byte(`{"enableCDI":true}`), Report{CDI: Yes}},
		"1.6 knows no CDI": {"1.6.20~ds1", asContainerd, []byte(`{}`), Report{CDI: No}},
		"of no version":    {"devel", asContainerd, []byte(`{}`), Report{}},
		"another shim": {"2.1.0", asContainerd,
			[]byte(
				`{"containerd":{"defaultRuntimeName":"kata","runtimes":{"kata":{"runtimeType":"io.containerd.kata.v2","options":{"BinaryName":7,"ConfigPath":"x"}}}}}`), Report{CDI: Yes, DefaultRuntime: "kata", Handlers: []Handler{{Name: "kata", Type: "io.containerd.kata.v2"}}}},
		"no configuration": {"2.4.2", asContainerd, nil,
			Report{Unchecked: []string{"the CRI plugin does not report its configuration"}}},
		"another shape": {"2.4.2", asContainerd, []byte(`{"cdiSpecDirs":{}}`),
			Report{Unchecked: []string{"the CRI plugin's configuration cannot be read: json: cannot unmarshal object " +
				"into Go struct field criConfig.cdiSpecDirs of type []string"}}},
		"CRI-O": {"1.31.0", readCRIO, golden(t, "crio-1.31.toml"), Report{
			NRI: Yes, CDI: Yes, CDIDirs: dirs, CgroupDriver: CgroupSystemd, DefaultRuntime: "crun",
			Handlers: []Handler{
				{Name: "crun", Binary: "/usr/libexec/crio/crun",
					PodAnnotations: []string{"io.containers.trace-syscall"}},
				{Name: "nvidia", Type: "oci", Binary: "/usr/bin/nvidia-container-runtime"},
			},
		}},
		"CRI-O without NRI": {"1.31.0", readCRIO, []byte("[crio.nri]\nenable_nri = false\n"), Report{NRI: No}},
		"CRI-O that tells less": {"1.31.0", readCRIO, []byte("[crio.runtime]\ncgroup_manager = \"x\"\n"),
			Report{
				Unchecked: []string{
					"CRI-O does not report whether NRI is on: see what crio status config says of enable_nri"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Report{Version: tt.version}
			tt.read(&got, tt.text)
			tt.want.Version = tt.version
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func asContainerd(r *Report, text []byte) { readContainerd(r, string(text)) }

// Whatever another program answers, reading it ends, and what is not understood is said or unknown.
func FuzzConfigurations(f *testing.F) {
	for _, s := range []string{`{"enableCDI":true}`, `{"containerd":{"runtimes":{"a":null}}}`,
		"[crio.nri]\nenable_nri = 1", "", "\x00"} {
		f.Add("2.4.2", []byte(s))
	}
	f.Fuzz(func(t *testing.T, version string, text []byte) {
		var a, b Report
		a.Version, b.Version = version, version
		asContainerd(&a, text)
		readCRIO(&b, text)
		if len(a.Unchecked) > 0 && a.CDI != Unknown {
			t.Errorf("read and not read: %+v", a)
		}
		if _, _, err := parseToolkit(text); err == nil {
			Verdict(b, Toolkit{Env: Yes}, "/etc/cdi")
		}
		Verdict(a, Toolkit{}, "/etc/cdi")
	})
}

func TestParseVersion(t *testing.T) {
	for s, want := range map[string]release{
		"2.4.2": {2, 4, 2}, "v1.7.24-0ubuntu1~22.04.1": {1, 7, 24}, "2.0.0-rc.1": {2, 0, 0}, "1.6.20~ds1": {1, 6, 20},
		"1.7":   {1, 7, 0},
		"2.1.x": {2, 1, 0}, "2.10.3.4": {2, 10, 3}, "2.2-dev": {2, 2, 0},
	} {
		if got, ok := parseVersion(s); !ok || got != want {
			t.Errorf("parseVersion(%q) = %v, %t, want %v", s, got, ok, want)
		}
	}
	for _, s := range []string{"", "2", "2.", "x.1", "-1.2", "99999999.1", "1.x", "v"} {
		if got, ok := parseVersion(s); ok {
			t.Errorf("parseVersion(%q) = %v", s, got)
		}
	}
}

func TestReadToolkit(t *testing.T) {
	const set = "accept-nvidia-visible-devices-envvar-when-unprivileged = "
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		text string
		want Answer
	}{
		"refused.toml":   {"#comment\n" + set + "false\n[nvidia-container-cli]\n", No},
		"accepted.toml":  {set + "true\n", Yes},
		"silent.toml":    {"#" + set + "false\ndisable-require = false\n", Yes},
		"elsewhere.toml": {"[nvidia-container-cli]\n" + set + "false\n", Yes},
		"torn.toml":      {set, Unknown},
		"text.toml":      {set + `"false"`, Unknown},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := ReadToolkit(path)
		if got.Env != tt.want || (got.Problem != "") != (tt.want == Unknown) || got.Path != path {
			t.Errorf("%s: %+v, want %s", name, got, tt.want)
		}
	}
	if got := ReadToolkit(filepath.Join(dir, "absent")); got.Env != Yes || got.Mounts != No || got.Problem != "" {
		t.Errorf("absent: %+v", got)
	}
	for text, want := range map[string]Answer{
		"": No, "accept-nvidia-visible-devices-as-volume-mounts = true\n": Yes,
		"accept-nvidia-visible-devices-as-volume-mounts = false\n": No,
		"accept-nvidia-visible-devices-as-volume-mounts = 1\n":     Unknown,
	} {
		path := filepath.Join(dir, "mounts.toml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := ReadToolkit(path); got.Mounts != want || (got.Problem != "") != (want == Unknown) {
			t.Errorf("%q: %+v, want %s", text, got, want)
		}
	}
	if got := ReadToolkit(dir); got.Env != Unknown || got.Problem == "" {
		t.Errorf("a directory: %+v", got)
	}
}
