// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mig_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

func TestLookup(t *testing.T) {
	tests := []struct {
		model, name string
		want        string // profile, or a part of the error after "!"
	}{
		{"H100", "1g.10gb", "1g.10gb"},
		{"H100", "MIG 1g.10gb", "1g.10gb"},
		{"H100", "mig-1g.10gb.me", "1g.10gb+me"},
		{"H100", " 1G.10GB+ME ", "1g.10gb+me"},
		{"H100", "1g", "1g.10gb"},
		{"H100", "1g+me", "1g.10gb+me"},
		{"H100", "1g.me", "1g.10gb+me"},
		{"H100", "7g", "7g.80gb"},
		{"H100", ">= 16GiB", "1g.20gb"},
		{"H100", ">=9GiB", "1g.10gb"},
		{"H100", ">= 9.75GiB", "1g.10gb"},
		{"H100", ">= 10GiB", "1g.20gb"}, // 1g.10gb has 9.75GiB that programs can use
		{"H100", ">= 30GiB", "3g.40gb"},
		{"H100", ">= 16Gi+me", "!is more than any such profile of this GPU has"},
		{"H100", ">= 1TiB", "!write at most 79.25GiB"},
		{"H100", ">= much", "!is not a size after >="},
		{"H100", ">=0GiB", "!is not a size after >="},
		{"B200", "1g.24gb", "1g.23gb"}, // what another driver calls it
		{"B200", "3g.93gb", "3g.90gb"},
		{"B200", "1g.47gb", "1g.45gb"},
		{"H100", "1g.5gb", "!did you mean 1g.10gb?"},
		{"A30", "1g.5gb", "!did you mean 1g.6gb?"},
		{"H100", "1g.12gb", "!did you mean 1g.10gb?"},
		{"H100", "3g.20gb", "!did you mean 3g.40gb?"},
		{"H100", "5g", "!Write one of 1g.10gb, 1g.10gb+me, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb"},
		{"H100", "1g.10gb+gfx", "!did you mean 1g.10gb?"},
		{"RTX PRO 6000", "1g", "1g.24gb"},
		{"RTX PRO 6000", "1g.24gb.me.all", "1g.24gb+me.all"},
		{"RTX PRO 6000", "1g-me", "1g.24gb-me"},
		{"RTX PRO 6000", ">= 32GiB+gfx", "2g.48gb+gfx"},
		{"H100", "", "!is not the name of a MIG profile"},
		{"H100", "big", "!is not the name of a MIG profile"},
		{"H100", "0g.10gb", "!is not the name of a MIG profile"},
		{"H100", "1g.10", "!is not the name of a MIG profile"},
		{"H100", "1c.3g.40gb", "!names a compute instance inside a MIG instance"},
	}
	tables := map[string]*mig.Table{}
	for model := range machines {
		tables[model] = table(t, model)
	}
	for _, tt := range tests {
		p, err := tables[tt.model].Lookup("kerf.dev/mig", tt.name)
		if want, bad := strings.CutPrefix(tt.want, "!"); bad {
			var field *sharing.FieldError
			if !errors.As(err, &field) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s on %s: %v, want %q", tt.name, tt.model, err, want)
			}
		} else if err != nil || p.Name != want {
			t.Errorf("%s on %s is %q, want %q (%v)", tt.name, tt.model, p.Name, want, err)
		}
	}
}

// Each profile's own name leads back to it, on every GPU.
func TestEveryProfileIsFoundByItsName(t *testing.T) {
	for model := range machines {
		table := table(t, model)
		for _, p := range table.Profiles() {
			for _, name := range []string{p.Name, "MIG " + p.Name, strings.ReplaceAll(p.Name, "+", ".")} {
				if got, err := table.Lookup("", name); err != nil || got.ID != p.ID {
					t.Errorf("%s on %s is %q (%v)", name, model, got.Name, err)
				}
			}
		}
	}
}

func FuzzParseWish(f *testing.F) {
	for _, s := range []string{"1g.10gb", "1g+me.all", ">= 16GiB", ">=1+gfx", "mig-1g.5gb.me", "7g-me",
		">= 1023.999MiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		w, err := mig.ParseWish("x", s)
		if err != nil {
			if !errors.Is(err, sharing.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		if back, err := mig.ParseWish("x", w.String()); err != nil || back != w {
			t.Fatalf("%q is %+v, written %q, read %+v (%v)", s, w, w, back, err)
		}
	})
}
