// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
)

// runConfig runs one config command in a folder with the files.
func runConfig(t *testing.T, files map[string]string, in string, args ...string) (out, errs string, code int) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr bytes.Buffer
	a := &command.App{In: strings.NewReader(in), Out: &stdout, ErrOut: &stderr,
		Getenv: func(string) string { return "" }}
	code, _ = a.Execute(append([]string{"config"}, args...), Commands)
	return stdout.String(), stderr.String(), code
}

const goodConfig = "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools:\n  - name: default\n"

func TestConfigValidateForScripts(t *testing.T) {
	out, errs, code := runConfig(t, map[string]string{"a.yaml": goodConfig}, "", "validate", "a.yaml", "-o", "json")
	var v validated
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != command.ExitOK || errs != "" || !v.Valid ||
		len(v.SHA256) != 64 || len(v.Pools) != 1 || v.Pools[0] != "default" || len(v.Errors) > 0 {
		t.Errorf("status %d, %v: %s%s", code, err, out, errs)
	}
	out, errs, code = runConfig(t, map[string]string{"a.yaml": goodConfig + "    mode: hole\n    colour: red\n"}, "",
		"validate", "a.yaml", "-o", "json")
	v = validated{}
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != command.ExitFailure || v.Valid ||
		len(v.Errors) != 2 || !strings.Contains(errs, v.Errors[0].Text) {
		t.Fatalf("status %d, %v: %s%s", code, err, out, errs)
	}
	if m := v.Errors[0]; m.File != "a.yaml" || m.Line != 6 || m.Path != "spec.pools[0].mode" || m.Value != "hole" ||
		m.Problem == "" || m.Remedy == "" {
		t.Errorf("%+v", m)
	}
	if out, _, code := runConfig(t, nil, "", "validate", "a.yaml", "-o", "yaml"); code != command.ExitFailure ||
		out != "" {
		t.Errorf("no file: status %d: %s", code, out)
	}
	if _, errs, code := runConfig(t, nil, "", "validate", "a.yaml", "-o", "csv"); code != command.ExitUsage ||
		!strings.Contains(errs, "is not a form of output") {
		t.Errorf("a wrong form: status %d: %s", code, errs)
	}
}

func TestConfigValidate(t *testing.T) {
	manifest := func(text string) string {
		return "# a comment\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: kerf-config}\ndata:\n  notes: text\n  " +
			"sharing.yaml: |\n    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"
	}
	for name, tt := range map[string]struct {
		files     map[string]string
		in        string
		args      []string
		out, errs string
	}{
		"good": {map[string]string{"a.yaml": goodConfig}, "", []string{"a.yaml"},
			"valid: 1 pools, 0 profiles, sha256 ", ""},
		"standard input": {nil, goodConfig, []string{"-"}, "valid: 1 pools", ""},
		"two files": {
			map[string]string{"a.yaml": goodConfig,
				"b.yaml": "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  profiles: [{name: s, " +
					"percent: 10}]\n"},
			"", []string{"a.yaml", "b.yaml"}, "valid: 1 pools, 1 profiles", "",
		},
		"a manifest": {nil, manifest(goodConfig), []string{"-"}, "valid: 1 pools", ""},
		"an error": {map[string]string{"a.yaml": goodConfig + "    mode: hole\n"}, "", []string{"a.yaml"}, "",
			`a.yaml: line 6: spec.pools[0].mode "hole"`},
		"in manifests": {nil, "kind: Namespace\n---\n" + manifest(goodConfig+"    mode: hole\n"), []string{"-"}, "",
			`stdin (sharing.yaml): line 15: spec.pools[0].mode "hole"`},
		"twice": {map[string]string{"a.yaml": goodConfig}, "", []string{"a.yaml", "a.yaml"}, "",
			`FILE "a.yaml" is named twice`},
		"no file": {nil, "", []string{"a.yaml"}, "", "read input"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := runConfig(t, tt.files, tt.in, append([]string{"validate"}, tt.args...)...)
			want := command.ExitOK
			if tt.errs != "" {
				want = command.ExitFailure
			}
			if code != want || !strings.HasPrefix(out, tt.out) || !strings.Contains(errs, tt.errs) || tt.errs == "" &&
				errs != "" {
				t.Errorf("status %d\n%s\n%s", code, out, errs)
			}
		})
	}
}

// What is deployed is valid, and its hash is that which agents show of the ConfigMap.
func TestConfigValidateDeployed(t *testing.T) {
	path, err := filepath.Abs("../../../deploy/manifests/20-config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if out, errs, code := runConfig(t, nil, "", "validate", path); code != command.ExitOK {
		t.Errorf("%s%s", out, errs)
	}
}

func TestConfigSchema(t *testing.T) {
	out, _, code := runConfig(t, nil, "", "schema")
	if !json.Valid([]byte(out)) || code != command.ExitOK {
		t.Errorf("status %d: %s", code, out)
	}
}
