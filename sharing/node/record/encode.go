// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// Encode renders the record.
func Encode(r Record) ([]byte, error) { return new(Encoder).Encode(r) }

// Encoder renders records that follow each other; most of their grants do not change. A container's start waits for two
// records, and the other grants would take most of that time. The zero value is ready. One goroutine at a time may use
// it.
type Encoder struct {
	before map[string]*rendered
	// turn counts the records, so that grants that the last one did not have are known.
	turn uint64
	out  []byte
}

// rendered is a grant with its text, and the last record that had it.
type rendered struct {
	grant Grant
	text  []byte
	turn  uint64
}

// Encode renders the record, as the function Encode does. The grants must not be changed afterwards; the bytes are the
// Encoder's, and good until it is called again.
func (e *Encoder) Encode(r Record) ([]byte, error) {
	boot, err := json.Marshal(r.BootID)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	if e.before == nil {
		e.before = make(map[string]*rendered, len(r.Grants))
	}
	e.turn++
	// The envelope by hand: a pass through the encoder would check and copy the whole body again.
	out := fmt.Appendf(e.out[:0], `{"schema":%d,"sha256":"`, r.schema())
	sum := len(out)
	out = append(append(out, make([]byte, hex.EncodedLen(sha256.Size))...), `","body":`...)
	body := len(out)
	out = append(append(append(out, `{"boot_id":`...), boot...), `,"grants":[`...)
	for i := range r.Grants {
		g := &r.Grants[i]
		one := e.before[g.ID]
		if one == nil || !one.grant.equal(g) {
			text, err := json.Marshal(g)
			if err != nil {
				return nil, fmt.Errorf("encode record: grant %q: %w", g.ID, err)
			}
			one = &rendered{grant: *g, text: text}
			e.before[g.ID] = one
		}
		one.turn = e.turn
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, one.text...)
	}
	maps.DeleteFunc(e.before, func(_ string, one *rendered) bool { return one.turn != e.turn })
	out = append(out, "]}"...)
	digest := sha256.Sum256(out[body:])
	hex.Encode(out[sum:], digest[:])
	out = append(append(out, '}'), strings.Repeat("\n", r.schema())...)
	e.out = out
	return out, nil
}
