// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// Why is one line over all nodes of why a request has no place: see the function of that name.
func (c *Cluster) Why(r Request) string { return Why(r, c.nodes) }

// Why is one line for the owner of a request: what it needs, and what keeps how many of the nodes from giving it, with the
// best that there is: "needs 40 GiB on one GPU: best of 12 nodes has 31 free; 3 nodes lack level driver". What comes
// nearest to a fit stands first. Where nodes can give it, the line says how many.
func Why(r Request, nodes []*Node) string {
	byReason := map[Reason][]*Node{}
	for _, n := range nodes {
		why := Judge(n, r)
		byReason[why] = append(byReason[why], n)
	}
	if fit := len(byReason[Fits]); fit > 0 {
		return fmt.Sprintf("%s: %d of %s can give it", needs(r), fit, nodesOf(len(nodes)))
	}
	if len(nodes) == 0 {
		return needs(r) + ": there are no nodes"
	}
	var parts []string
	for _, why := range []Reason{LacksRoom, Withheld, LacksCPU, LacksMemory, LacksGPUs, LacksProfile, OtherPieces, LacksLevel, WrongModel, IsCordoned} {
		if some := byReason[why]; len(some) > 0 {
			parts = append(parts, summed(r, why, some)...)
		}
	}
	return needs(r) + ": " + strings.Join(parts, "; ")
}

// needs is what the request asks for, as its owner wrote it.
func needs(r Request) string {
	var amount []string
	if r.GPUMemory > 0 {
		amount = append(amount, gib(r.GPUMemory)+" GiB")
	}
	if r.Share > 0 && r.Share < WholeGPU {
		amount = append(amount, percent(r.Share))
	}
	what := strings.Join(amount, " and ")
	switch {
	case r.Profile != "":
		return "needs a MIG instance " + r.Profile
	case r.GPUs == 0:
		return fmt.Sprintf("needs %s cores and %v of memory", cores(r.CPU), r.Memory)
	case what == "" && r.GPUs == 1:
		return "needs a whole GPU"
	case what == "":
		return fmt.Sprintf("needs %d whole GPUs on one node", r.GPUs)
	case r.GPUs == 1:
		return "needs " + what + " on one GPU"
	}
	return fmt.Sprintf("needs %s on each of %d GPUs of one node", what, r.GPUs)
}

// summed says one reason of some nodes.
func summed(r Request, why Reason, nodes []*Node) []string {
	count := nodesOf(len(nodes))
	best := func(value func(n *Node) int64) int64 { return value(slices.MaxFunc(nodes, by(value))) }
	switch why {
	case LacksRoom:
		return noRoom(r, nodes)
	case Withheld:
		return []string{count + has(len(nodes)) + " it only on GPUs that take nothing new"}
	case LacksCPU:
		most := best(func(n *Node) int64 { return int64(n.CPU) })
		return []string{fmt.Sprintf("%s%s too little CPU (best %s cores free of %s)", count, has(len(nodes)), cores(Milli(most)), cores(r.CPU))}
	case LacksMemory:
		most := best(func(n *Node) int64 { return int64(n.Memory >> 20) })
		return []string{fmt.Sprintf("%s%s too little memory (best %v free of %v)", count, has(len(nodes)), sharing.Bytes(most)<<20, r.Memory)} //nolint:gosec // came from it
	case LacksGPUs:
		if r.GPUs == 1 {
			return []string{count + has(len(nodes)) + " no GPU"}
		}
		return []string{fmt.Sprintf("%s%s fewer than %d GPUs", count, has(len(nodes)), r.GPUs)}
	case LacksProfile:
		return noProfile(nodes)
	case OtherPieces: // all of them the same: the request is for what they do not give
		return []string{fmt.Sprintf("GPUs of %s are given %s", count, nodes[0].Gives)}
	case LacksLevel:
		return []string{fmt.Sprintf("%s lack%s level %v", count, s(len(nodes)), r.Level)}
	case WrongModel:
		return models(nodes)
	case IsCordoned:
		return []string{count + " take" + s(len(nodes)) + " nothing new"}
	case Fits:
	}
	return nil
}

// noProfile tells GPUs that have other profiles, with their names, from those that are not in MIG mode.
func noProfile(nodes []*Node) []string {
	var parts, lists []string
	plain, of := 0, map[string]int{}
	for _, n := range nodes {
		if n.Table == nil {
			plain++
			continue
		}
		names := n.Table.Names()
		if of[names]++; of[names] == 1 {
			lists = append(lists, names)
		}
	}
	for _, names := range lists {
		parts = append(parts, fmt.Sprintf("GPUs of %s cannot be cut so, but into %s", nodesOf(of[names]), names))
	}
	if plain > 0 {
		parts = append(parts, "GPUs of "+nodesOf(plain)+" are not in MIG mode")
	}
	return parts
}

// noRoom tells GPUs that are too full from those that are too small when empty.
func noRoom(r Request, nodes []*Node) []string {
	var full, small, unknown []*Node
	for _, n := range nodes {
		switch {
		case n.share(r.Shape) <= WholeGPU:
			full = append(full, n)
		case n.GPUMemory > 0:
			small = append(small, n)
		default:
			unknown = append(unknown, n)
		}
	}
	var parts []string
	if len(full) > 0 {
		parts = append(parts, tooFull(r, full))
	}
	if len(small) > 0 {
		most := slices.MaxFunc(small, by(func(n *Node) int64 { return int64(n.GPUMemory >> 10) }))
		parts = append(parts, fmt.Sprintf("GPUs of %s have no more than %s GiB", nodesOf(len(small)), gib(most.GPUMemory)))
	}
	if len(unknown) > 0 {
		parts = append(parts, "GPU memory of "+nodesOf(len(unknown))+" is not known")
	}
	return parts
}

func tooFull(r Request, nodes []*Node) string {
	if r.Profile != "" {
		return noPlace(r, nodes)
	}
	of := "best of " + nodesOf(len(nodes))
	if len(nodes) == 1 {
		of = "best GPU of 1 node"
	}
	if r.GPUs > 1 || r.GPUMemory == 0 && r.Share == WholeGPU {
		enough := func(n *Node) int64 { return int64(count(n.GPUs, n.share(r.Shape))) }
		most := enough(slices.MaxFunc(nodes, by(enough)))
		if most == 0 {
			return "none of the GPUs of " + nodesOf(len(nodes)) + " is free enough"
		}
		plural := "s"
		if most == 1 {
			plural = ""
		}
		return fmt.Sprintf("best of %s has %d such GPU%s", nodesOf(len(nodes)), most, plural)
	}
	free := func(n *Node) int64 { return int64(slices.Max(n.GPUs)) }
	if r.GPUMemory > 0 {
		free = func(n *Node) int64 {
			left := int64(n.Overcommit.Memory.Of(n.GPUMemory)>>10) * int64(slices.Max(n.GPUs)) / int64(WholeGPU)
			return min(left, int64(n.GPUMemory>>10))
		}
		// The share may be what is short: then memory alone would make no sense of it.
		if most := free(slices.MaxFunc(nodes, by(free))); most < int64(r.GPUMemory>>10) {
			return of + " has " + gib(sharing.Bytes(most)<<10) + " free" //nolint:gosec // came from it
		}
		free = func(n *Node) int64 { return int64(slices.Max(n.GPUs)) }
	}
	return of + " has " + percent(Milli(free(slices.MaxFunc(nodes, by(free))))) + " free"
}

// noPlace is for MIG instances: room in pieces is another matter than none.
func noPlace(r Request, nodes []*Node) string {
	pieces := 0
	for _, n := range nodes {
		p, _ := n.instance(r.Shape)
		if slices.ContainsFunc(n.instances, func(o mig.Occupancy) bool { return n.Table.Rearranged(o, p.ID) }) {
			pieces++
		}
	}
	if pieces == 0 {
		return "no place on the GPUs of " + nodesOf(len(nodes))
	}
	return fmt.Sprintf("no place on the GPUs of %s (on %d of them the room is there, in pieces)", nodesOf(len(nodes)), pieces)
}

// models are the nodes with other models, and those without any.
func models(nodes []*Node) []string {
	names, none := map[string]bool{}, 0
	for _, n := range nodes {
		if n.Model == "" {
			none++
		} else {
			names[n.Model] = true
		}
	}
	var parts []string
	if other := len(nodes) - none; other > 0 {
		var list []string
		for name := range names {
			list = append(list, name)
		}
		slices.Sort(list)
		if len(list) > maxNamed {
			list = append(list[:maxNamed], "...")
		}
		parts = append(parts, fmt.Sprintf("%s%s another GPU model (%s)", nodesOf(other), has(other), strings.Join(list, ", ")))
	}
	if none > 0 {
		parts = append(parts, nodesOf(none)+has(none)+" no GPU")
	}
	return parts
}

// maxNamed is how many models are named in a line.
const maxNamed = 3

func by(value func(n *Node) int64) func(a, b *Node) int {
	return func(a, b *Node) int { return cmp.Compare(value(a), value(b)) }
}

func nodesOf(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

func has(n int) string {
	if n == 1 {
		return " has"
	}
	return " have"
}

func s(n int) string {
	if n == 1 {
		return "s"
	}
	return ""
}

// gib is down to a tenth, since what is free must not be overstated.
func gib(b sharing.Bytes) string {
	tenths := uint64(b/sharing.GiB)*10 + uint64(b%sharing.GiB)*10/uint64(sharing.GiB)
	if tenths%10 == 0 {
		return fmt.Sprint(tenths / 10)
	}
	return fmt.Sprintf("%d.%d", tenths/10, tenths%10)
}

func cores(m Milli) string {
	if m%1000 == 0 {
		return fmt.Sprint(m / 1000)
	}
	return strings.TrimRight(fmt.Sprintf("%d.%03d", m/1000, m%1000), "0")
}
