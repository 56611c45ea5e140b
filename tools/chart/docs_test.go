// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/strvals"
)

// Each value that a page for operators sets is one that the chart takes. Each file and each value that it names exists.
func TestDocumentedCommands(t *testing.T) {
	var text string
	for _, page := range markdown(t, "../../docs/operate") {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text += string(data)
	}
	set := values{}
	sets := regexp.MustCompile(`--set "?([\w.]+=[^"\s`+"`"+`]+)`).FindAllStringSubmatch(text, -1)
	for _, m := range sets {
		if err := strvals.ParseInto(strings.ReplaceAll(m[1], "NAME", "name"), set); err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
	}
	if len(sets) < 8 {
		t.Errorf("%d values are set", len(sets))
	}
	if _, err := render(filepath.Join(deploy, "chart"), namespace, set); err != nil {
		t.Error(err)
	}
	for _, m := range regexp.MustCompile(`(?:-f|kerf) (deploy/[\w./-]+)`).FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(filepath.Join("../..", m[1])); err != nil {
			t.Error(err)
		}
	}
	defaults := read(t, filepath.Join(deploy, "chart/values.yaml"))
	for _, m := range regexp.MustCompile(
		"`(agent|monitor|scheduler|admission|networkPolicy|podMonitor|priorityClass|"+
			"poolDefaults)\\.(\\w+)`").FindAllStringSubmatch(text, -1) {
		if section, _ := defaults[m[1]].(values); section[m[2]] == nil {
			t.Errorf("the chart has no value %s.%s", m[1], m[2])
		}
	}
}

// With --reuse-values Helm renders a newer chart with the defaults of the one before, in which its new values are
// missing: no page has anybody type that, and every upgrade of Kerf keeps what was set.
func TestUpgradesTakeTheNewDefaults(t *testing.T) {
	upgrades := 0
	for _, page := range append(markdown(t, "../../docs"), "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "helm upgrade kerf ") {
				continue
			}
			if upgrades++; !strings.Contains(line, " --reset-then-reuse-values") {
				t.Errorf("%s: %s", page, line)
			}
		}
	}
	if upgrades < 8 {
		t.Errorf("%d upgrades were found", upgrades)
	}
}

// markdown returns the Markdown files below a folder.
func markdown(t *testing.T, folder string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
