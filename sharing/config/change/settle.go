// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package change plans what a new SharingConfig changes: which settings of which GPUs now, which wait, and for whom;
// and what two documents say differently.
//
// It is pure. A GPU with grants on a share keeps its settings, and the backend of its shares by its pool's rules. All
// else that new grants get is by the new config at once.
package change

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// Use is a GPU of a node, what holds for it, and who is on it.
type Use struct {
	GPU sharing.GPU
	// Now is what holds for it, nil while nothing is known.
	Now *config.GPUSettings
	// Has is what it has of settings in the words of Step.What, if that differs from Now because its settings already
	// wait. It changes the text, and not Plan.Next.
	Has map[string]string
	// Users are the grants with a share of it, for people.
	Users []string
}

// Step is what becomes different for one GPU.
type Step struct {
	GPU   sharing.GPUID
	Index int
	// What are the settings, each with before and after, and Has is the same with before alone, by the setting.
	What []string
	Has  map[string]string
	// For are those whose end it waits for; none where it is done at once.
	For []string
}

// Plan is what is done for the GPUs of a node.
type Plan struct {
	// Next is what then holds for each GPU.
	Next map[sharing.GPUID]config.GPUSettings
	// Now are the steps that are done at once, Pending those that wait.
	Now, Pending []Step
}

// Settle plans how a node's GPUs get what their pool says. Settings that concern new grants alone are not among them.
func Settle(pool config.Pool, uses []Use) Plan {
	p := Plan{Next: make(map[sharing.GPUID]config.GPUSettings, len(uses))}
	for _, u := range sorted(uses) {
		want := ofTheGPU(pool.Of(u.GPU))
		now := want
		switch {
		case u.Now != nil:
			now = ofTheGPU(*u.Now)
		case len(u.Users) > 0:
			now.Excluded = false // it is used, so it was not left out
		}
		step := Step{GPU: u.GPU.UUID, Index: u.GPU.Index}
		step.What, step.Has = differences(now, want, u.Has)
		p.Next[u.GPU.UUID] = want
		switch {
		case len(step.What) == 0:
		case len(u.Users) == 0:
			p.Now = append(p.Now, step)
		default:
			p.Next[u.GPU.UUID] = now
			step.For = slices.Clone(u.Users)
			p.Pending = append(p.Pending, step)
		}
	}
	return p
}

// Users are the users of a node's GPUs.
type Users struct {
	// Of names the pods and processes that have a part of each GPU.
	Of map[sharing.GPUID][]string
	// Known is false while there may be others.
	Known bool
}

// Desired is what the GPUs of a node should have, and which settings wait for which grants. The known settings of each
// GPU are has. An idle GPU gets what its pool says. A GPU in use keeps what it has. While there may be unknown users,
// each GPU keeps its backends and its front end.
func Desired(pool config.Pool, gpus []sharing.GPU, has map[sharing.GPUID]config.GPUSettings, users Users) Plan {
	uses := make([]Use, 0, len(gpus))
	for _, g := range gpus {
		u := Use{GPU: g, Users: users.Of[g.UUID]}
		if s, known := has[g.UUID]; known {
			u.Now = &s
		}
		uses = append(uses, u)
	}
	p := Settle(pool, uses)
	for id, s := range has {
		next, there := p.Next[id]
		switch {
		case there && !users.Known:
			next.Backends, next.MinLevel, next.FrontEnd = s.Backends, s.MinLevel, s.FrontEnd
			p.Next[id] = next
		case !there && (len(users.Of[id]) > 0 || !users.Known):
			p.Next[id] = s // the GPU may come back
		}
	}
	return p
}

// sorted are the uses by their GPUs.
func sorted(uses []Use) []Use {
	uses = slices.Clone(uses)
	slices.SortFunc(uses, func(a, b Use) int { return a.GPU.Compare(&b.GPU) })
	return uses
}

// ofTheGPU leaves out what concerns new grants alone.
func ofTheGPU(s config.GPUSettings) config.GPUSettings {
	s.Mode, s.MaxSharesPerGPU = config.ModeAuto, 0
	return s
}

// differences are the settings that differ, and what they are before. has replaces the value of from, in words.
func differences(from, to config.GPUSettings, has map[string]string) (what []string, before map[string]string) {
	tell := func(name string, differs bool, was, is any) {
		if told, ok := has[name]; ok {
			was, differs = told, told != fmt.Sprint(is)
		}
		if !differs {
			return
		}
		if before == nil {
			before = map[string]string{}
		}
		before[name] = fmt.Sprint(was)
		what = append(what, fmt.Sprintf("%s %v -> %v", name, was, is))
	}
	asIs := func(s string) string { return cmp.Or(s, "as it is") }
	list := func(l config.BackendList) string {
		if l == "" {
			return "of profile and pool"
		}
		return "[" + strings.ReplaceAll(string(l), ",", ", ") + "]"
	}
	least := func(l sharing.Level) string {
		if l == sharing.LevelUnknown {
			return "of the pool"
		}
		return l.String()
	}
	watts := func(n int) string {
		if n == 0 {
			return "as it is"
		}
		return fmt.Sprintf("%dW", n)
	}
	tell("excluded", from.Excluded != to.Excluded, from.Excluded, to.Excluded)
	tell("frontend", from.FrontEnd != to.FrontEnd, from.FrontEnd, to.FrontEnd)
	tell("backends", from.Backends != to.Backends, list(from.Backends), list(to.Backends))
	tell("minEnforcement", from.MinLevel != to.MinLevel, least(from.MinLevel), least(to.MinLevel))
	tell("memoryReserve", from.MemoryReserve != to.MemoryReserve, from.MemoryReserve, to.MemoryReserve)
	tell("overcommit.memory", from.Overcommit.Memory != to.Overcommit.Memory, from.Overcommit.Memory,
		to.Overcommit.Memory)
	tell("overcommit.compute", from.Overcommit.Compute != to.Overcommit.Compute, from.Overcommit.Compute,
		to.Overcommit.Compute)
	tell("powerLimitWatts", from.PowerLimitWatts != to.PowerLimitWatts, watts(from.PowerLimitWatts),
		watts(to.PowerLimitWatts))
	tell("timeSlice", from.TimeSlice != to.TimeSlice, asIs(from.TimeSlice.String()), asIs(to.TimeSlice.String()))
	tell("computeMode", from.ComputeMode != to.ComputeMode, asIs(from.ComputeMode.String()),
		asIs(to.ComputeMode.String()))
	return what, before
}
