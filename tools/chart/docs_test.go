// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/strvals"
)

// TestDocumentedCommands: each value that the admin guide sets is one that the chart takes, each file that it names is there,
// and each value that it speaks of exists.
func TestDocumentedCommands(t *testing.T) {
	data, err := os.ReadFile("../../docs/admin.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
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
	for _, m := range regexp.MustCompile("`(agent|monitor|scheduler|admission|networkPolicy|podMonitor|priorityClass|poolDefaults)\\.(\\w+)`").FindAllStringSubmatch(text, -1) {
		if section, _ := defaults[m[1]].(values); section[m[2]] == nil {
			t.Errorf("the chart has no value %s.%s", m[1], m[2])
		}
	}
}
