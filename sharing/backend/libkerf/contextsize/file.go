// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package contextsize

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// schema is the version of the file. Version 1 held sizes that were learned from counters of tenants. They are not
// used.
const schema = 2

// ErrOtherSchema is the error of Decode for a file of another version.
var ErrOtherSchema = errors.New("file of another version")

type file struct {
	Schema int    `json:"schema"`
	Sizes  []size `json:"sizes"`
}

type size struct {
	Model  string        `json:"model"`
	Driver string        `json:"driver"`
	Bytes  sharing.Bytes `json:"bytes"`
}

// Encode writes measured sizes as a file, sorted by kind.
func Encode(sizes map[Kind]sharing.Bytes) ([]byte, error) {
	f := file{Schema: schema, Sizes: []size{}}
	for k, n := range sizes {
		f.Sizes = append(f.Sizes, size{k.Model, k.Driver, n})
	}
	slices.SortFunc(f.Sizes, func(a, b size) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Driver, b.Driver))
	})
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode sizes of contexts: %w", err)
	}
	return append(data, '\n'), nil
}

// Decode reads what Encode wrote. Errors: ErrOtherSchema, sharing.ErrInvalid.
func Decode(data []byte) (map[Kind]sharing.Bytes, error) {
	var head struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("decode sizes of contexts: %w (%w)", err, sharing.ErrInvalid)
	}
	if head.Schema != schema {
		return nil, fmt.Errorf("decode sizes of contexts: schema %d: %w", head.Schema, ErrOtherSchema)
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("decode sizes of contexts: %w (%w)", err, sharing.ErrInvalid)
	}
	out := map[Kind]sharing.Bytes{}
	for _, s := range f.Sizes {
		if s.Model == "" || s.Driver == "" || s.Bytes == 0 || s.Bytes > most {
			return nil, fmt.Errorf("decode sizes of contexts: %+v: %w", s, sharing.ErrInvalid)
		}
		out[Kind{s.Model, s.Driver}] = s.Bytes
	}
	return out, nil
}
