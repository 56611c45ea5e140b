// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
)

// After an upgrade, a log also has lines of the earlier form. The fields of that form have the names below. The next
// release reads the present form only.

// UnmarshalJSON reads an entry in either form.
func (e *Entry) UnmarshalJSON(text []byte) error {
	type present Entry
	var in struct {
		present

		What      string   `json:"what"`
		Who       *Subject `json:"who"`
		Why       string   `json:"why"`
		Fragments []Share  `json:"fragments"`
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return fmt.Errorf("decode audit entry: %w", err)
	}
	*e = Entry(in.present)
	if in.What == "" {
		return nil
	}
	e.Type = cmp.Or(map[string]string{"claim": Reserve, "arm": Activate, "limit": Resize}[in.What], in.What)
	e.Subject, e.Reason, e.Shares = in.Who, in.Why, in.Fragments
	return nil
}
