// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	goflag "flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var updateStored = goflag.Bool("update", false, "write the converted configs again")

// Configs that commit b8a025f shipped mean the same after a conversion, and come back as they were. An upgrade and a
// rollback change no rule. The folder testdata/v1alpha1 has their texts as they were, v1alpha2 the results.
func TestStoredConfigs(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/v1alpha1/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			old, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			now, err := Migrate(old)
			if err != nil {
				t.Fatal(err)
			}
			golden := strings.Replace(name, "v1alpha1", "v1alpha2", 1)
			if *updateStored {
				if err := os.WriteFile(golden, now, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(want, now) {
				t.Errorf("%v\n%s", err, cmp.Diff(string(want), string(now)))
			}
			if back, err := MigrateBack(now); err != nil || !bytes.Equal(back, old) {
				t.Errorf("back: %v\n%s", err, cmp.Diff(string(old), string(back)))
			}
			before, err := Decode(old)
			if err != nil {
				t.Fatal(err)
			}
			after, err := Decode(now)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(before.Spec(), after.Spec()); d != "" {
				t.Error(d)
			}
			if Warning(File{Data: old}) == "" || Warning(File{Data: now}) != "" {
				t.Error("only the old text has a warning")
			}
		})
	}
}
