// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/sharing/config"
)

func TestMIGImport(t *testing.T) {
	const doc = `version: v1
mig-configs:
  all-disabled:
  - {devices: all, mig-enabled: false}
  balanced:
  - {device-filter: ["0x20b210de", "0x233010DE:0x16C110DE"], devices: all, mig-enabled: true, mig-devices: {1g.10gb: 2, MIG 1g.10gb: 1, 3g.40gb: 1}}
  - {devices: [0, 3], mig-enabled: true, mig-devices: {}}
  - {devices: [], mig-enabled: true, mig-devices: {7g: 1}}
`
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(in string, args ...string) (string, string, int) {
		var out, errOut bytes.Buffer
		a := &command.App{In: strings.NewReader(in), Out: &out, ErrOut: &errOut,
			Getenv: func(string) string { return "" }}
		code, _ := a.Execute(append([]string{"mig", "import"}, args...), Commands)
		return out.String(), errOut.String(), code
	}
	selector := func(name string) map[string]string { return map[string]string{partedLabel: name} }
	balanced := config.Pool{Name: "balanced", NodeSelector: selector("balanced"), AutoMIGMode: config.AutoMIGModeOff,
		MIGLayouts: []config.MIGLayout{
			{PCI: []string{"0x20B210DE", "0x233010DE:0x16C110DE"}, Enabled: true,
				Instances: []config.MIGCount{{Profile: "1g.10gb", Count: 3}, {Profile: "3g.40gb", Count: 1}}},
			{GPUs: []int{0, 3}, Enabled: true},
		}}
	disabled := config.Pool{Name: "all-disabled", NodeSelector: selector("all-disabled"),
		AutoMIGMode: config.AutoMIGModeOff, MIGLayouts: []config.MIGLayout{{}}}
	for name, tt := range map[string]struct {
		in   string
		args []string
		want []config.Pool
	}{
		"all": {"", []string{file}, []config.Pool{disabled, balanced}},
		"one": {"", []string{file, "--config", "balanced"}, []config.Pool{balanced}},
		"a ConfigMap": {"kind: ConfigMap\ndata:\n  config.yaml: |\n    " +
			strings.ReplaceAll(doc, "\n", "\n    ") + "\n", []string{"-"}, []config.Pool{disabled, balanced}},
		"standard input": {doc, []string{"-", "--config", "balanced", "--config", "all-disabled"},
			[]config.Pool{balanced, disabled}},
	} {
		text, errs, code := run(tt.in, tt.args...)
		c, err := config.Decode([]byte(text))
		if d := cmp.Diff(tt.want, c.Pools()); d != "" || err != nil || code != command.ExitOK || errs != "" {
			t.Errorf("%s: status %d, %s, %v (-want +got):\n%s\n%s", name, code, errs, err, d, text)
		}
	}
	bad := "version: v1\nmig-configs:\n  Bad_name:\n  - {devices: all, mig-enabled: false}\n"
	for name, tt := range map[string]struct {
		in, want string
		args     []string
		code     int
	}{
		"no such file": {"", "read input: open ", []string{file + "x"}, command.ExitFailure},
		"no such config": {doc, `--config "x" is no config of the file; write one of all-disabled, balanced`,
			[]string{"-", "--config", "x"}, command.ExitFailure},
		"two errors": {"version: v2\nmig-configs: {}\n", "kerf mig import: line 2: mig-configs is empty",
			[]string{"-"}, command.ExitFailure},
		"a name":    {bad, `mig-configs.Bad_name "Bad_name"`, []string{"-"}, command.ExitFailure},
		"too large": {strings.Repeat("#", 2<<20), "is larger than 1048576 bytes", []string{"-"}, command.ExitFailure},
		"no file":   {"", "accepts 1 arg", nil, command.ExitUsage},
		"too many": {strings.Replace(doc, "1g.10gb: 2", "1g.10gb: 33", 1), "is not a number of instances",
			[]string{"-"}, command.ExitFailure},
	} {
		text, errs, code := run(tt.in, tt.args...)
		if text != "" || code != tt.code || !strings.Contains(errs, tt.want) {
			t.Errorf("%s: status %d, %q, %s", name, code, text, errs)
		}
	}
}
