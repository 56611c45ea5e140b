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
	// Memory and Percent are what claims can have together, and Taken* what they have. Users counts the claims.
	Memory, TakenMemory   sharing.Bytes
	Percent, TakenPercent uint64
	Users                 int
	// Excluded is true while claims have the other device of the GPU.
	Excluded bool
	// Taints keep new claims off it, as KEY or KEY=VALUE.
	Taints []string
}

// Wanted is a request of a claim, or one alternative of it.
type Wanted struct {
	// Claim is the claim's name, and Request the request's, with "/" and the name of the alternative if it has one.
	Claim, Request string
	Kind           Kind
	Count          int
	// Memory and Percent are for each device of a share.
	Memory  sharing.Bytes
	Percent uint64
	// Selected is true if CEL selectors or constraints narrow the choice; they are not evaluated here.
	Selected bool
}

// main is the request without its alternative.
func (w Wanted) main() string { return w.Claim + "/" + strings.SplitN(w.Request, "/", 2)[0] }

// String is the request for people.
func (w Wanted) String() string {
	n := ""
	if w.Count > 1 {
		n = fmt.Sprintf("%d times ", w.Count)
	}
	what := "a whole GPU"
	if w.Kind == KindShare {
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
	devices = slices.Clone(devices)
	served := map[string]bool{}
	reasons := map[string][]string{}
	var order []string
	for _, w := range wanted {
		if served[w.main()] {
			continue
		}
		gpus, reason := serve(w, devices)
		if reason == "" {
			served[w.main()] = true
			out.GPUs[w.Claim+"/"+w.Request] = gpus
			continue
		}
		if !slices.Contains(order, w.main()) {
			order = append(order, w.main())
		}
		reasons[w.main()] = append(reasons[w.main()], reason)
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
	var at []int
	tainted, excluded, largest := []string{}, 0, sharing.Bytes(0)
	for i, d := range devices {
		if d.Kind != w.Kind || len(at) == w.Count {
			continue
		}
		free := d.Memory - min(d.Memory, d.TakenMemory)
		switch {
		case len(d.Taints) > 0:
			tainted = append(tainted, d.Taints...)
		case d.Excluded || d.Kind == KindWhole && d.Users > 0:
			excluded++
		case d.Kind == KindShare && (free < w.Memory || d.Percent < d.TakenPercent+w.Percent):
			largest = max(largest, free)
		default:
			at = append(at, i)
		}
	}
	if len(at) < w.Count {
		return nil, w.missing(len(at), tainted, excluded, largest)
	}
	for _, i := range at {
		d := &devices[i]
		d.Users++
		d.TakenMemory, d.TakenPercent = d.TakenMemory+w.Memory, d.TakenPercent+w.Percent
		gpus = append(gpus, d.GPU)
		for j := range devices {
			if devices[j].GPU == d.GPU && devices[j].Kind != d.Kind {
				devices[j].Excluded = true
			}
		}
	}
	return gpus, ""
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
		why = append(why, fmt.Sprintf("other claims use %d GPUs", excluded))
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
