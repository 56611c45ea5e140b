// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// content is what a file has, "-" where there is none.
func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "-"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestGenerations(t *testing.T) {
	dir := t.TempDir()
	g := Generations{Path: filepath.Join(dir, "f"), Previous: filepath.Join(dir, "f.previous")}
	for i, want := range []string{"-", "a", "b", "c"} {
		if err := g.Write([]byte{"abcd"[i]}, 0o600); err != nil {
			t.Fatal(err)
		}
		if now, before := content(t, g.Path), content(t, g.Previous); now != "abcd"[i:i+1] || before != want {
			t.Errorf("write %d: %q, and %q before, want %q", i, now, before, want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
	// A flipped bit of the newest does not reach the previous one.
	if err := os.WriteFile(g.Path, []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	if before := content(t, g.Previous); before != "c" {
		t.Errorf("the previous content is %q after the newest was damaged", before)
	}
}

// A write that ends at a step leaves one of the two states, and what it left is no obstacle to the next.
func TestGenerationsEndAtEachStep(t *testing.T) {
	ended := errors.New("ended")
	for step, want := range map[string][2]string{
		StepTemporary: {"2", "1"}, StepPrevious: {"2", "2"}, StepPlaced: {"3", "2"},
	} {
		t.Run(step, func(t *testing.T) {
			dir := t.TempDir()
			g := Generations{Path: filepath.Join(dir, "f"), Previous: filepath.Join(dir, "f.previous")}
			for _, data := range []string{"1", "2"} {
				if err := g.Write([]byte(data), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			stop := g
			stop.At = func(at string) error {
				if at == step {
					return ended
				}
				return nil
			}
			if err := stop.Write([]byte("3"), 0o600); !errors.Is(err, ended) {
				t.Error(err)
			}
			if got := [2]string{content(t, g.Path), content(t, g.Previous)}; got != want {
				t.Errorf("newest and previous are %q, want %q", got, want)
			}
			if err := g.Write([]byte("4"), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := [2]string{content(t, g.Path), content(t, g.Previous)}; got != [2]string{"4", want[0]} {
				t.Errorf("after the next write: %q", got)
			}
		})
	}
}

// A kill between link and rename leaves a temporary name of the content.
func TestGenerationsAfterAKill(t *testing.T) {
	dir := t.TempDir()
	g := Generations{Path: filepath.Join(dir, "f"), Previous: filepath.Join(dir, "f.previous")}
	if err := g.Write([]byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(g.Path, filepath.Join(dir, tempPrefix+"f.previous")); err != nil {
		t.Fatal(err)
	}
	if err := g.Write([]byte("2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if now, before := content(t, g.Path), content(t, g.Previous); now != "2" || before != "1" {
		t.Errorf("%q, and %q before", now, before)
	}
	if err := CleanTemp(dir); err != nil {
		t.Fatal(err)
	}
}
