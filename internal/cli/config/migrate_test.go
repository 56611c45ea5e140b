// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
)

const oldText = "# rules\napiVersion: kerf.dev/v1alpha1\nkind: SharingConfig\nspec:\n  pools:\n  - name: default\n" +
	"    sharers: 4 # at most\n    strangers: report\n"

const newText = "# rules\napiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools:\n  - name: default\n" +
	"    maxSharesPerGPU: 4 # at most\n    onUnmanagedProcess: warn\n"

// inBlock is a manifest with the text as a literal block.
func inBlock(text string) string {
	return "kind: Namespace\n---\nkind: ConfigMap\ndata:\n  sharing.yaml: |\n    " +
		strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ") + "\n  # end\n"
}

func TestConfigMigrate(t *testing.T) {
	const listed = `line 7: spec.pools[0].sharers is now "maxSharesPerGPU"`
	for name, tt := range map[string]struct {
		files     map[string]string
		in        string
		args      []string
		out, errs string
		code      int
	}{
		"a file": {map[string]string{"a.yaml": oldText}, "", []string{"a.yaml"}, newText, listed,
			command.ExitOK},
		"standard input": {nil, oldText, []string{"-"}, newText, listed, command.ExitOK},
		"no argument":    {nil, oldText, nil, newText, listed, command.ExitOK},
		"a manifest": {nil, inBlock(oldText), nil, inBlock(newText),
			`line 12: spec.pools[0].sharers is now "maxSharesPerGPU"`, command.ExitOK},
		"a new file": {nil, newText, nil, newText, "", command.ExitOK},
		"only old names": {nil, strings.Replace(oldText, "v1alpha1", "v1alpha2", 1), nil, newText, listed,
			command.ExitOK},
		"not a literal block": {nil, "data:\n  sharing.yaml: \"" + strings.ReplaceAll(oldText, "\n", "\\n") + "\"\n",
			nil, "", "line 2 has a SharingConfig in a form that cannot be converted", command.ExitFailure},
		"not YAML":                 {nil, "a: [", nil, "", "read the config", command.ExitFailure},
		"--write without file":     {nil, oldText, []string{"-w"}, "", "name a FILE", command.ExitUsage},
		"a file that is not there": {nil, "", []string{"b.yaml"}, "", "b.yaml", command.ExitFailure},
	} {
		t.Run(name, func(t *testing.T) {
			out, errs, code := runConfig(t, tt.files, tt.in, append([]string{"migrate"}, tt.args...)...)
			if code != tt.code || out != tt.out || !strings.Contains(errs, tt.errs) || tt.errs == "" && errs != "" {
				t.Errorf("status %d\n%s\n%s", code, out, errs)
			}
		})
	}
}

// The file keeps its mode, and validate accepts it afterwards.
func TestConfigMigrateWrites(t *testing.T) {
	out, errs, code := runConfig(t, map[string]string{"a.yaml": oldText}, "", "migrate", "--write", "a.yaml")
	got, err := os.ReadFile("a.yaml")
	info, statErr := os.Stat("a.yaml")
	if code != command.ExitOK || out != "" || err != nil || string(got) != newText || statErr != nil ||
		info.Mode().Perm() != 0o600 {
		t.Errorf("status %d, %v, %v: %s%s\n%s", code, err, statErr, out, errs, got)
	}
}

// A config of the version before is valid; each old name is a warning. In the current version it is an error.
func TestConfigValidateOldNames(t *testing.T) {
	files := map[string]string{"a.yaml": oldText, "b.yaml": strings.Replace(oldText, "v1alpha1", "v1alpha2", 1)}
	out, errs, code := runConfig(t, files, "", "validate", "a.yaml")
	if code != command.ExitOK || !strings.HasPrefix(out, "valid: 1 pools") ||
		!strings.Contains(errs, "run 'kerf config migrate'") ||
		!strings.Contains(errs, `warning: a.yaml: line 8: spec.pools[0].strangers "report" is now "warn"`) {
		t.Errorf("status %d: %s%s", code, out, errs)
	}
	out, errs, code = runConfig(t, files, "", "validate", "-o", "json", "a.yaml")
	var v validated
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != command.ExitOK || !v.Valid ||
		len(v.Warnings) != 5 || errs != "" {
		t.Errorf("status %d, %v: %s%s", code, err, out, errs)
	}
	if _, errs, code = runConfig(t, files, "", "validate", "b.yaml"); code != command.ExitFailure ||
		!strings.Contains(errs,
			`b.yaml: line 7: spec.pools[0].sharers is now "maxSharesPerGPU"; run 'kerf config migrate'`) {
		t.Errorf("status %d: %s", code, errs)
	}
}
