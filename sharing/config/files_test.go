// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestDecodeFiles(t *testing.T) {
	t.Parallel()
	pools := File{"pools.yaml", []byte(head + "spec:\n  pools:\n  - {name: a}\n")}
	tests := map[string]struct {
		files []File
		want  []string
	}{
		"none": {nil, []string{"the config has no file"}},
		"one":  {[]File{pools}, nil},
		"two": {[]File{pools, {"b.yaml",
			[]byte(head +
				"spec:\n  pools: [{name: b, nodeSelector: {x: y}, allowedProfiles: [s]}]\n  profiles: [{name: s, " +
				"percent: " +
				"10}]\n")}}, nil},
		"no pools": {[]File{{"a.yaml", []byte(head + "spec: {}\n")},
			{"b.yaml", []byte(head + "spec:\n  profiles: []\n")}},
			[]string{"a.yaml: line 3: spec.pools names no pool"}},
		"the same name": {
			[]File{pools, {"b.yaml", []byte(head +
				"spec:\n  pools:\n  - name: b\n    nodeSelector: {x: y}\n  - name: a\n    nodeSelector: {x: z}\n")}},
			[]string{
				`b.yaml: line 7: spec.pools[1].name "a" is the name of pools.yaml: spec.pools[0], too; give each its own name`},
		},
		"prices twice": {
			[]File{pools, {"b.yaml", []byte(head + "spec:\n  prices: {currency: EUR}\n")},
				{"c.yaml", []byte(head + "spec:\n  prices: {currency: USD}\n")}},
			[]string{"c.yaml: line 4: spec.prices stands also in b.yaml: spec.prices; write them in one file"},
		},
		"all errors of all files": {
			[]File{
				{"a.yaml", []byte(head + "spec:\n  pools:\n  - {name: a, mode: hole}\n  - {name: b, idel: {}}\n")},
				{"b.yaml", nil},
				{"c.yaml", []byte("kind: SharingConfig\n")},
			},
			[]string{
				`a.yaml: line 5: spec.pools[0].mode "hole" is not a pool's mode; did you mean whole? write auto, shared, whole or mig`,
				"a.yaml: line 6: spec.pools[1].idel is not a known field; did you mean idle? use one of ",
				"b.yaml: the config is empty", "c.yaml: line 1: apiVersion is missing",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := DecodeFiles(tt.files...)
			if len(tt.want) > 0 {
				checkLines(t, err, tt.want)
				return
			}
			if err != nil || len(c.Pools()) != len(tt.files) {
				t.Errorf("%v, %d pools", err, len(c.Pools()))
			}
		})
	}
}

// A config in several files says what it says in one.
func TestDecodeFilesRandom(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	whole := fullSpec()
	for range 30 {
		cut, between := rnd.IntN(len(whole.Pools)+1), rnd.IntN(len(whole.Profiles)+1)
		parts := []Spec{{Pools: whole.Pools[:cut], Profiles: whole.Profiles[:between]},
			{Pools: whole.Pools[cut:], Profiles: whole.Profiles[between:]}}
		parts[rnd.IntN(2)].Prices = whole.Prices
		var files []File
		for i, p := range parts {
			text, err := Config{doc: p}.Encode()
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, File{string(rune('a' + i)), text})
		}
		c, err := DecodeFiles(files...)
		if diff := cmp.Diff(whole, c.Spec()); err != nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
	}
}

func FuzzDecodeFiles(f *testing.F) {
	f.Add([]byte(full), []byte(head+"spec:\n  profiles: [{name: x, gpuCount: 1}]\n"))
	f.Add([]byte(head+"spec: {prices: {}}"), []byte(head+"spec: {prices: {}}"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		_, err := DecodeFiles(File{"a", a}, File{"b", b})
		var mistakes Errors
		if err != nil && (!errors.Is(err, sharing.ErrInvalid) || !errors.As(err, &mistakes)) {
			t.Fatalf("error %v is not config.Errors", err)
		}
		for _, m := range mistakes {
			if m.File == "" && m.What.Field != wholeConfig {
				t.Fatalf("error %v names no file", m)
			}
		}
	})
}
