// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Text is a grant as it is in the file. A container's start waits for two records, and most grants do not change from
// one to the next. So the caller renders each grant once and keeps its text.
type Text struct {
	json []byte
	// schema is the least that has all of the grant.
	schema int
}

// Text renders the grant.
func (g *Grant) Text() (Text, error) {
	text, err := json.Marshal(g)
	if err != nil {
		return Text{}, fmt.Errorf("encode grant %q: %w", g.ID, err)
	}
	schema := schemaWithoutClaims
	if slices.ContainsFunc(g.Requests, isClaim) {
		schema = Schema
	}
	return Text{json: text, schema: schema}, nil
}

func isClaim(request string) bool { return strings.HasPrefix(request, sharing.ClaimResource+":") }

// Encode renders the record.
func Encode(r Record) ([]byte, error) {
	texts := make([]Text, len(r.Grants))
	for i := range r.Grants {
		var err error
		if texts[i], err = r.Grants[i].Text(); err != nil {
			return nil, fmt.Errorf("encode record: %w", err)
		}
	}
	return Append(nil, r.BootID, texts)
}

// Append appends the record of these grants, which are in the order of their ids.
func Append(out []byte, bootID string, grants []Text) ([]byte, error) {
	boot, err := json.Marshal(bootID)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	schema := schemaWithoutClaims
	for _, g := range grants {
		schema = max(schema, g.schema)
	}
	// The envelope by hand: a pass through the encoder would check and copy the whole body again.
	out = fmt.Appendf(out, `{"schema":%d,"sha256":"`, schema)
	sum := len(out)
	out = append(append(out, make([]byte, hex.EncodedLen(sha256.Size))...), `","body":`...)
	body := len(out)
	out = append(append(append(out, `{"boot_id":`...), boot...), `,"grants":[`...)
	for i, g := range grants {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, g.json...)
	}
	out = append(out, "]}"...)
	digest := sha256.Sum256(out[body:])
	hex.Encode(out[sum:], digest[:])
	return append(append(out, '}'), strings.Repeat("\n", schema)...), nil
}
