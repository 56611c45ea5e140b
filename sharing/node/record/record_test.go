// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func sample() Record {
	return Record{BootID: "b0", Grants: []Grant{{
		ID: "k1", Name: "train", UID: 1000, PID: 42, Level: "driver", Backend: "driver",
		Cgroup: "/sys/fs/cgroup/kerf/k1", Inode: 7,
		Shares: []Share{{GPU: "GPU-1", Memory: 10 * sharing.GiB, Percent: 25}},
	}}}
}

func TestRoundTrip(t *testing.T) {
	for name, want := range map[string]Record{"one grant": sample(), "empty": {BootID: "b0", Grants: []Grant{}}} {
		t.Run(name, func(t *testing.T) {
			data, err := Encode(want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// A power failure or a bad disk may leave any prefix, and any bit may flip. None of these may read as another state.
func TestEveryTruncationAndBitFlipIsRefused(t *testing.T) {
	data, err := Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(bytes.TrimRight(data, "\n")) { // without the line breaks at its end it is still whole
		if _, err := Decode(data[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes were accepted", n, len(data))
		}
	}
	want, _ := Decode(data)
	for i := range data {
		for bit := range 8 {
			bad := bytes.Clone(data)
			bad[i] ^= 1 << bit
			got, err := Decode(bad)
			if err != nil {
				continue
			}
			// White space and the case of hex or of a key may differ without harm; the content may not.
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("bit %d of byte %d flipped and another record was read:\n%s", bit, i, d)
			}
		}
	}
}

func TestSchema(t *testing.T) {
	var newer *NewerError
	if _, err := Decode(fmt.Appendf(nil, `{"schema":%d,"sha256":"","body":{"new":1},"outer":true}`, Schema+1)); !errors.As(err, &newer) || newer.Found != Schema+1 {
		t.Errorf("the next schema: %v, want NewerError", err)
	}
	for _, doc := range []string{``, `{}`, `{"schema":0}`, `{"schema":1,"sha256":"","body":{}}`, `[]`,
		`{"schema":1,"sha256":"","body":{},"x":1}`,
		`{"schema":-1,"sha256":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","body":{}}`} {
		if _, err := Decode([]byte(doc)); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", doc, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	data, err := Encode(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"schema":9}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := Decode(in)
		if err != nil {
			return
		}
		out, err := Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(out)
		if err != nil {
			t.Fatal(err)
		}
		if r.Grants == nil {
			r.Grants = []Grant{}
		}
		if d := cmp.Diff(r, again); d != "" {
			t.Error(d)
		}
	})
}

// Only a record with requests of ResourceClaims has the newest schema: an agent before could not read these.
func TestSchemaOfClaims(t *testing.T) {
	plain := Record{BootID: "b", Grants: []Grant{{ID: "k-1", Requests: []string{"gpu:1"},
		Shares: []Share{{GPU: "GPU-1"}}}}}
	claims := Record{BootID: "b", Grants: append(plain.Grants[:1:1], Grant{ID: "k-2",
		Requests: []string{"claim:11111111-0000-4000-8000-000000000000.gpu"}, Shares: []Share{{GPU: "GPU-1"}}})}
	for want, r := range map[int]Record{schemaWithoutClaims: plain, Schema: claims} {
		data, err := Encode(r)
		var head struct {
			Schema int `json:"schema"`
		}
		if err != nil || json.Unmarshal(data, &head) != nil || head.Schema != want || trailing(data) != want {
			t.Errorf("schema %d with %d line breaks, want %d: %v", head.Schema, trailing(data), want, err)
		}
		if got, err := Decode(data); err != nil || !cmp.Equal(got, r) {
			t.Errorf("schema %d: %+v, %v", want, got, err)
		}
	}
}

// A record that an earlier version wrote is read: an update of the agent must not lose an attachment.
func TestEarlierSchemas(t *testing.T) {
	const body = `{"boot_id":"b","grants":[{"id":"k-1","uid":1000,"pid":7,"level":"driver","cgroup":"/c","inode":9,"fragments":[{"gpu":"GPU-1","memory_bytes":5}]}]}`
	sum := sha256.Sum256([]byte(body))
	for _, schema := range []string{"1", "2", "3"} {
		got, err := Decode([]byte(`{"schema":` + schema + `,"sha256":"` + hex.EncodeToString(sum[:]) + `","body":` +
			body + `}`))
		if err != nil || len(got.Grants) != 1 || got.Grants[0].Cgroup != "/c" || got.Grants[0].Inode != 9 ||
			got.Grants[0].Backend != "" {
			t.Errorf("schema %s: %+v %v", schema, got, err)
		}
	}
}

func TestGrantAlone(t *testing.T) {
	want := Grant{ID: "k-1", PodUID: "u", Container: "main", Level: "driver",
		Use: &Use{ContainerID: "c", Requests: []string{"gpu:1"}}, Shares: []Share{{GPU: "GPU-1", Memory: 5}}}
	s, err := EncodeGrant(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeGrant(s)
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v\n%s", err, d)
	}
	for _, bad := range []string{"", "{", s + "x", `{"id":"k","surprise":1}`, strings.Repeat(" ", maxGrant+1)} {
		if _, err := DecodeGrant(bad); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
}
