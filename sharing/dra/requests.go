// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// user is a container with all results of the requests that it references.
type user struct {
	container sharing.PodContainer
	asks      []sharing.ResourceRequest
	results   []Result
	params    Parameters
}

// Requests are the requests of the containers of a pod, from the claims that it references. Claims that are not given
// belong to other drivers. A container's amounts are the sum, per GPU, of the requests that it references. Containers
// that reference the same requests share one cap: each is given an equal part, and the cap is the sum. Whole GPUs and a
// MIG instance are given to each of them. An init container uses the grant of a later container.
//
// Errors wrap sharing.ErrInvalid or sharing.ErrUnsupported, and name pod, container or claim.
func Requests(pod sharing.Pod, claims []Claim, gpus []sharing.GPUID) ([]sharing.ContainerRequest, error) {
	for _, c := range claims {
		if err := c.Check(gpus); err != nil {
			return nil, err
		}
	}
	groups, err := groupsOf(pod, claims)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	var out []sharing.ContainerRequest
	for _, g := range groups {
		asks, err := g.requests(pod, gpus)
		if err != nil {
			return nil, fmt.Errorf("pod %s/%s: container %q: %w", pod.Namespace, pod.Name, g[0].container.Name, err)
		}
		out = append(out, asks...)
	}
	return sharing.MergeSharedCaps(out)
}

// group are the containers of a pod that reference the same requests; all but init containers run at the same time.
type group []user

// groupsOf finds the containers that use claims, in the order of the pod's spec.
func groupsOf(pod sharing.Pod, claims []Claim) ([]group, error) {
	var groups []group
	for _, c := range pod.Containers {
		u, err := userOf(pod, c, claims)
		if err != nil {
			return nil, fmt.Errorf("container %q: %w", c.Name, err)
		}
		if len(u.asks) == 0 {
			continue
		}
		at := slices.IndexFunc(groups, func(g group) bool { return slices.Equal(g[0].asks, u.asks) })
		if at >= 0 {
			groups[at] = append(groups[at], u)
			continue
		}
		for _, g := range groups {
			if slices.ContainsFunc(g[0].asks, func(a sharing.ResourceRequest) bool {
				return slices.Contains(u.asks,
					a)
			}) {
				return nil, fmt.Errorf("containers %q and %q share a claim, and one of them uses another as well; "+
					"reference the same claims in both: %w", g[0].container.Name, c.Name, sharing.ErrUnsupported)
			}
		}
		groups = append(groups, group{u})
	}
	return groups, nil
}

// userOf finds what a container references.
func userOf(pod sharing.Pod, c sharing.PodContainer, claims []Claim) (user, error) {
	u := user{container: c}
	admin := false
	for _, ref := range c.Claims {
		claim, ok := claimOf(pod, ref.Name, claims)
		if !ok {
			continue
		}
		admin = admin || slices.ContainsFunc(claim.Results, func(r Result) bool {
			return r.Admin && (ref.Request == "" || ref.Request == r.main())
		})
		for _, name := range claim.requests() {
			if ask := sharing.ClaimRequest(claim.UID, name); ref.Request == "" || ref.Request == name {
				params, err := claim.parametersOf(name)
				if err != nil {
					return u, err
				}
				if len(u.asks) > 0 && !sameParameters(u.params, params) {
					return u, fmt.Errorf("its claims have different parameters: %w", sharing.ErrUnsupported)
				}
				if slices.Contains(u.asks, ask) {
					continue
				}
				u.asks, u.params = append(u.asks, ask), params
				for _, r := range claim.Results {
					if r.main() == name {
						u.results = append(u.results, r)
					}
				}
			}
		}
	}
	if admin && len(u.asks) > 0 {
		return u, fmt.Errorf("it has admin access and a GPU; give them to two containers: %w", sharing.ErrUnsupported)
	}
	sharing.SortResourceRequests(u.asks)
	return u, nil
}

func sameParameters(a, b Parameters) bool {
	return a.Profile == b.Profile && a.Memory == b.Memory && a.Percent == b.Percent && a.GPUs == b.GPUs &&
		slices.Equal(a.Models, b.Models) && a.MinLevel == b.MinLevel && a.Placement == b.Placement
}

// claimOf is the claim that a pod has under a name.
func claimOf(pod sharing.Pod, name string, claims []Claim) (Claim, bool) {
	for _, p := range pod.Claims {
		for _, c := range claims {
			if p.Name == name && p.Claim == c.Name && c.Namespace == pod.Namespace {
				return c, true
			}
		}
	}
	return Claim{}, false
}

// requests are those of the containers of a group.
func (g group) requests(pod sharing.Pod, gpus []sharing.GPUID) ([]sharing.ContainerRequest, error) {
	total, advice, err := g[0].request(gpus)
	if err != nil {
		return nil, err
	}
	members := slices.DeleteFunc(slices.Clone(g),
		func(u user) bool { return u.container.Kind == sharing.ContainerInit })
	if len(members) == 0 {
		members = g[:1] // Of init containers alone, the first has the grant.
	}
	switch n := len(members); {
	case n == 1:
	case total.Kind != sharing.KindShared: // They have the devices together, and no cap within them.
	case total.Percent > 0 && uint64(total.Percent) < uint64(n*total.GPUs): //nolint:gosec // small
		return nil, fmt.Errorf("%d containers share %s of compute; request 1%% or more for each: %w", n, total.Percent,
			sharing.ErrUnsupported)
	}
	var out []sharing.ContainerRequest
	for i, m := range members {
		ask := sharing.ContainerRequest{
			Ref: sharing.ContainerRef{PodUID: pod.UID, Namespace: pod.Namespace, Pod: pod.Name,
				Container: m.container.Name},
			Kind: m.container.Kind, Requests: slices.Clone(m.asks), Request: part(total, i, len(members)),
			Advice: advice, Priority: pod.Priority,
		}
		if i > 0 && total.Kind == sharing.KindShared {
			ask.With = members[0].container.Name
		}
		out = append(out, ask)
	}
	return out, nil
}

// part is what container i of n gets of a request for shares; all together have the whole. The first has what does not
// divide. Of other requests each container has all.
func part(total sharing.Request, i, n int) sharing.Request {
	out := total.Clone()
	if n == 1 || total.Kind != sharing.KindShared {
		return out
	}
	gpus := uint64(total.GPUs) //nolint:gosec // 1 to 64
	memory, percent := total.Each()
	m, p := uint64(memory)/uint64(n), uint64(percent)/uint64(n) //nolint:gosec // positive
	if i == 0 {
		m, p = uint64(memory)-m*uint64(n-1), uint64(percent)-p*uint64(n-1) //nolint:gosec // positive
	}
	out.Memory, out.Percent = sharing.Bytes(m*gpus), sharing.Percent(p*gpus) //nolint:gosec // at most total's
	return out
}

// request is the sum of what a container references, on the GPUs or the MIG instance that the scheduler chose.
func (u user) request(gpus []sharing.GPUID) (sharing.Request, sharing.Advice, error) {
	kinds := map[Kind]int{}
	out := sharing.Request{MinLevel: u.params.MinLevel, Profile: u.params.Profile,
		Models: slices.Clone(u.params.Models), Place: u.params.Placement}
	advice := sharing.Advice{Exact: true}
	for _, r := range u.results {
		at, _ := TargetOf(r.Device, gpus) // Check has found it
		kinds[at.Kind]++
		advice.MIG = at.Instance
		if !slices.Contains(out.UUIDs, at.GPU) {
			out.UUIDs = append(out.UUIDs, at.GPU)
		}
	}
	slices.Sort(out.UUIDs)
	out.GPUs, advice.GPUs = len(out.UUIDs), slices.Clone(out.UUIDs)
	var err error
	switch {
	case len(kinds) > 1:
		err = fmt.Errorf("it has shares, whole GPUs or MIG instances together; request one kind: %w",
			sharing.ErrUnsupported)
	case kinds[KindMIG] > 1:
		err = fmt.Errorf("it has %d MIG instances; a program uses one: %w", kinds[KindMIG], sharing.ErrUnsupported)
	case kinds[KindMIG] == 1:
		out.Kind, out.MIG = sharing.KindMIG, advice.MIG.Profile
		err = out.Validate()
	case kinds[KindWhole] > out.GPUs:
		err = fmt.Errorf("a whole GPU is allocated twice: %w", sharing.ErrInvalid)
	case kinds[KindWhole] > 0:
		out.Kind = sharing.KindWhole
	default:
		out.Kind = sharing.KindShared
		out.Memory, out.Percent, err = u.amounts(gpus)
	}
	if err != nil {
		return out, advice, err
	}
	return out, advice, u.params.check(out)
}

// amounts are the totals of the shares that a container references.
func (u user) amounts(gpus []sharing.GPUID) (sharing.Bytes, sharing.Percent, error) {
	type amount struct{ memory, percent uint64 }
	sums := map[sharing.GPUID]amount{}
	for _, r := range u.results {
		at, _ := TargetOf(r.Device, gpus)
		s := sums[at.GPU]
		sums[at.GPU] = amount{s.memory + r.Memory, s.percent + r.Percent} // at most 32 results of at most maxMemory
	}
	var first amount
	for _, s := range sums {
		if first == (amount{}) {
			first = s
		}
		switch {
		case s != first:
			return 0, 0, fmt.Errorf("its amounts differ from GPU to GPU; request the same on each: %w",
				sharing.ErrUnsupported)
		case s.percent > uint64(sharing.FullGPU):
			return 0, 0, fmt.Errorf("it requests %d%% of one GPU: %w", s.percent, sharing.ErrInvalid)
		}
	}
	n := uint64(len(sums))
	return sharing.Bytes(first.memory * n), sharing.Percent(first.percent * n), nil //nolint:gosec // at most 100 each
}

// check compares the amounts of the parameters with those that the scheduler allocated.
func (p Parameters) check(r sharing.Request) error {
	switch {
	case p.Memory != 0 && p.Memory != r.Memory:
		return sharing.Invalid("memory", p.Memory.String(), "write the amounts as capacity of the claim's request",
			"is not what the scheduler allocated (%s)", r.Memory)
	case p.Percent != 0 && p.Percent != r.Percent:
		return sharing.Invalid("percent", p.Percent.String(), "write the amounts as capacity of the claim's request",
			"is not what the scheduler allocated (%s)", r.Percent)
	case p.GPUs != 0 && p.GPUs != r.GPUs:
		return sharing.Invalid("gpuCount", fmt.Sprint(p.GPUs), "write it as count of the claim's request",
			"is not what the scheduler allocated (%d)", r.GPUs)
	}
	return nil
}
