// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/test/eventually"
)

// The agent applies what the ConfigMap says once it has settled. Errors change nothing and are reported, and the file
// counts no more, since it is older.
func TestFollowConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(goodConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	a, _ := built(t, file)
	seen := a.First()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Watch(ctx, seen) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	find := func(texts ...string) {
		data := map[string]string{"notes.txt": "no document"}
		for i, text := range texts {
			data[string(rune('a'+i))+".yaml"] = text
		}
		a.found <- a.candidate("configmap ns/name", config.FilesOf(data))
	}
	wait := func(what string, ok func() bool) {
		t.Helper()
		eventually.Nil(t, what, func() error {
			if s := a.Runtime.State(t.Context()); !ok() {
				return fmt.Errorf("pool %q of %+v, errors %q", s.Pool, s.Config, s.ConfigErrors)
			}
			return nil
		})
	}
	for range 20 {
		find(badConfig)
		find(otherGood)
	}
	find(badConfig)
	wait("the last good one of many", func() bool {
		s := a.Runtime.State(t.Context())
		return s.Pool == "two" && s.Config.File == "configmap ns/name" &&
			strings.Contains(strings.Join(s.ConfigErrors, "\n"), "a.yaml: line 6: spec.pools[0].colour")
	})
	more := "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  profiles: [{name: small, percent: 10}]\n"
	find(otherGood, more)
	wait("two files", func() bool {
		s := a.Runtime.State(t.Context())
		return len(s.Profiles) == 1 && len(s.ConfigErrors) == 0
	})
	b, _ := built(t, file)
	b.Options.Dirs.Dir, b.State = a.Options.Dirs.Dir, a.State
	if err := os.WriteFile(file, []byte(badConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	b.First()
	if s := b.Runtime.State(t.Context()); s.Pool != "two" || len(s.Profiles) != 1 {
		t.Errorf("an agent that starts on a bad file: pool %q, profiles %q", s.Pool, s.Profiles)
	}
}

// A hundred changes come in ten seconds, every second one with errors. One config is applied once: the last valid one.
// What is rejected after it is reported once.
func TestHundredChanges(t *testing.T) {
	for name, tt := range map[string]struct {
		lastBad          bool
		applied, refused int64
	}{
		"the last one valid":       {false, 1, 0},
		"the last one with errors": {true, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(file, []byte(goodConfig), 0o600); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				a, _ := built(t, file)
				var n counts
				a.Events = &n
				seen := a.First()
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- a.Watch(ctx, seen) }()
				first := n.applied.Load()
				const changes = 100
				begin, last := time.Now(), ""
				for i := range changes {
					text := fmt.Sprintf("# change %d\n%s", i, otherGood)
					bad := i%2 == 1
					if i == changes-1 {
						bad = tt.lastBad
					}
					if bad {
						text = fmt.Sprintf("# change %d\n%s", i, badConfig)
					} else {
						last = text
					}
					a.found <- a.candidate("configmap ns/name", config.FilesOf(map[string]string{"a.yaml": text}))
					time.Sleep(10 * time.Second / changes)
				}
				if took := time.Since(begin); took != 10*time.Second {
					t.Errorf("they took %v", took)
				}
				if got := n.applied.Load() - first; got != 0 {
					t.Errorf("%v configs were applied while they came", got)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := n.applied.Load() - first; got != tt.applied {
					t.Errorf("%v configs were applied, want %v", got, tt.applied)
				}
				if got := n.refused.Load(); got != tt.refused {
					t.Errorf("%v documents were refused, want %v", got, tt.refused)
				}
				if got, want := a.applied.Hash, config.Hash([]config.File{{Data: []byte(last)}}); got != want {
					t.Errorf("%s is applied, want %s, the last valid one", got, want)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Kubelet's copy counts before the API server has answered. While the server is silent, the copy counts once it differs
// from the copy at the start of the silence. That one may be older than the last answer.
func TestFallback(t *testing.T) {
	var f fallback
	look := func(hash string, silent, want bool) {
		t.Helper()
		if got := f.counts(hash, silent); got != want {
			t.Errorf("copy %q, silent %t: counts %t, want %t", hash, silent, got, want)
		}
	}
	look("a", false, true)
	look("a", true, true)
	f.answered = true
	look("old", false, false)
	look("old", true, false)
	look("old", true, false)
	look("new", true, true)
	look("new", true, true)
	look("new", false, false)
	look("newer", false, false)
	look("newer", true, false) // another silence
	look("newest", true, true)
}

func TestReadFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := readFiles(dir); err == nil {
		t.Error("a folder without documents has one")
	}
	for _, name := range []string{"b.yaml", "a.yml", "notes", "..data.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := readFiles(dir)
	if err != nil || len(files) != 2 || files[0].Name != "a.yml" || string(files[1].Data) != "b.yaml" {
		t.Errorf("%+v, %v", files, err)
	}
	one, err := readFiles(filepath.Join(dir, "b.yaml"))
	if err != nil || config.Hash(one) != config.Hash(files[1:]) {
		t.Errorf("a file alone: %+v, %v", one, err)
	}
}
