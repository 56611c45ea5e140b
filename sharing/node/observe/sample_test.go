// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/contextsize"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/listing"
	"github.com/kerf-gpu/kerf/sharing/lists"
)

func line(pid int, owner listing.Owner, cgroup string, bytes sharing.Bytes) lists.Line {
	return lists.Line{
		Line: listing.Line{Entry: listing.Entry{PID: pid, Bytes: bytes, Known: true}, Kind: listing.Running,
			Owner: owner},
		Cgroup: cgroup,
	}
}

// A grant's use is the driver's own count where it sets a limit, else the sum over the grant's processes. What was not
// read is unknown.
func TestUsed(t *testing.T) {
	s := Sample{
		PIDs:   map[ledger.GrantID][]int{"limited": {1}, "counted": {2}, "idle": nil},
		capped: map[Key]sharing.Bytes{{"limited", sharing.GPURef{UUID: "a"}}: 5},
		looks: map[sharing.GPURef]lists.Observation{
			{UUID: "a"}: {Lines: []lists.Line{line(1, "limited", "/l", 3), line(2, "counted", "/c", 4)}},
			{UUID: "b"}: {Err: errors.New("no answer")}},
	}
	for name, c := range map[string]struct {
		grant     ledger.GrantID
		gpu       sharing.GPURef
		used, sum sharing.Bytes
		known     bool
	}{
		"limited":            {"limited", sharing.GPURef{UUID: "a"}, 5, 3, true},
		"counted":            {"counted", sharing.GPURef{UUID: "a"}, 4, 4, true},
		"idle":               {"idle", sharing.GPURef{UUID: "a"}, 0, 0, true},
		"cgroup not read":    {"other", sharing.GPURef{UUID: "a"}, 0, 0, false},
		"GPU did not answer": {"counted", sharing.GPURef{UUID: "b"}, 0, 0, false},
		"GPU not known":      {"counted", sharing.GPURef{UUID: "c"}, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			used, known := s.Used(c.grant, c.gpu)
			if sum, also := s.ByProcess(c.grant, c.gpu); used != c.used || known != c.known || sum != c.sum ||
				also != c.known {
				t.Errorf("used %s, by process %s, known %v %v", used, sum, known, also)
			}
		})
	}
	if _, known := (Sample{}).Used("counted", sharing.GPURef{UUID: "a"}); known {
		t.Error("the zero value knows something")
	}
}

// Memory that belongs to no process is reported once two samples show it, and once for each time.
func TestUnattributed(t *testing.T) {
	const none = sharing.Bytes(1<<64 - 1) // the GPU does not answer
	over := contextsize.Slack(0) + sharing.GiB
	var last Sample
	var news Unattributed
	for i, step := range []struct {
		used     sharing.Bytes
		reported sharing.Bytes
		news     bool
	}{
		{over, 0, false},
		{over + 1, over, true},
		{over, over, false},
		{none, 0, false},
		{over, 0, false},
		{over, over, false}, // it was never seen to end
		{0, 0, false},
		{over, 0, false},
		{over, over, true},
	} {
		s := Sample{GPUs: map[sharing.GPURef]Reading{{UUID: "mig"}: {Used: over}}}
		if step.used != none {
			s.GPUs[sharing.GPURef{UUID: "a"}] = Reading{Used: step.used}
		}
		s.setUnattributed(last, []sharing.GPU{{UUID: "a"}, {UUID: "mig", MIG: true}}, nil)
		last = s
		if got := s.unattributed[sharing.GPURef{UUID: "a"}]; got != step.reported ||
			(s.Unattributed(sharing.GPU{UUID: "a"}, nil) != "") != (step.reported > 0) ||
			s.unattributed[sharing.GPURef{UUID: "mig"}] != 0 {
			t.Errorf("step %d: %s", i, got)
		}
		if _, is := news.News(s)[sharing.GPURef{UUID: "a"}]; is != step.news {
			t.Errorf("step %d: news %v", i, is)
		}
	}
}

// Nothing is unattributed where the driver does not know what a process has, and managed memory that libkerf counts is
// not.
func TestUnlistedIn(t *testing.T) {
	for name, c := range map[string]struct {
		reading Reading
		managed sharing.Bytes
		want    sharing.Bytes
		known   bool
	}{
		"all listed": {Reading{Used: 7, Processes: []lists.Use{{Used: 3, Known: true}, {Used: 4, Known: true}}}, 0,
			0, true},
		"more is used": {Reading{Used: 9, Processes: []lists.Use{{Used: 3, Known: true}}}, 0, 6, true},
		"managed":      {Reading{Used: 9, Processes: []lists.Use{{Used: 3, Known: true}}}, 4, 2, true},
		"less is used": {Reading{Used: 1, Processes: []lists.Use{{Used: 3, Known: true}}}, 0, 0, true},
		"not known":    {Reading{Used: 9, Processes: []lists.Use{{Used: 3}}}, 0, 0, false},
		"sum too large": {Reading{Processes: []lists.Use{{Used: 1<<64 - 1, Known: true}, {Used: 1, Known: true}}}, 0, 0,
			false},
	} {
		if got, known := unlistedIn(c.reading, lists.Observation{}, c.managed); got != c.want || known != c.known {
			t.Errorf("%s: %s, %v", name, got, known)
		}
	}
}

// The sentence of unattributed memory names the grants that are on the GPU.
func TestUnattributedNamesGrants(t *testing.T) {
	s := Sample{unattributed: map[sharing.GPURef]sharing.Bytes{{UUID: "a"}: sharing.GiB}}
	on := func(id ledger.GrantID, gpu sharing.GPURef, active bool) ledger.Grant {
		g := ledger.Grant{Reservation: ledger.Reservation{ID: id, Placement: sharing.Placement{{GPU: gpu}}}}
		if active {
			g.Active = &ledger.Attachment{}
		}
		return g
	}
	got := s.Unattributed(sharing.GPU{UUID: "a"}, []ledger.Grant{on("x", sharing.GPURef{UUID: "a"}, true),
		on("y", sharing.GPURef{UUID: "b"}, true), on("z", sharing.GPURef{UUID: "a"}, false)})
	if !strings.HasSuffix(got, "Grants on the GPU: x") || !strings.HasPrefix(got, "GPU 0 has 1GiB") {
		t.Error(got)
	}
}

// Memory of ended processes is reported with the processes that keep it.
func TestEndedUse(t *testing.T) {
	const begin = "grant g: 1GiB of GPU 2 belongs to processes that have ended; "
	for want, u := range map[string]EndedUse{
		"no process of the grant has the GPU's files open, so another process keeps them open": {},
		"PID 7 keeps the GPU's files open": {retainers: []int{7}},
		"PIDs 7, 8 keep the GPU's files open; no other grant has such a process": {retainers: []int{7, 8},
			inferred: true},
		"Kerf cannot tell which processes keep the GPU's files open: not permitted": {
			unread: errors.New("not permitted")},
	} {
		u.bytes = sharing.GiB
		if got := u.Sentence("g", 2); got != begin+want {
			t.Errorf("%q, want %q", got, begin+want)
		}
	}
}
