// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import "errors"

// draft is a request while its inputs are being read. It collects every mistake, so that the user mends
// all of them at once.
type draft struct {
	Request
	fields Fields
	errs   []error
}

// note keeps a mistake, if there is one.
func (d *draft) note(err error) {
	if err != nil {
		d.errs = append(d.errs, err)
	}
}

// choice reads what narrows the choice; empty inputs say nothing.
func (d *draft) choice(models, uuids []string, level, place, profile string) {
	var err error
	d.Models = append(d.Models, models...)
	for _, s := range uuids {
		id, err := ParseGPUID(d.fields.UUIDs, s)
		if err != nil {
			d.note(err)
			continue
		}
		d.UUIDs = append(d.UUIDs, id)
	}
	if level != "" {
		d.MinLevel, err = ParseLevel(d.fields.MinLevel, level)
		d.note(err)
	}
	if place != "" {
		d.Place, err = ParseSpread(d.fields.Place, place)
		d.note(err)
	}
	d.Profile = profile
}

// finish adds the mistakes that only the whole shows. After an input that could not be read, those that
// follow from its absence alone are not worth a line.
func (d *draft) finish() (Request, error) {
	unread := len(d.errs) > 0
	if d.GPUs == 0 && d.Profile == "" {
		d.GPUs = 1
	}
	whole := d.Request
	if unread && whole.Kind == KindShared && whole.Memory == 0 && whole.Percent == 0 {
		whole.Percent = Percent(max(whole.GPUs, 1)) //nolint:gosec // at most MaxGPUs+1, and only looked at
	}
	if unread {
		whole.UUIDs = nil
	}
	d.note(whole.Check(d.fields))
	if len(d.errs) > 0 {
		return Request{}, errors.Join(flatten(d.errs)...)
	}
	return d.Request, nil
}

// flatten unwraps joined errors, so that a join of joins reads as one list.
func flatten(errs []error) []error {
	var out []error
	for _, err := range errs {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			out = append(out, flatten(joined.Unwrap())...)
			continue
		}
		out = append(out, err)
	}
	return out
}
