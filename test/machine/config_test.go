// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing/config"
)

const head = "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\n"

const goodConfig = head + `spec:
  pools:
  - name: default
    placementPolicy: spread
  profiles:
  - {name: small, memory: 1GiB}
  - {name: half, percent: 50}
`

// write puts a config in place at once, as a mounted ConfigMap does.
func (m *machine) write(text string) string {
	m.t.Helper()
	path := filepath.Join(m.work, "config.yaml")
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// rewrite puts another config in place, and waits until it is applied.
func (m *machine) rewrite(text string) {
	m.t.Helper()
	old := m.state().Config.SHA256
	m.write(text)
	eventually(m.t, "the new document", func() error {
		if s := m.state(); s.Config.SHA256 == old {
			return fmt.Errorf("the old one is applied; errors: %q", s.Config.Errors)
		}
		return nil
	})
}

// wantMistakes waits until the last config has errors as wanted; want is a part of each.
func (m *machine) wantMistakes(want ...string) status {
	m.t.Helper()
	var s status
	eventually(m.t, fmt.Sprintf("errors %q", want), func() error {
		s = m.state()
		all := strings.Join(s.Config.Errors, "\n")
		for _, w := range want {
			if !strings.Contains(all, w) {
				return fmt.Errorf("reported errors: %q", s.Config.Errors)
			}
		}
		if len(want) == 0 && len(s.Config.Errors) > 0 {
			return fmt.Errorf("reported errors: %q", s.Config.Errors)
		}
		return nil
	})
	return s
}

// With errors in the config at the first start, the agent grants nothing and lists every error. A good config in its
// place is enough, without a restart; and a bad one later changes nothing.
func TestConfigDocuments(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text string // "-": no file
		want []string
	}{
		"missing": {"-", []string{"no such file"}},
		"empty":   {"", []string{"empty"}},
		"no YAML": {head + "spec: [}\n", []string{"YAML"}},
		"unknown key": {head + "spec:\n  pools: [{name: a, colour: red}]\n  shares: 4\n",
			[]string{"spec.pools[0].colour", "spec.shares"}},
		"duplicate key": {head + "spec:\n  pools: [{name: a}]\n  pools: [{name: b}]\n",
			[]string{"spec.pools stands twice"}},
		"wrong types": {
			head + "spec:\n  pools: [{name: a, placementPolicy: 1, nodeSelector: [x]}]\n  profiles: [{name: p, " +
				"memory: [1], " +
				"percent: lots}]\n",
			[]string{"spec.pools[0].place", "spec.pools[0].nodeSelector", "spec.profiles[0].memory",
				"spec.profiles[0].percent"},
		},
		"bad amounts": {
			head + "spec:\n  pools: [{name: a}]\n  profiles: [{name: p, memory: -1GiB}, {name: q, percent: 500}, " +
				"{name: q, gpuCount: 0}]\n",
			[]string{"spec.profiles[0].memory", "spec.profiles[1].percent", "spec.profiles[2].name"},
		},
		"newer version": {"apiVersion: kerf.dev/v9\nkind: SharingConfig\nspec: {}\n",
			[]string{"kerf.dev/v9", "kerf.dev/v1alpha2"}},
		"huge": {goodConfig + "#" + strings.Repeat("x", 1<<20), []string{"larger"}},
		"bomb": {
			head + "spec:\n  pools: [{name: &a [x,x,x,x,x,x,x,x,x,x]}, {name: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]}, " +
				"{name: [*b,*b,*b,*b,*b,*b,*b,*b]}]\n",
			[]string{"anchor"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, setup{hardware: "t4x4", noAgent: true})
			path := filepath.Join(m.work, "config.yaml")
			if tt.text != "-" {
				m.write(tt.text)
			}
			m.agentFlags = []string{"--config", path}
			m.startAgent()
			eventually(t, "answer of the agent", func() error {
				if r := m.kerf("status"); r.code != 0 {
					return fmt.Errorf("%v", r)
				}
				return nil
			})
			why := m.wantMistakes(tt.want...)
			if why.Ready || !strings.Contains(strings.Join(why.NotReady, ";"), "config has errors") {
				t.Errorf("ready %v (%q) with a config that has errors", why.Ready, why.NotReady)
			}
			if said := m.refused(flags("--memory 1GiB")); !strings.Contains(said, "config has errors") {
				t.Errorf("refused with: %s", said)
			}
			m.write(goodConfig)
			m.ready()
			s := m.wantMistakes()
			r := m.run(flags("--profile small --name by-profile"), hold())
			if got := r.granted(); got.MemoryBytes != gib {
				t.Errorf("a grant by profile: %+v", got)
			}
			m.keepsLastGood(s, tt.text, tt.want)
		})
	}
}

// keepsLastGood puts the bad config in again: the applied one stays, also over a restart.
func (m *machine) keepsLastGood(good status, bad string, want []string) {
	m.t.Helper()
	if bad == "-" {
		if err := os.Remove(filepath.Join(m.work, "config.yaml")); err != nil {
			m.t.Fatal(err)
		}
	} else {
		m.write(bad)
	}
	for _, restart := range []bool{false, true} {
		if restart {
			m.restartAgent()
		}
		s := m.wantMistakes(want...)
		if !s.Ready || s.Config.SHA256 != good.Config.SHA256 || len(s.Config.Profiles) != 2 || len(s.Warnings) == 0 {
			m.t.Errorf("after a bad edit (restart %v): ready %v %q, config %+v, warnings %q", restart, s.Ready,
				s.NotReady, s.Config, s.Warnings)
		}
		if got := m.run(flags("--profile half"), []string{"true"}).wait(); got.code != 0 {
			m.t.Errorf("a grant by the last good document (restart %v): %v", restart, got)
		}
	}
	if _, there := m.state().grant("by-profile"); !there {
		m.t.Error("the running grant is gone")
	}
	checkInvariants(m.t, m)
}

// An agent that starts with a config of the version before applies it, and status shows one warning until the config is
// converted. The conversion changes no rule.
func TestConfigOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", driver: "r580", noAgent: true})
	old := config.ForRollback([]config.File{{Data: []byte(goodConfig)}})[0].Data
	if !strings.Contains(string(old), "    place: spread\n") {
		t.Fatalf("the config of the version before: %s", old)
	}
	m.agentFlags = []string{"--config", m.write(string(old))}
	m.startAgent()
	m.ready()
	warnings := func() (n int) {
		for _, w := range m.state().Warnings {
			if strings.Contains(w, "kerf config migrate") {
				n++
			}
		}
		return n
	}
	if s := m.wantMistakes(); len(s.Config.Profiles) != 2 || warnings() != 1 {
		t.Errorf("config %+v, warnings %q", s.Config, s.Warnings)
	}
	m.run(flags("--profile half"), hold()).granted()
	m.rewrite(goodConfig)
	if s := m.wantMistakes(); len(s.Config.Profiles) != 2 || warnings() != 0 {
		t.Errorf("after the conversion: config %+v, warnings %q", s.Config, s.Warnings)
	}
	checkInvariants(t, m)
}

// A node that is rebooted while the config is bad uses the last known good one.
func TestLastGoodOutlivesAReboot(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", driver: "r580", noAgent: true})
	m.agentFlags = []string{"--config", m.write(goodConfig)}
	m.startAgent()
	m.ready()
	good := m.wantMistakes()
	used := m.run(flags("--profile half"), hold())
	used.granted()
	m.write(head + "spec: {pols: []}\n")
	m.wantMistakes("pols")
	m.reboot(used)
	m.startAgent()
	m.ready()
	s := m.wantMistakes("pols")
	if s.Config.SHA256 != good.Config.SHA256 || len(s.Config.Profiles) != 2 {
		t.Errorf("applied after a reboot: %+v, want %+v", s.Config, good.Config)
	}
	m.noGrants()
	m.run(flags("--profile half"), hold()).granted()
	checkInvariants(t, m)
}

// The pool's rules hold for grants made after a change, not for what runs.
func TestConfigChangesOnlyWhatComesAfter(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", driver: "r580", noAgent: true})
	m.agentFlags = []string{"--config", m.write(goodConfig)}
	m.startAgent()
	m.ready()
	m.run(flags("--memory 1GiB --name old"), hold()).granted()
	m.write(head + "spec:\n  pools: [{name: default, minEnforcement: driver, allowedProfiles: [small]}]\n  profiles: " +
		"[{name: small, memory: 2GiB}]\n")
	eventually(t, "the new document", func() error {
		if s := m.state(); len(s.Config.Profiles) != 1 {
			return fmt.Errorf("profiles %q", s.Config.Profiles)
		}
		return nil
	})
	if said := m.refused(flags("--memory 1GiB")); !strings.Contains(said, "profile") {
		t.Errorf("a grant without a profile is refused with: %s", said)
	}
	if said := m.refused(flags("--profile small")); !strings.Contains(said, "driver") {
		t.Errorf("the pool's least level is refused with: %s", said)
	}
	if g := m.grant("old"); g.Memory != gib || g.State != "Active" {
		t.Errorf("the running grant changed: %+v", g)
	}
	checkInvariants(t, m)
}
