// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Offered is a device of Kerf in a ResourceSlice, with what claims have of it.
type Offered struct {
	Node, Device, GPU string
	Kind              Kind
	// Profile is that of a MIG instance.
	Profile string
	// Memory and Percent are what claims can have together, and Taken* what they have. Users counts the claims.
	Memory, TakenMemory   sharing.Bytes
	Percent, TakenPercent uint64
	Users                 int
	// Consumes is what the device takes of the counters of its GPU, and Counters what all its devices have together.
	Consumes, Counters []Counter
	// Taints keep new claims off it, as KEY or KEY=VALUE.
	Taints []string
}

// Wanted is a request of a claim, or one alternative of it.
type Wanted struct {
	// Claim is the claim's name, and Request the request's, with "/" and the name of the alternative if it has one.
	Claim, Request string
	Kind           Kind
	// Profile is that of a MIG instance, with dots for plus signs; empty for any.
	Profile string
	Count   int
	// Memory and Percent are for each device of a share.
	Memory  sharing.Bytes
	Percent uint64
	// Selected is true if CEL selectors or constraints narrow the choice; they are not evaluated here.
	Selected bool
}

// Main names the claim and the request without its alternative.
func (w Wanted) Main() string { return w.Claim + "/" + strings.SplitN(w.Request, "/", 2)[0] }

// String is the request for people.
func (w Wanted) String() string {
	n := ""
	if w.Count > 1 {
		n = fmt.Sprintf("%d times ", w.Count)
	}
	what := "a whole GPU"
	switch w.Kind {
	case KindWhole:
	case KindMIG:
		what = strings.TrimSpace("a MIG instance " + w.Profile)
	case KindShare:
		what = w.Memory.String()
		if w.Percent > 0 {
			what += fmt.Sprintf(" and %d%%", w.Percent)
		}
	}
	return fmt.Sprintf("%s%s (claim %s, request %s)", n, what, w.Claim, w.Request)
}

// Answer says whether the devices of a node could serve all requests now.
type Answer struct {
	Node string
	Fits bool
	// GPUs are those that would serve each request, by Wanted.Claim and Wanted.Request.
	GPUs map[string][]string
	// Reason is why it cannot.
	Reason string
}

// Ask has each node try the requests one after another, in the order in which the scheduler tries the devices. It
// evaluates no CEL, so that a node which fits can still be the wrong one.
func Ask(wanted []Wanted, devices []Offered) []Answer {
	byNode := map[string][]Offered{}
	for _, d := range devices {
		byNode[d.Node] = append(byNode[d.Node], d)
	}
	var out []Answer
	for node, all := range byNode {
		out = append(out, askNode(node, wanted, all))
	}
	slices.SortFunc(out, func(a, b Answer) int {
		if a.Fits != b.Fits {
			return map[bool]int{true: -1, false: 1}[a.Fits]
		}
		return cmp.Compare(a.Node, b.Node)
	})
	return out
}

func askNode(node string, wanted []Wanted, devices []Offered) Answer {
	out := Answer{Node: node, Fits: true, GPUs: map[string][]string{}}
	served := map[string]bool{}
	reasons := map[string][]string{}
	var order []string
	for _, w := range wanted {
		if served[w.Main()] {
			continue
		}
		after := slices.Clone(devices)
		gpus, reason := serve(w, after)
		if reason == "" {
			devices = after
			served[w.Main()] = true
			out.GPUs[w.Claim+"/"+w.Request] = gpus
			continue
		}
		if !slices.Contains(order, w.Main()) {
			order = append(order, w.Main())
		}
		reasons[w.Main()] = append(reasons[w.Main()], reason)
	}
	for _, request := range order {
		if !served[request] && out.Fits {
			out.Fits, out.GPUs, out.Reason = false, nil, strings.Join(reasons[request], "; or ")
		}
	}
	return out
}

// serve takes the devices for a request, or says why there are too few.
func serve(w Wanted, devices []Offered) (gpus []string, reason string) {
	tainted, excluded, largest := []string{}, 0, sharing.Bytes(0)
	for i := range devices {
		d := &devices[i]
		if !w.matches(*d) || len(gpus) == w.Count {
			continue
		}
		free := d.Memory - min(d.Memory, d.TakenMemory)
		switch {
		case len(d.Taints) > 0:
			tainted = append(tainted, d.Taints...)
		case d.excluded(devices):
			excluded++
		case d.Kind == KindShare && (free < w.Memory || d.Percent < d.TakenPercent+w.Percent):
			largest = max(largest, free)
		default: // Taken at once: the next device may overlap it.
			d.Users++
			d.TakenMemory, d.TakenPercent = d.TakenMemory+w.Memory, d.TakenPercent+w.Percent
			gpus = append(gpus, d.GPU)
		}
	}
	if len(gpus) < w.Count {
		return nil, w.missing(len(gpus), tainted, excluded, largest)
	}
	return gpus, ""
}

// matches reports whether a device is of the kind, and of the MIG profile, that is wanted.
func (w Wanted) matches(d Offered) bool {
	return d.Kind == w.Kind && (w.Profile == "" || strings.ReplaceAll(d.Profile, "+", ".") == w.Profile)
}

// excluded reports whether claims leave nothing of the device: they have it, or others of its GPU that consume the same
// counters. Several claims can have one share.
func (d Offered) excluded(devices []Offered) bool {
	if d.Users > 0 {
		return d.Kind != KindShare
	}
	left := map[string]uint64{}
	for _, c := range d.Counters {
		left[c.Name] = c.Value
	}
	for _, o := range devices {
		if o.Users == 0 || o.Node != d.Node || o.GPU != d.GPU {
			continue
		}
		if len(d.Consumes) == 0 || len(o.Consumes) == 0 {
			return true // Without counters, two devices of a GPU exclude each other.
		}
		for _, c := range o.Consumes {
			left[c.Name] -= min(left[c.Name], c.Value)
		}
	}
	return slices.ContainsFunc(d.Consumes, func(c Counter) bool { return c.Value > left[c.Name] })
}

// missing says why a node has too few devices.
func (w Wanted) missing(found int, tainted []string, excluded int, largest sharing.Bytes) string {
	text := fmt.Sprintf("no GPU for %s", w)
	if found > 0 {
		text = fmt.Sprintf("%d of %d GPUs for %s", found, w.Count, w)
	}
	var why []string
	if w.Kind == KindShare && largest > 0 {
		why = append(why, fmt.Sprintf("the largest free share is %s", largest))
	} else if w.Kind == KindShare && excluded == 0 && len(tainted) == 0 {
		why = append(why, "no share is free")
	}
	if excluded > 0 {
		what := "GPUs"
		if w.Kind == KindMIG {
			what = "of its instances"
		}
		why = append(why, fmt.Sprintf("other claims use %d %s", excluded, what))
	}
	if len(tainted) > 0 {
		slices.Sort(tainted)
		why = append(why, "taint "+strings.Join(slices.Compact(tainted), ", "))
	}
	if len(why) > 0 {
		text += ": " + strings.Join(why, ", ")
	}
	return text
}
