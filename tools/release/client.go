// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// platforms are those of kubectl-kerf.
func platforms() []string {
	return []string{"darwin/amd64", "darwin/arm64", "linux/amd64", "linux/arm64", "windows/amd64", "windows/arm64"}
}

// programOn is the file of kubectl-kerf on a system.
func programOn(system string) string {
	if system == "windows" {
		return "kubectl-kerf.exe"
	}
	return "kubectl-kerf"
}

// archiveFor is the archive of kubectl-kerf for a platform.
func (r *release) archiveFor(system, arch string) string {
	ending := "tar.gz"
	if system == "windows" {
		ending = "zip"
	}
	return fmt.Sprintf("kubectl-kerf-%s-%s-%s.%s", r.version, system, arch, ending)
}

// writeCLI writes an archive for each platform. make release-cli has built the programs.
func (r *release) writeCLI() error {
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return fmt.Errorf("read license: %w", err)
	}
	for _, platform := range platforms() {
		system, arch, _ := strings.Cut(platform, "/")
		e, err := program(filepath.Join(r.programs, "cli", system+"-"+arch, programOn(system)), programOn(system))
		if err != nil {
			return err
		}
		entries := []entry{e, {"LICENSE", 0o644, license}}
		var archive []byte
		if system == "windows" {
			archive, err = zipOf(entries, r.time)
		} else {
			archive, err = tarGz(entries, r.time)
		}
		if err != nil {
			return err
		}
		if err := r.add(r.archiveFor(system, arch), archive); err != nil {
			return err
		}
	}
	return nil
}

// writeKrew writes the manifest with which krew installs kubectl-kerf.
func (r *release) writeKrew() error {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: kerf
spec:
  version: %s
  homepage: %s
  shortDescription: Share NVIDIA GPUs between pods
  description: |
    Shows GPUs, grants and usage of a cluster with Kerf. Explains why a pod is
    pending, previews changes of the config, and cordons and drains GPUs.
  platforms:
`, r.version, repository)
	for _, platform := range platforms() {
		system, arch, _ := strings.Cut(platform, "/")
		name := r.archiveFor(system, arch)
		checksum, err := r.sumOf(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "  - selector:\n      matchLabels:\n        os: %s\n        arch: %s\n", system, arch)
		fmt.Fprintf(&b, "    uri: %s/releases/download/%s/%s\n    sha256: %s\n    bin: %s\n", repository, r.version,
			name, checksum, programOn(system))
	}
	return r.add("kerf-krew.yaml", []byte(b.String()))
}

// writeChart writes the chart with the images of this release, and the namespace, which must exist before the chart.
func (r *release) writeChart() error {
	entries, err := tree(filepath.Join(r.root, "deploy", "chart"), "kerf")
	if err != nil {
		return err
	}
	for i, e := range entries {
		switch e.path {
		case "kerf/Chart.yaml":
			if e.content, err = replaceLine(e.content, "version: ", r.number()); err == nil {
				e.content, err = replaceLine(e.content, "appVersion: ", r.version)
			}
		case "kerf/values.yaml":
			e.content, err = replaceLine(e.content, "  registry: ", r.registry)
		}
		if err != nil {
			return fmt.Errorf("chart %s: %w", e.path, err)
		}
		entries[i] = e
	}
	archive, err := tarGz(entries, r.time)
	if err != nil {
		return err
	}
	if err := r.add("kerf-"+r.number()+".tgz", archive); err != nil {
		return err
	}
	namespace, err := os.ReadFile(filepath.Join(r.root, "deploy", "manifests", "00-namespace.yaml"))
	if err != nil {
		return fmt.Errorf("read namespace: %w", err)
	}
	return r.add("kerf-namespace.yaml", namespace)
}

// replaceLine sets the value of the only line that starts with key.
func replaceLine(text []byte, key, value string) ([]byte, error) {
	lines, found := bytes.Split(text, []byte("\n")), 0
	for i, l := range lines {
		if bytes.HasPrefix(l, []byte(key)) {
			lines[i] = []byte(key + value)
			found++
		}
	}
	if found != 1 {
		return nil, fmt.Errorf("%d lines start with %q, want 1", found, key)
	}
	return bytes.Join(lines, []byte("\n")), nil
}
