// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

const (
	// namespace is where the chart is installed; it refuses any other.
	namespace = "kerf-system"
	// kubernetes is the version of the cluster that is rendered for.
	kubernetes = "v1.37.1"
)

// values are what a user would set.
type values = map[string]any

// mutatingKind is the kind by which an API server can change pods.
const mutatingKind = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"

// render is "helm template" of the chart in dir with these values, for the named namespace. It returns the text of each
// template that makes an object, by its name below templates/. The error is Helm's: values that the schema rejects, or
// the error of a template.
func render(dir, into string, set values) (map[string]string, error) {
	made, err := renderOn(dir, into, kubernetes, set, mutatingKind)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(made, func(name, text string) bool { return !says(text) || path.Ext(name) != ".yaml" })
	return made, nil
}

// renderOn is render for an API server of a version, which has these kinds too, with files that have no object.
func renderOn(dir, into, version string, set values, kinds ...string) (map[string]string, error) {
	chart, err := loader.Load(dir)
	if err != nil {
		return nil, fmt.Errorf("load chart %s: %w", dir, err)
	}
	able := chartutil.DefaultCapabilities.Copy()
	if able.KubeVersion, err = kubeVersion(version); err != nil {
		return nil, err
	}
	able.APIVersions = append(slices.Clone(able.APIVersions), kinds...)
	all, err := chartutil.ToRenderValues(chart, set, chartutil.ReleaseOptions{Name: "kerf", Namespace: into,
		IsInstall: true}, able)
	if err != nil {
		return nil, fmt.Errorf("values of chart %s: %w", dir, err)
	}
	made, err := engine.Render(chart, all)
	if err != nil {
		return nil, fmt.Errorf("render chart %s: %w", dir, err)
	}
	out := map[string]string{}
	for name, text := range made {
		name = strings.TrimPrefix(name, path.Join(chart.Name(), "templates")+"/")
		out[name] = tidy(text)
	}
	return out, nil
}

// kubeVersion reads a version such as v1.37.1.
func kubeVersion(version string) (chartutil.KubeVersion, error) {
	v, err := chartutil.ParseKubeVersion(version)
	if err != nil {
		return chartutil.KubeVersion{}, fmt.Errorf("version %s: %w", version, err)
	}
	return *v, nil
}

// blank finds the empty lines that templates leave.
var blank = regexp.MustCompile(`\A\n+|\n+\z`)

// tidy is the text with one end of line at its end, and none before it begins.
func tidy(text string) string { return blank.ReplaceAllString(text, "") + "\n" }

// says is false for a text of comments alone.
func says(text string) bool {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line != "---" && !strings.HasPrefix(line, "#") {
			return true
		}
	}
	return false
}

// joined is everything rendered as one text, in the order of the files' names, as "helm template" prints it.
func joined(files map[string]string) string {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "---\n# Source: %s\n%s", name, files[name])
	}
	return b.String()
}

// compare is the first difference between what was made and what lies in a file, empty where there is none. With write
// set the file is made so.
func compare(file, text string, write bool) (string, error) {
	if write {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return "", err
		}
		return "", os.WriteFile(file, []byte(text), 0o644)
	}
	have, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if string(have) == text {
		return "", nil
	}
	a, b := strings.Split(string(have), "\n"), strings.Split(text, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d is\n  %s\nand not\n  %s", i+1, a[i], b[i]), nil
		}
	}
	return fmt.Sprintf("it has %d lines, not %d", len(a), len(b)), nil
}
