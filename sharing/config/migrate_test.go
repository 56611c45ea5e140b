// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

const oldConfig = `# rules of the site
apiVersion: "kerf.dev/v1alpha1" # quoted
kind: SharingConfig
spec:
  prices: {currency: EUR, kWh: 0.3, gpuHour: [{model: "*", price: 2}]}
  pools:
  - name: a   # the first
    place: spread
    minEnforcement: client
    overCap: warn
    strangers: report   # see the log

    compute: strict
    mpsSharing: domain
    sharers: 4
    gpus: # rules
    - {index: [0], exclude: true}
    - {index: [1], sharers: 2, minEnforcement: client}
    mig:
    - {gpus: [2], pci: ["0x233010DE"], enabled: false}
    migKeepWarm: 1m
    migReset: true
    migOnDemand: false
    idle: {after: 30m, do: notify, except: ["größe", x]}
    health: {onFault: evict, 'grace': 30s, node: taint, spotTaints: [spot]}
    gpuHour: 3
    profiles: [small]
  profiles:
  - {name: small, memory: 10GiB, gpus: 1, place: pack, overCap: kill, burstMax: 150%,
     hours: [Mon 08:00-18:00],
     namespaces: [ml], privileged: true}
`

const newConfig = `# rules of the site
apiVersion: "kerf.dev/v1alpha2" # quoted
kind: SharingConfig
spec:
  prices: {currency: EUR, perKWh: 0.3, perGPUHour: [{model: "*", price: 2}]}
  pools:
  - name: a   # the first
    placementPolicy: spread
    minEnforcement: userspace
    onOverCap: warn
    onUnmanagedProcess: warn   # see the log

    computePolicy: strict
    mpsDaemonScope: namespace
    maxSharesPerGPU: 4
    gpuRules: # rules
    - {index: [0], excluded: true}
    - {index: [1], maxSharesPerGPU: 2, minEnforcement: userspace}
    migLayouts:
    - {index: [2], deviceFilter: ["0x233010DE"], migEnabled: false}
    migIdleTTL: 1m
    allowGPUReset: true
    autoMIGMode: false
    idle: {timeout: 30m, action: warn, exemptNamespaces: ["größe", x]}
    health: {onFault: evict, 'gracePeriod': 30s, nodeSignal: taint, terminationTaints: [spot]}
    perGPUHour: 3
    allowedProfiles: [small]
  profiles:
  - {name: small, memory: 10GiB, gpuCount: 1, placementPolicy: pack, onOverCap: kill, maxBurstMemory: 150%,
     startWindows: [Mon 08:00-18:00],
     namespaces: [ml], allowPrivileged: true}
`

// A conversion changes only the renamed words, there and back.
func TestMigrate(t *testing.T) {
	t.Parallel()
	got, err := Migrate([]byte(oldConfig))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(newConfig, string(got)); d != "" {
		t.Error(d)
	}
	if again, err := Migrate(got); err != nil || string(again) != newConfig {
		t.Errorf("a new text is changed: %v", err)
	}
	if back, err := MigrateBack(got); err != nil || string(back) != oldConfig {
		t.Errorf("%v\n%s", err, cmp.Diff(oldConfig, string(back)))
	}
	if len(Changes(got)) != 0 || Warning(File{Data: got}) != "" {
		t.Error("a new text is outdated")
	}
	changes := Changes([]byte(oldConfig))
	if len(changes) != 38 || changes[0].Path != "apiVersion" ||
		!strings.Contains(Warning(File{Data: []byte(oldConfig)}),
			"kerf config migrate") {
		t.Errorf("%d changes: %v", len(changes), changes)
	}
	if want := `line 5: spec.prices.kWh is now "perKWh"`; len(changes) > 1 &&
		changes[1].String() != want && changes[2].String() != want {
		t.Errorf("%s, %s", changes[1], changes[2])
	}
}

// Old names in a text of the new version are renamed, too: validate tells its reader to run the command.
func TestMigrateMixed(t *testing.T) {
	t.Parallel()
	got, err := Migrate([]byte(strings.Replace(oldConfig, OldAPIVersion, APIVersion, 1)))
	if err != nil || string(got) != newConfig {
		t.Errorf("%v\n%s", err, cmp.Diff(newConfig, string(got)))
	}
}

// The last known good config is kept in the old version, and comes back as it was.
func TestForRollback(t *testing.T) {
	t.Parallel()
	files := []File{{Name: "a.yaml", Data: []byte(newConfig)}, {Name: "b.yaml", Data: []byte("kind: Other\n")}}
	kept := ForRollback(files)
	if string(kept[0].Data) != oldConfig || kept[0].Name != "a.yaml" || string(kept[1].Data) != "kind: Other\n" {
		t.Errorf("%s", kept)
	}
	if d := cmp.Diff(files, Current(kept)); d != "" {
		t.Error(d)
	}
}

// A name that is written in another form than plain text is an error, and not a wrong file.
func TestMigrateEscapes(t *testing.T) {
	t.Parallel()
	text := strings.Replace(oldConfig, "'grace'", `"gr\u0061ce"`, 1)
	if got, err := Migrate([]byte(text)); !errors.Is(err, sharing.ErrInvalid) || got != nil {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := Decode([]byte(strings.Replace(text, "[\"größe\", x]", "[x]", 1))); err != nil {
		t.Error(err)
	}
}

// The old version reads as the new one, and old names in the new version are errors that give the new name.
func TestOldVersion(t *testing.T) {
	t.Parallel()
	valid := strings.NewReplacer("[\"größe\", x]", "[x]")
	before, err := Decode([]byte(valid.Replace(oldConfig)))
	if err != nil {
		t.Fatal(err)
	}
	after, err := Decode([]byte(valid.Replace(newConfig)))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(after.Spec(), before.Spec()); d != "" {
		t.Error(d)
	}
	_, err = Decode([]byte(strings.Replace(valid.Replace(oldConfig), "v1alpha1", "v1alpha2", 1)))
	for _, want := range []string{
		"line 14: spec.pools[0].mpsSharing is now \"mpsDaemonScope\"; run 'kerf config migrate'",
		"line 24: spec.pools[0].idle.do is now \"action\"",
		"line 29: spec.profiles[0].gpus is now \"gpuCount\"",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
	_, err = Decode([]byte(strings.Replace(valid.Replace(newConfig), "onUnmanagedProcess: warn",
		"onUnmanagedProcess: report", 1)))
	if err == nil || !strings.Contains(err.Error(), `"report" is now "warn"`) {
		t.Error(err)
	}
}

// Every field that was renamed has another name now, once.
func TestRenames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range Renames() {
		key := r.Where + "." + r.Old
		if r.Old == r.New || seen[key] {
			t.Errorf("%+v", r)
		}
		seen[key] = true
	}
	if !seen["pools.sharers"] || !seen["pools.gpuRules.exclude"] || !seen["pools.strangers: report"] {
		t.Error(seen)
	}
}
