// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
)

// explainer says why pods are not placed.
type explainer struct{ gangs }

// Explain is why no node answers the pod, in one line. An example is "needs 40GiB on one GPU: best of 12 nodes has
// 31GiB free; 3 nodes lack level driver". It is empty when a node does. Nodes without an agent's report do not count.
func (e *explainer) Explain(w PodRequest, now time.Time) string {
	names := make([]string, 0, len(e.nodes))
	for name, n := range e.nodes {
		if n.report != nil && len(n.report.gpus) > 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "no node has GPUs that a kerf-agent reports of"
	}
	slices.Sort(names)
	for _, a := range w.Containers {
		alone := w
		alone.Containers, alone.key = []ContainerRequest{a}, keyOf([]ContainerRequest{a})
		if text := e.explain(alone, names, now); text != "" {
			if len(w.Containers) > 1 {
				text = fmt.Sprintf("container %q %s", a.Container, text)
			}
			return text
		}
	}
	if len(e.Fitting(w, now)) > 0 {
		return ""
	}
	return fmt.Sprintf("needs %s together: each would fit alone, and no node has enough free for all",
		needs(w.Containers))
}

// explain is about a pod of one container; empty when a node answers it.
func (e *explainer) explain(w PodRequest, names []string, now time.Time) string {
	counts := map[string]int{}
	best, tight, cut := room{}, 0, 0
	r := w.Containers[0].Request
	for _, name := range names {
		n := e.nodes[name]
		v := e.Fit(w, name, now)
		switch v.Reason {
		case Fits:
			return ""
		case LacksCapacity:
			tight++
			if full, err := e.resolve(n, r); err == nil {
				best = best.better(roomOn(e.stateOf(n), full))
				r = full
			}
		case LacksInstance:
			cut++
		case LacksLevel:
			if full, err := e.resolve(n, r); err == nil {
				counts[lacks(e.stateOf(n), full)]++
			}
		case Stale:
			counts["have a kerf-agent that is not heard from"]++
		case Refused:
			counts["refuse it: "+firstLine(v.Text)]++
		case LacksProfile:
			counts[profilePhrase(e.stateOf(n), r)]++
		case NotOffered:
			text := phrase(v.Reason)
			if _, unknown := otherProfiles(e.stateOf(n), w); unknown {
				text = profilePhrase(e.stateOf(n), r) // no node offers what is misspelled
			}
			counts[text]++
		case NoReport, Torn, NotReady, WrongModel, LacksGPUs, TooSmall, Unhealthy:
			counts[phrase(v.Reason)]++
		}
	}
	var parts []string
	if tight > 0 {
		parts = append(parts, fmt.Sprintf("best of %s has %s", nodes(len(names)), best.say(r)))
	}
	if cut > 0 {
		parts = append(parts, number(nodes(cut)+" have GPUs in MIG mode, and no place free on them", cut))
	}
	order := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	for _, text := range order {
		parts = append(parts, number(nodes(counts[text])+" "+text, counts[text]))
	}
	return "needs " + need(r) + ": " + strings.Join(parts, "; ")
}

// ExplainGang says in one line why the pods have no room at once; empty when they have.
func (e *explainer) ExplainGang(wants []PodRequest, now time.Time) string {
	for _, w := range wants {
		if text := e.Explain(w, now); text != "" {
			return text
		}
	}
	e.refresh()
	nodes := make([]string, 0, len(e.nodes))
	for name := range e.nodes {
		nodes = append(nodes, name)
	}
	slices.Sort(nodes)
	if room := e.placed(largestFirst(wants), nodes, now); room < len(wants) {
		return fmt.Sprintf("%d pods must fit at once, and %d of them fit", len(wants), room)
	}
	return ""
}

func phrase(r Reason) string {
	switch r {
	case Torn:
		return "have a report that does not agree with itself"
	case NotReady:
		return "have a kerf-agent that is not ready"
	case NotOffered:
		return "do not offer this kind of GPU resource"
	case WrongModel:
		return "have no GPU of the model or UUID requested"
	case LacksGPUs:
		return "have too few GPUs"
	case TooSmall:
		return "have GPUs that are too small"
	case Unhealthy:
		return "have too few healthy GPUs"
	case Fits, NoReport, Stale, Refused, LacksLevel, LacksCapacity, LacksInstance, LacksProfile:
	}
	return "cannot: " + r.String()
}

// number puts the verb of a phrase about nodes into the singular.
func number(text string, n int) string {
	if n != 1 {
		return text
	}
	for _, verb := range [][2]string{{" lack ", " lacks "}, {" have ", " has "}, {" do not ", " does not "},
		{" refuse ", " refuses "}} {
		if strings.HasPrefix(text, "1 node"+verb[0]) {
			return strings.Replace(text, verb[0], verb[1], 1)
		}
	}
	return text
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

func needs(asks []ContainerRequest) string {
	var out []string
	for _, a := range asks {
		out = append(out, need(a.Request))
	}
	return strings.Join(out, " and ")
}

// need is the request in the words of who wrote it.
func need(r sharing.Request) string {
	switch {
	case r.Open():
		return "profile " + r.Profile
	case r.Kind == sharing.KindMIG:
		return r.String()
	case r.Kind == sharing.KindWhole && r.GPUs == 1:
		return "a whole GPU"
	case r.Kind == sharing.KindWhole:
		return fmt.Sprintf("%d whole GPUs", r.GPUs)
	}
	memory, percent := r.Each()
	amount := memory.String() + " and " + percent.String()
	switch {
	case percent == 0:
		amount = memory.String()
	case memory == 0:
		amount = percent.String()
	}
	if r.GPUs == 1 {
		return amount + " on one GPU"
	}
	return fmt.Sprintf("%s on each of %d GPUs", amount, r.GPUs)
}

// room is what the best GPUs of a node have for a request.
type room struct {
	// gpus is how many GPUs would do; memory and percent are what the one has that comes nearest.
	gpus    int
	memory  sharing.Bytes
	percent sharing.Percent
}

func (a room) better(b room) room {
	if cmp.Or(cmp.Compare(a.gpus, b.gpus), cmp.Compare(a.memory, b.memory), cmp.Compare(a.percent, b.percent)) >= 0 {
		return a
	}
	return b
}

func roomOn(s *state, r sharing.Request) room {
	out := room{}
	for _, g := range s.gpus {
		v := allocator.Fit(g, one(r))
		if why := reasonOf(v.Code); g.GPU.Health != sharing.HealthOK || why == WrongModel || why == LacksLevel {
			continue
		}
		if v.Fits() {
			out.gpus++
		}
		if cmp.Or(cmp.Compare(g.FreeMemory, out.memory), cmp.Compare(g.FreePercent, out.percent)) > 0 {
			out.memory, out.percent = g.FreeMemory, g.FreePercent
		}
	}
	return out
}

// lacks is why the GPUs of a node cannot hold the request strongly enough, in a phrase that equal nodes share.
func lacks(s *state, r sharing.Request) string {
	least := r.MinLevel
	for _, g := range s.gpus {
		switch v := allocator.Fit(g, r); {
		case v.Code == allocator.Unenforced:
			return "do not enforce shares (" + sharing.AllowUnenforced + ")"
		case v.Code == allocator.BelowPool && (least == r.MinLevel || g.MinLevel < least):
			least = g.MinLevel
		}
	}
	return "lack level " + least.String()
}

// say is the room as it is compared with the request.
func (a room) say(r sharing.Request) string {
	memory, percent := r.Each()
	switch {
	case r.Kind == sharing.KindWhole:
		return fmt.Sprintf("%d free", a.gpus)
	case r.GPUs > 1:
		return fmt.Sprintf("enough free on %d", a.gpus)
	case percent == 0:
		return a.memory.String() + " free"
	case memory == 0:
		return fmt.Sprintf("%v and %v free", a.percent, a.memory)
	}
	return fmt.Sprintf("%v and %v free", a.memory, a.percent)
}
