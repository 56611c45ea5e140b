// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

var (
	errLost = fmt.Errorf("nvmlDeviceGetName: %w", sharing.ErrLost)
	errHang = fmt.Errorf("nvmlDeviceGetName: %w", sharing.ErrUnavailable)
	nothing = Recovery{Known: true}
	reset   = Recovery{Known: true, Action: "GPU reset"}
)

// step is one input, or several of the same, and the state expected after each.
type step struct {
	do   func(*Machine)
	want sharing.Health
}

func probe(err error, rec Recovery) func(*Machine) {
	return func(m *Machine) { m.Probe(Sample{Err: err, Recovery: rec}) }
}
func senses(s Sensors) func(*Machine) {
	return func(m *Machine) { m.Probe(Sample{Recovery: nothing, Sensors: s}) }
}
func xid(n uint64) func(*Machine) { return func(m *Machine) { m.XID(n) } }

func times(n int, s step) (out []step) {
	for range n {
		out = append(out, s)
	}
	return out
}

func rows(parts ...[]step) (out []step) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func TestMachine(t *testing.T) {
	const ok, suspect, unhealthy, lost = sharing.HealthOK, sharing.HealthSuspect, sharing.HealthUnhealthy,
		sharing.HealthLost
	up := step{probe(nil, nothing), ok}
	ecc := func(n uint64) func(*Machine) { return senses(Sensors{Uncorrected: Count{true, n}}) }
	links := func(n uint64) func(*Machine) { return senses(Sensors{Links: Count{true, n}}) }
	tests := map[string][]step{
		"first clean probe makes it healthy": {up},
		"an application's XIDs mark nothing": {
			up, {xid(13), ok}, {xid(31), ok}, {xid(43), ok}, {xid(45), ok}, {xid(68), ok}, {xid(92), ok}, {xid(94), ok},
			{xid(109), ok}, {xid(154), ok},
		},
		"lost, and back after three clean probes": {up, {probe(errLost, Recovery{}), lost}, {probe(nil, nothing), lost},
			{probe(nil, nothing), lost}, up},
		"a bad probe between clean ones starts the count again": {
			up, {probe(errLost, Recovery{}), lost}, {probe(nil, nothing), lost},
			{probe(errLost, Recovery{}), lost}, {probe(nil, nothing), lost}, {probe(nil, nothing), lost}, up,
		},
		"XID 79 is lost before any probe sees it": {up, {xid(79), lost}, {probe(errLost, Recovery{}), lost},
			{probe(nil, nothing), lost}, {probe(nil, nothing), lost}, up},
		"XID 79 heals without the driver's word": {up, {xid(79), lost}, {probe(nil, Recovery{}), lost},
			{probe(nil, Recovery{}), lost}, {probe(nil, Recovery{}), ok}},
		"a critical XID stands until the driver requests nothing": {
			up, {xid(48), unhealthy}, {probe(nil, reset), unhealthy},
			{probe(nil, reset), unhealthy}, {probe(nil, nothing), unhealthy}, {probe(nil, nothing), unhealthy}, up,
		},
		"without the driver's word a critical XID stands": {up, {xid(48), unhealthy},
			{probe(nil, Recovery{}), unhealthy}, {probe(nil, Recovery{}), unhealthy},
			{probe(nil, Recovery{}), unhealthy}},
		"a GPU that hangs after an XID stays unhealthy": {up, {xid(119), unhealthy},
			{probe(errHang, Recovery{}), unhealthy}, {probe(nil, nothing), unhealthy}, {probe(nil, nothing), unhealthy},
			up},
		"a recovery action alone marks it":          {{probe(nil, reset), unhealthy}},
		"one hang is suspect and one answer clears": {up, {probe(errHang, Recovery{}), suspect}, up},
		"a GPU that hung longer needs three answers": {
			up, {probe(errHang, Recovery{}), suspect}, {probe(errHang, Recovery{}), suspect},
			{probe(nil, nothing), suspect}, {probe(nil, nothing), suspect}, up, {probe(errHang, Recovery{}), suspect},
			up,
		},
		"a GPU that never answers is unhealthy in the end": rows([]step{up},
			times(muteProbes-1, step{probe(errHang, Recovery{}), suspect}),
			[]step{{probe(errHang, Recovery{}), unhealthy}}),
		"a hang does not make a lost GPU less lost": {up, {probe(errLost, Recovery{}), lost},
			{probe(errHang, Recovery{}), lost}},
		"a GPU that goes back and forth has to be clean for longer": {
			up, {probe(errHang, nothing), suspect}, up, {probe(errHang, nothing), suspect}, up,
			{probe(errHang, nothing), suspect}, {probe(nil, nothing), suspect}, up,
			{probe(errHang, nothing), suspect}, {probe(nil, nothing), suspect}, {probe(nil, nothing), suspect},
			{probe(nil, nothing), suspect}, up,
		},
		"what went wrong long ago is forgotten": rows(
			times(1, up), rows([]step{{probe(errHang, nothing), suspect}, up},
				[]step{{probe(errHang, nothing), suspect}, up}),
			times(2*calmProbes, up), []step{{probe(errHang, nothing), suspect}, up},
		),
		"a row to be remapped drains": {
			// A value that is absent stays as it was.
			up, {senses(Sensors{RemapPending: Yes}), suspect}, {probe(nil, nothing), suspect},
			{senses(Sensors{RemapPending: No}), suspect}, {probe(nil, nothing), suspect}, up,
		},
		"XID 63 drains and 64 does not":              {up, {xid(63), suspect}, {xid(64), unhealthy}},
		"a row that cannot be remapped is unhealthy": {up, {senses(Sensors{RemapFailed: Yes}), unhealthy}},
		"errors of before do not count, new ones do": {{ecc(7), ok}, {ecc(7), ok}, {ecc(8), suspect}, {ecc(8), suspect},
			{ecc(8), suspect}, {ecc(8), ok}, {ecc(0), ok}, {ecc(1), suspect}},
		"a link that went down is suspect": {{links(18), ok}, {links(17), suspect}, {probe(nil, nothing), suspect},
			{links(18), suspect}, {links(18), suspect}, {links(18), ok}},
		"heat counts when it lasts": rows([]step{up}, times(slowProbes-1, step{senses(Sensors{Overheat: Yes}), ok}),
			[]step{{senses(Sensors{Overheat: No}), ok}},
			times(slowProbes-1, step{senses(Sensors{Overheat: Yes}), ok}),
			[]step{{senses(Sensors{Overheat: Yes}), suspect}}),
		"a power brake counts when it lasts": rows([]step{up},
			times(slowProbes-1, step{senses(Sensors{PowerBrake: Yes}), ok}),
			[]step{{senses(Sensors{PowerBrake: Yes}), suspect}}),
		"an XID of a GPU without a name makes suspects": {up, {func(m *Machine) { m.Unnamed(48) }, suspect},
			{func(m *Machine) { m.Unnamed(31) }, suspect}, {probe(nil, nothing), suspect},
			{probe(nil, nothing), suspect}, up},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			var m Machine
			for i, s := range steps {
				s.do(&m)
				got := m.State()
				if got.Health != s.want {
					t.Fatalf("step %d: %v (%s), want %v", i, got.Health, got, s.want)
				}
				if well := got.Health == sharing.HealthOK; well != (got.Reason == "") || well != (got.Remedy == "") {
					t.Fatalf("step %d: %v with reason %q and remedy %q", i, got.Health, got.Reason, got.Remedy)
				}
			}
		})
	}
}

func TestChangeIsReported(t *testing.T) {
	var m Machine
	clean := Sample{Recovery: nothing}
	if !m.Probe(clean) || m.Probe(clean) {
		t.Error("becoming healthy is a change, staying so is not")
	}
	if !m.XID(62) || m.XID(31) || m.XID(62) {
		t.Error("a critical XID is a change, a harmless one and the same again are not")
	}
	if !m.XID(95) {
		t.Error("a second fault is a change")
	}
	if s := m.State().String(); !strings.Contains(s, "XID 62") || !strings.Contains(s, "95") ||
		!strings.Contains(s, "remedy: reset") {
		t.Errorf("%q does not name the XIDs and the remedy", s)
	}
}
