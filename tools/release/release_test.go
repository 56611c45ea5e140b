// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// programs is a folder with a small program under the name of each program and library.
func programs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	for path, text := range map[string]string{
		filepath.Join(source, "go.mod"):  "module example.org/x\n\ngo 1.26.0\n",
		filepath.Join(source, "main.go"): "package main\n\nfunc main() {}\n",
	} {
		put(t, path, []byte(text))
	}
	var text []byte
	r := release{programs: dir, libraries: dir, librariesARM64: filepath.Join(dir, "arm64")}
	for _, on := range r.targets() {
		text = goProgram(t, source, on.arch)
		for _, i := range images() {
			for _, name := range slices.Concat(i.programs, slices.Collect(maps.Keys(on.librariesOf(i)))) {
				put(t, filepath.Join(on.programs, name), text)
			}
		}
	}
	for _, platform := range platforms() {
		system, arch, _ := strings.Cut(platform, "/")
		put(t, filepath.Join(dir, "cli", system+"-"+arch, programOn(system)), text)
	}
	return dir
}

// goProgram builds the program in a folder for Linux on arch.
func goProgram(t *testing.T, source, arch string) []byte {
	t.Helper()
	built := filepath.Join(t.TempDir(), "x")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", built, ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(built)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func put(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// packed is a release of these programs.
func packed(t *testing.T, programs string) *release {
	t.Helper()
	r := &release{root: "../..", programs: programs, libraries: programs,
		librariesARM64: filepath.Join(programs, "arm64"), out: filepath.Join(t.TempDir(), "v1.2.3"),
		version: "v1.2.3", registry: "registry.example/kerf", commit: strings.Repeat("a", 40),
		time: time.Unix(1_700_000_000, 0).UTC()}
	if err := r.write(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *release) read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.out, name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestRelease(t *testing.T) {
	from := programs(t)
	r := packed(t, from)
	for name, test := range map[string]func(*testing.T, string, *release){
		"same bytes twice": testSameBytesTwice, "images": testImages, "chart": testChartNamesTheRelease,
		"namespace":    testNamespace,
		"command line": testCommandLine, "SBOM and provenance": testSBOMAndProvenance,
	} {
		t.Run(name, func(t *testing.T) { test(t, from, r) })
	}
}

func testSameBytesTwice(t *testing.T, from string, one *release) {
	two := packed(t, from)
	sums := string(one.read(t, "SHA256SUMS"))
	if again := string(two.read(t, "SHA256SUMS")); sums != again {
		t.Errorf("first:\n%s\nsecond:\n%s", sums, again)
	}
	files, err := os.ReadDir(one.out)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if want := sum(one.read(t, f.Name())) + "  " + f.Name() + "\n"; f.Name() != "SHA256SUMS" &&
			!strings.Contains(sums, want) {
			t.Errorf("SHA256SUMS lacks %q", want)
		}
	}
	if len(files) != 14 {
		t.Errorf("%d files: %s", len(files), sums)
	}
}

// inTar are the contents of a tar by their names.
func inTar(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(time.Unix(1_700_000_000, 0)) || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s: time %s, owner %d:%d", h.Name, h.ModTime, h.Uid, h.Gid)
		}
		if all[h.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

func unzipped(t *testing.T, text []byte) io.Reader {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func decoded[T any](t *testing.T, text []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func testImages(t *testing.T, _ string, r *release) {
	for _, i := range images() {
		files := inTar(t, bytes.NewReader(r.read(t, "kerf-"+i.name+"-v1.2.3.oci.tar")))
		blob := func(h v1.Hash) []byte { return files["blobs/sha256/"+h.Hex] }
		top := decoded[v1.IndexManifest](t, files["index.json"])
		if ref := top.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; ref !=
			"registry.example/kerf/"+i.name+":v1.2.3" || len(top.Manifests) != 1 {
			t.Errorf("%s: reference %q of %d", i.name, ref, len(top.Manifests))
		}
		index := decoded[v1.IndexManifest](t, blob(top.Manifests[0].Digest))
		if len(index.Manifests) != len(r.targets()) {
			t.Fatalf("%s: %d images", i.name, len(index.Manifests))
		}
		for k, on := range r.targets() {
			if p := index.Manifests[k].Platform; p.OS != "linux" || p.Architecture != on.arch {
				t.Errorf("%s: image %d is for %s", i.name, k, p)
			}
			testImage(t, r, i, on, decoded[v1.Manifest](t, blob(index.Manifests[k].Digest)), blob)
		}
	}
}

// testImage checks the image for one platform.
func testImage(t *testing.T, r *release, i image, on target, manifest v1.Manifest, blob func(v1.Hash) []byte) {
	t.Helper()
	config := decoded[v1.ConfigFile](t, blob(manifest.Config.Digest))
	if config.Architecture != on.arch || config.Config.User != i.user || !config.Created.Equal(r.time) ||
		config.Config.Entrypoint[0] != "/usr/local/bin/"+i.entry {
		t.Errorf("%s: config %+v", i.name, config)
	}
	layer := inTar(t, unzipped(t, blob(manifest.Layers[0].Digest)))
	for _, name := range i.programs {
		if want, err := os.ReadFile(filepath.Join(on.programs, name)); err != nil ||
			!bytes.Equal(layer["usr/local/bin/"+name], want) {
			t.Errorf("%s: the layer for %s lacks %s: %v", i.name, on.arch, name, err)
		}
	}
	if _, has := layer[on.loader]; has != (len(i.libraries) > 0) {
		t.Errorf("%s: loader in the layer for %s: %t", i.name, on.arch, has)
	}
}

func testChartNamesTheRelease(t *testing.T, _ string, r *release) {
	files := inTar(t, unzipped(t, r.read(t, "kerf-1.2.3.tgz")))
	for file, line := range map[string]string{"kerf/Chart.yaml": "\nversion: 1.2.3\n",
		"kerf/values.yaml": "\n  registry: registry.example/kerf\n"} {
		if !strings.Contains(string(files[file]), line) {
			t.Errorf("%s lacks %q", file, line)
		}
	}
	if !strings.Contains(string(files["kerf/Chart.yaml"]), "\nappVersion: v1.2.3\n") {
		t.Errorf("Chart.yaml: %s", files["kerf/Chart.yaml"])
	}
}

func testNamespace(t *testing.T, _ string, r *release) {
	if text := string(r.read(t, "kerf-namespace.yaml")); !strings.Contains(text, "\n  name: kerf-system\n") ||
		!strings.Contains(text, "pod-security.kubernetes.io/enforce: privileged") {
		t.Errorf("namespace:\n%s", text)
	}
}

func testCommandLine(t *testing.T, _ string, r *release) {
	krew := string(r.read(t, "kerf-krew.yaml"))
	for _, platform := range platforms() {
		system, arch, _ := strings.Cut(platform, "/")
		text := r.read(t, r.archiveFor(system, arch))
		var names []string
		if system == "windows" {
			archive, err := zip.NewReader(bytes.NewReader(text), int64(len(text)))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range archive.File {
				names = append(names, f.Name)
			}
		} else {
			for name := range inTar(t, unzipped(t, text)) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		if want := []string{"LICENSE", programOn(system)}; !slices.Equal(names, want) {
			t.Errorf("%s: files %q, want %q", platform, names, want)
		}
		if !strings.Contains(krew, "v1.2.3/"+r.archiveFor(system, arch)+"\n    sha256: "+sum(text)+"\n") {
			t.Errorf("%s: krew's manifest:\n%s", platform, krew)
		}
	}
}

func testSBOMAndProvenance(t *testing.T, _ string, r *release) {
	bom := decoded[struct {
		SPDXVersion string
		Packages    []struct{ Name string }
	}](t, r.read(t, "kerf-v1.2.3.spdx.json"))
	for _, name := range []string{"kerf-agent", "kubectl-kerf-darwin-arm64", "libc.so.6", "stdlib"} {
		if !slices.ContainsFunc(bom.Packages, func(p struct{ Name string }) bool { return p.Name == name }) {
			t.Errorf("the SBOM lacks %s: %+v", name, bom)
		}
	}
	s := decoded[statement](t, r.read(t, "kerf-v1.2.3.intoto.json"))
	if s.Predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"] != r.commit {
		t.Errorf("provenance: %+v", s)
	}
	for _, subject := range s.Subject {
		if got := sum(r.read(t, subject.Name)); got != subject.Digest["sha256"] {
			t.Errorf("%s: sum %s, and %s in the provenance", subject.Name, got, subject.Digest["sha256"])
		}
	}
}

func TestRejects(t *testing.T) {
	r := release{version: "dev", registry: "Registry/", programs: "x", out: "y"}
	if err := r.write(); err == nil || !strings.Contains(err.Error(), "VERSION=v1.2.3") ||
		!strings.Contains(err.Error(), "REGISTRY=registry.example/kerf") {
		t.Errorf("error %v", err)
	}
	if _, err := replaceLine([]byte("a: 1\na: 2\n"), "a: ", "3"); err == nil {
		t.Error("a key that is there twice was replaced")
	}
	sh, err := program("/bin/sh", "bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.targets()[0].complete(sh, nil); err == nil || !strings.Contains(err.Error(), "bin/sh") {
		t.Errorf("a program without its C library: %v", err)
	}
}
