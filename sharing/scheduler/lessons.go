// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"maps"
	"slices"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// lessons is what the policy was told: of pods that came and went, and of the nodes.
type lessons struct {
	policy *cluster.Online
	// learned has the pods that the policy was told of.
	learned map[string]bool
	// stale says that the policy does not know the nodes as they are.
	stale bool
	// era counts the changes that make every score void.
	era uint64
	// survey is of the GPUs in MIG mode together.
	survey survey
}

// leave tells the policy that a pod has ended.
func (l *lessons) leave() {
	if l.policy.Leave() {
		l.survey.void = true
		l.era++
	}
}

// Learn tells the policy of a pod that arrived; each is counted once, however often it is told.
func (l *lessons) Learn(w Want) {
	if l.learned[w.UID] {
		return
	}
	l.learned[w.UID] = true
	for _, a := range w.Asks {
		if a.Kind != sharing.ContainerInit && !a.Request.Open() && l.policy.Learn(cluster.Request{Shape: shapeOf(a.Request, w.CPU)}) {
			l.survey.void = true
			l.era++
		}
	}
}

// renew tells the policy of the nodes that report.
func (l *lessons) renew(all map[string]*node, read *reader) {
	l.stale, l.survey.void = false, true
	names := make([]string, 0, len(all))
	for name, n := range all {
		if n.report != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	nodes := make([]cluster.Node, 0, len(names))
	told := map[*geometry]bool{}
	for _, name := range names {
		nodes = append(nodes, all[name].parts()...)
		for _, g := range all[name].report.geometries() {
			told[g] = true
		}
	}
	read.geometries = slices.DeleteFunc(read.geometries, func(g *geometry) bool { return !told[g] })
	l.policy.Nodes(nodes)
	l.era++
}

// look tells the policy how many GPUs have which units free, once enough of them may have changed. Scores are void only
// when that differs: most reports say what the last one did.
func (l *lessons) look(all map[string]*node, m *placer) {
	s := &l.survey
	if !s.void && s.changes <= s.gpus/cluster.SurveyPart {
		return
	}
	rooms, gpus := map[*mig.Table]mig.Room{}, 0
	for _, n := range all {
		if n.report != nil && len(n.report.cuts) > 0 {
			gpus += m.books(n).rooms(rooms)
		}
	}
	same := !s.void && maps.EqualFunc(rooms, s.rooms, maps.Equal[mig.Room, mig.Room])
	l.survey = survey{rooms: rooms, gpus: gpus}
	if !same && l.policy.Rooms(rooms) {
		l.era++
	}
}
