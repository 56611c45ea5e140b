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

// step is one input and the state expected after it.
type step struct {
	do   func(*Machine)
	want sharing.Health
}

func probe(err error, rec Recovery) func(*Machine) { return func(m *Machine) { m.Probe(err, rec) } }
func xid(n uint64) func(*Machine)                  { return func(m *Machine) { m.XID(n) } }

func TestMachine(t *testing.T) {
	const ok, suspect, unhealthy, lost = sharing.HealthOK, sharing.HealthSuspect, sharing.HealthUnhealthy, sharing.HealthLost
	up := step{probe(nil, nothing), ok}
	tests := map[string][]step{
		"first clean probe makes it healthy": {up},
		"an application's XIDs mark nothing": {up, {xid(13), ok}, {xid(31), ok}, {xid(43), ok}, {xid(45), ok}, {xid(68), ok}, {xid(109), ok}, {xid(94), ok}},
		"lost, and back after three clean probes": {up, {probe(errLost, Recovery{}), lost}, {probe(nil, nothing), lost},
			{probe(nil, nothing), lost}, {probe(nil, nothing), ok}},
		"a bad probe between clean ones starts the count again": {up, {probe(errLost, Recovery{}), lost}, {probe(nil, nothing), lost},
			{probe(errLost, Recovery{}), lost}, {probe(nil, nothing), lost}, {probe(nil, nothing), lost}, {probe(nil, nothing), ok}},
		"XID 79 is lost before any probe sees it": {up, {xid(79), lost}, {probe(errLost, Recovery{}), lost}, {probe(nil, nothing), lost},
			{probe(nil, nothing), lost}, {probe(nil, nothing), ok}},
		"a critical XID stands until the driver asks for nothing": {up, {xid(48), unhealthy}, {probe(nil, reset), unhealthy},
			{probe(nil, reset), unhealthy}, {probe(nil, nothing), unhealthy}, {probe(nil, nothing), unhealthy}, {probe(nil, nothing), ok}},
		"without the driver's word a critical XID stands": {up, {xid(48), unhealthy}, {probe(nil, Recovery{}), unhealthy},
			{probe(nil, Recovery{}), unhealthy}, {probe(nil, Recovery{}), unhealthy}, {probe(nil, Recovery{}), unhealthy}},
		"a GPU that hangs after an XID is suspect, and unhealthy once it answers": {up, {xid(119), unhealthy}, {probe(errHang, Recovery{}), suspect},
			{probe(nil, reset), unhealthy}, {probe(nil, nothing), unhealthy}, {probe(nil, nothing), unhealthy}, {probe(nil, nothing), ok}},
		"a recovery action alone marks it":          {up, {probe(nil, reset), unhealthy}},
		"one hang is suspect and one answer clears": {up, {probe(errHang, Recovery{}), suspect}, up},
		"a GPU that hung longer needs three answers": {up, {probe(errHang, Recovery{}), suspect}, {probe(errHang, Recovery{}), suspect},
			{probe(nil, nothing), suspect}, {probe(nil, nothing), suspect}, {probe(nil, nothing), ok}, {probe(errHang, Recovery{}), suspect}, up},
		"a hang does not make a lost GPU less lost": {up, {probe(errLost, Recovery{}), lost}, {probe(errHang, Recovery{}), lost}},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			var m Machine
			for i, s := range steps {
				s.do(&m)
				got, why := m.State()
				if got != s.want {
					t.Fatalf("step %d: %v (%s), want %v", i, got, why, s.want)
				}
				if (got == sharing.HealthOK) != (why == "") {
					t.Fatalf("step %d: %v with reason %q", i, got, why)
				}
			}
		})
	}
}

func TestChangeIsReported(t *testing.T) {
	var m Machine
	if !m.Probe(nil, nothing) || m.Probe(nil, nothing) {
		t.Error("becoming healthy is a change, staying so is not")
	}
	if !m.XID(62) || m.XID(31) {
		t.Error("a critical XID is a change, a harmless one is not")
	}
	if _, why := m.State(); !strings.Contains(why, "62") {
		t.Errorf("reason %q does not name the XID", why)
	}
}
