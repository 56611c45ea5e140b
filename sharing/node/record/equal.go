// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package record

import "slices"

// equal reports whether both have the same text. It runs for each grant of a node whenever one of them changes, and
// reflection is too slow for that. A test checks that it compares all fields.
func (g *Grant) equal(o *Grant) bool {
	return g.ID == o.ID && g.Name == o.Name && g.UID == o.UID && g.PID == o.PID && g.PodUID == o.PodUID &&
		g.Container == o.Container &&
		g.Profile == o.Profile && g.MinLevel == o.MinLevel && g.Level == o.Level && g.Backend == o.Backend &&
		g.MPSDomain == o.MPSDomain &&
		g.Whole == o.Whole && g.Recovered == o.Recovered && g.Namespace == o.Namespace && g.PodName == o.PodName &&
		g.Kind == o.Kind &&
		g.Priority == o.Priority && g.With == o.With && g.ClaimEnded == o.ClaimEnded && g.Cgroup == o.Cgroup &&
		g.Inode == o.Inode && slices.Equal(g.Requests, o.Requests) && slices.Equal(g.Claims, o.Claims) &&
		same(g.Use, o.Use, Use.equal) && equalFragments(g.Shares, o.Shares)
}

func (u Use) equal(o Use) bool {
	return u.ContainerID == o.ContainerID && u.Container == o.Container && slices.Equal(u.Requests, o.Requests) &&
		equalFragments(u.Part, o.Part)
}

// equalFragments tells none from an empty list, as their texts are.
func equalFragments(a, b []Share) bool {
	return (a == nil) == (b == nil) && slices.EqualFunc(a, b, Share.equal)
}

func (f Share) equal(o Share) bool {
	return f.GPU == o.GPU && f.Memory == o.Memory && f.Burst == o.Burst && f.Percent == o.Percent &&
		f.Whole == o.Whole &&
		same(f.MIG, o.MIG, func(a, b Instance) bool { return a == b })
}

// same compares what is pointed at, where both point at anything.
func same[T any](a, b *T, equal func(T, T) bool) bool {
	if a == nil || b == nil {
		return a == b
	}
	return equal(*a, *b)
}
