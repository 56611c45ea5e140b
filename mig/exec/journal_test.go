// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

// sealed is an envelope of body with the right checksum.
func sealed(body []byte) []byte {
	sum := sha256.Sum256(body)
	return []byte(`{"schema":1,"sha256":"` + hex.EncodeToString(sum[:]) + `","body":` + string(body) + "}\n")
}

// A journal that decodes is written back and read as the same journal. All other input is a known error.
func FuzzDecode(f *testing.F) {
	on := true
	full := journal{
		BootID: "boot", GPU: "GPU-1", PCI: "0000:01:00.0", Mode: true, Turning: &on,
		Mine: []owned{{place{9, 4}, 1, 0, "MIG-1"}},
		Change: &change{Before: []place{{9, 4}}, Wanted: []place{{19, 0}}, Undo: true,
			Doing: &doing{"create", place{19, 0}, 3}},
	}
	for _, j := range []journal{{}, full} {
		body, err := json.Marshal(j)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body, true)
		f.Add(sealed(body), false)
		f.Add(sealed(body)[:len(body)], false)
	}
	f.Add([]byte(`{"schema":2,"sha256":"","body":{}}`+"\n"), false)
	f.Add([]byte(`{"gi":1e99}`), true)
	f.Add(bytes.Repeat([]byte("["), 1<<12), true)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal {
			data = sealed(data)
		}
		j, err := decode(data)
		if err != nil {
			if !errors.Is(err, errDamaged) && !errors.Is(err, sharing.ErrUnsupported) {
				t.Fatalf("an unknown error: %v", err)
			}
			return
		}
		again, err := encode(j)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decode(again)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if d := gocmp.Diff(j, back, gocmp.AllowUnexported(journal{}, change{}, doing{}, owned{}, place{})); d != "" {
			t.Error(d)
		}
	})
}
