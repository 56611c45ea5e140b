// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package preset

import (
	"fmt"
	"slices"
	"strings"
)

// Choice is the preset for a node.
type Choice struct {
	Preset string `json:"preset"`
	Reason string `json:"reason"`
	// Set are values of the chart that the node needs in addition to the preset.
	Set []Setting `json:"set"`
	// Lacks are paths of the preset that the node does not have.
	Lacks []Lack `json:"lacks"`
	// Doubt says why the preset is not certain; empty if it is.
	Doubt string `json:"doubt"`
}

// Decide chooses the preset for a node. all are the presets of the chart. files is what the examination found; nil
// means that there was none, and the Node alone decides. The Node suggests a preset. If the node lacks a socket of it,
// another preset wins: of those whose sockets all exist, the one with the fewest lacks.
func Decide(s System, all []Values, files *Files) Choice {
	if files != nil && files.OSImage != "" {
		s.OSImage = files.OSImage
	}
	name, reason, known := s.choose()
	at := slices.IndexFunc(all, func(v Values) bool { return v.Name == name })
	if files == nil || at < 0 {
		c := Choice{Preset: name, Reason: reason, Set: s.settings(name)}
		if !known {
			c.Doubt = "the Node names no system or distribution that a preset is for"
		}
		return c.complete()
	}
	guess := files.fit(all[at], s.settings(name), all)
	if len(guess.missing) > 0 {
		return contradicted(s, all, *files, guess, reason)
	}
	c := choiceOf(guess, reason)
	switch {
	case !guess.confirmed() && !known:
		c.Doubt = "these paths could not be examined: " + strings.Join(guess.unknown, ", ")
	case guess.confirmed():
		c.Reason += "; the node has the sockets of this preset"
		if !known {
			c.Doubt = files.otherRuntime(guess.values, s, all)
		}
	}
	return c.complete()
}

// contradicted chooses another preset than the one that the Node suggests, because the node lacks a socket of that.
func contradicted(s System, all []Values, files Files, guess fit, reason string) Choice {
	var best []fit
	for _, v := range all {
		f := files.fit(v, s.settings(v.Name), all)
		if v.Name == guess.values.Name || !s.allows(v.Name) || !f.confirmed() {
			continue
		}
		if len(best) > 0 && f.weight() < best[0].weight() {
			best = nil
		}
		if len(best) == 0 || f.weight() == best[0].weight() {
			best = append(best, f)
		}
	}
	missing := strings.Join(guess.missing, " and ")
	if len(best) == 0 {
		c := choiceOf(guess, reason)
		c.Doubt = fmt.Sprintf("the node has no listener at %s, and no other preset fits", missing)
		return c.complete()
	}
	c := choiceOf(best[0], fmt.Sprintf("the node has the sockets of this preset, and no listener at %s of preset %s",
		missing, guess.values.Name))
	if len(best) > 1 {
		var names []string
		for _, f := range best {
			names = append(names, f.values.Name)
		}
		c.Doubt = fmt.Sprintf("presets %s fit equally well", strings.Join(names, " and "))
	}
	return c.complete()
}

// weight is how far a preset is from what the node has.
func (f fit) weight() int { return len(f.lacks) + len(f.set) }

// otherRuntime says that another container runtime of the kind that kubelet uses listens on the node; empty if none
// does.
func (f Files) otherRuntime(v Values, s System, all []Values) string {
	for _, other := range all {
		if other.RuntimeSocket == v.RuntimeSocket || !f.Paths[other.RuntimeSocket].Listens ||
			(other.Runtime == "crio") != strings.HasPrefix(s.ContainerRuntime, "cri-o://") {
			continue
		}
		return fmt.Sprintf("container runtimes listen at %s and %s; if kubelet uses the second, the preset is %s",
			v.RuntimeSocket, other.RuntimeSocket, other.Name)
	}
	return ""
}

func choiceOf(f fit, reason string) Choice {
	return Choice{Preset: f.values.Name, Reason: reason, Set: f.set, Lacks: f.lacks}
}

// complete makes empty lists of missing ones, for JSON.
func (c Choice) complete() Choice {
	c.Set, c.Lacks = append([]Setting{}, c.Set...), append([]Lack{}, c.Lacks...)
	return c
}
