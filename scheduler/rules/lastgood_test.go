// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kerf-gpu/kerf/sharing/config"
)

const lastGoodName = "kerf-config-last-good"

// keptBy is the copy of a config, with the mark of a scheduler that wrote it.
func keptBy(text string) (data, annotations map[string]string) {
	files := config.ForRollback([]config.File{{Name: "sharing.yaml", Data: []byte(text)}})
	return map[string]string{"sharing.yaml": string(files[0].Data)},
		map[string]string{hashAnnotation: config.Hash(files)}
}

// hashOf is the hash of a config that is applied.
func hashOf(text string) string { return config.Hash([]config.File{{Data: []byte(text)}}) }

// A scheduler that starts while the config has errors uses the copy of the last good one if a scheduler wrote one. Else
// it grants no GPU until a good config comes.
func TestStartOnABadConfig(t *testing.T) {
	good, mark := keptBy(configOf("{name: small, memory: 4GiB}"))
	spoilt, spoiltMark := keptBy(configOf("{name: small, mmeory: 4GiB}"))
	for name, tt := range map[string]struct {
		missing    bool
		data, mark map[string]string
		found      bool
	}{
		"a copy":                 {data: good, mark: mark, found: true},
		"no copy yet":            {},
		"nowhere to keep one":    {missing: true},
		"changed by hand":        {data: maps.Clone(good), mark: spoiltMark},
		"no writer":              {data: good},
		"a copy that has errors": {data: spoilt, mark: spoiltMark},
		"a copy with another's file": {data: map[string]string{"sharing.yaml": good["sharing.yaml"], "more.yaml": "x"},
			mark: mark},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			if !tt.missing {
				m := inKerf(lastGoodName, tt.data)
				m.Annotations = tt.mark
				client = fake.NewClientset(m)
			}
			r := unread(t)
			file := filepath.Join(t.TempDir(), "sharing.yaml")
			if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
				t.Fatal(err)
			}
			var reported []string
			starting := true
			tell := func() {
				r.tellRefusal(func(note string) { reported = append(reported, note) }, func() bool { return !starting })
			}
			seen := r.Read(t.Context(), Sources{File: file})
			if tell(); len(reported) != 0 {
				t.Errorf("reported before events are heard: %q", reported)
			}
			starting = false
			l := lastGood{newOwned(r, client, "kerf-system/"+lastGoodName, "me")}
			if err := l.look(t.Context()); (err == nil) != tt.found {
				t.Fatalf("the copy is found: %v", err)
			}
			for range 2 {
				tell()
			}
			stays := "no earlier one is known"
			if tt.found {
				stays = hashOf(configOf("{name: small, memory: 4GiB}")) + " stays applied"
			}
			if len(reported) != 1 || !strings.Contains(reported[0], stays) ||
				!strings.Contains(reported[0], "nonsense") && !strings.Contains(reported[0], "line 1") {
				t.Errorf("reported %q, want once with %q and the error", reported, stays)
			}
			if err := r.Err(); (err == nil) != tt.found || !tt.found &&
				(!errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "kerf config validate")) {
				t.Errorf("there are rules: %v", err)
			}

			// A corrected config counts, whatever was kept, and is what is kept from then on.
			fixed := candidate("a test",
				[]config.File{{Name: "sharing.yaml", Data: []byte(configOf("{name: small, memory: 7GiB}"))}})
			if fixed.Err != nil || seen == fixed.Hash {
				t.Fatal(fixed.Err)
			}
			if r.take(t.Context(), fixed); r.Err() != nil {
				t.Error(r.Err())
			}
			err := l.look(t.Context())
			if tt.missing {
				if err == nil || !strings.Contains(err.Error(), "helm upgrade") {
					t.Errorf("nowhere to keep it: %v", err)
				}
				return
			}
			m, getErr := client.CoreV1().ConfigMaps("kerf-system").Get(t.Context(), lastGoodName, metav1.GetOptions{})
			if err != nil || getErr != nil {
				t.Fatal(err, getErr)
			}
			kept := config.ForRollback(fixed.Files)
			if m.Annotations[hashAnnotation] != config.Hash(kept) || len(m.Data) != 1 ||
				m.Data["sharing.yaml"] != string(kept[0].Data) || m.Labels["a"] != "b" ||
				!strings.Contains(m.Data["sharing.yaml"], config.OldAPIVersion) {
				t.Errorf("kept is %+v", m)
			}
		})
	}
}

// A standby keeps nothing, and a config with errors is never kept.
func TestLastGoodIsTheLeaders(t *testing.T) {
	data, mark := keptBy(configOf("{name: small, memory: 4GiB}"))
	m := inKerf(lastGoodName, data)
	m.Annotations = mark
	client := fake.NewClientset(m)
	r := unread(t)
	r.Led("other_1")
	next := candidate("a test", []config.File{
		{Name: "sharing.yaml", Data: []byte(configOf("{name: small, memory: 7GiB}"))}})
	r.take(t.Context(), next)
	l := lastGood{newOwned(r, client, "kerf-system/"+lastGoodName, "me")}
	kept := func() string {
		t.Helper()
		if err := l.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		m, err := client.CoreV1().ConfigMaps("kerf-system").Get(t.Context(), lastGoodName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return m.Annotations[hashAnnotation]
	}
	if got := kept(); got != mark[hashAnnotation] {
		t.Errorf("who stands by has written %s", got)
	}
	r.Led("me_1")
	r.refuse(t.Context(), candidate("a test", []config.File{{Name: "sharing.yaml", Data: []byte("nonsense")}}))
	if got, want := kept(), config.Hash(config.ForRollback(next.Files)); got != want {
		t.Errorf("the leader has kept %s, want %s", got, want)
	}
}

// From a start with errors to the kept config, and to the corrected one: all by what runs with the scheduler.
func TestRulesAreFoundAgain(t *testing.T) {
	data, mark := keptBy(configOf("{name: small, memory: 4GiB}"))
	copied := inKerf(lastGoodName, data)
	copied.Annotations = mark
	client := fake.NewClientset(inKerf("kerf-config", map[string]string{"sharing.yaml": "nonsense"}), copied)
	file := filepath.Join(t.TempDir(), "sharing.yaml")
	if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, ctx := running(t)
	from := Sources{File: file, ConfigMap: "kerf-system/kerf-config", LastGood: "kerf-system/" + lastGoodName}
	if err := r.Watch(ctx, from, client, r.Read(ctx, from), nil, nil); err != nil {
		t.Fatal(err)
	}
	become := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			r.mu.Lock()
			hash := r.hash
			r.mu.Unlock()
			if hash == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("applied is %q, want %q", hash, want)
			}
		}
	}
	become(hashOf(configOf("{name: small, memory: 4GiB}")))
	fixed := configOf("{name: small, memory: 7GiB}")
	if _, err := client.CoreV1().ConfigMaps("kerf-system").Update(ctx, inKerf("kerf-config",
		map[string]string{"sharing.yaml": fixed}),
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	become(hashOf(fixed))
}
