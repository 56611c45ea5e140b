// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
)

// Encode renders the record.
func Encode(r Record) ([]byte, error) { return new(Encoder).Encode(r) }

// Encoder renders records that follow each other, of which most grants are as before: a container's start waits for two of
// them, and most of the time would be spent on the others' grants. The zero value is ready; it is not for several at once.
type Encoder struct{ before map[string]rendered }

// rendered is a grant with its text.
type rendered struct {
	grant Grant
	text  []byte
}

// Encode renders the record, as the function Encode does. The grants must not be changed afterwards.
func (e *Encoder) Encode(r Record) ([]byte, error) {
	boot, err := json.Marshal(r.BootID)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	body := append(append([]byte(`{"boot_id":`), boot...), `,"grants":[`...)
	now := make(map[string]rendered, len(r.Grants))
	for i, g := range r.Grants {
		one, ok := e.before[g.ID]
		if !ok || !reflect.DeepEqual(one.grant, g) {
			text, err := json.Marshal(g)
			if err != nil {
				return nil, fmt.Errorf("encode record: grant %q: %w", g.ID, err)
			}
			one = rendered{g, text}
		}
		now[g.ID] = one
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, one.text...)
	}
	e.before = now
	body = append(body, "]}"...)
	// The envelope around it by hand: a pass through the encoder would check and copy the whole body again.
	sum := sha256.Sum256(body)
	out := make([]byte, 0, len(body)+len(`{"schema":,"sha256":"","body":}`)+2*len(sum)+24)
	out = strconv.AppendInt(append(out, `{"schema":`...), Schema, 10)
	out = hex.AppendEncode(append(out, `,"sha256":"`...), sum[:])
	out = append(append(append(out, `","body":`...), body...), '}', '\n')
	return out, nil
}
