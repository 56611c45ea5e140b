// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package whatif answers the console's questions about possible changes: nodes that come or go, MIG mode, further
// pods, and another config. The answers are those of kerf simulate and kerf config.
package whatif

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

const (
	// mostAsked bounds the pods and nodes of a question.
	mostAsked = 10000
	seed      = 42
)

// Question is what a viewer asks.
type Question struct {
	// Remove and MIG are globs over the nodes' names: nodes that go, and nodes whose GPUs get MIG mode.
	Remove []string `json:"remove"`
	MIG    []string `json:"mig"`
	// Add are further nodes.
	Add []More `json:"add"`
	// Pods are further pods.
	Pods []Pods `json:"pods"`
}

// More is a number of nodes like an existing one.
type More struct {
	Like  string `json:"like"`
	Count int    `json:"count"`
}

// Pods are equal pods. Profile stands for the amounts of a profile of the config.
type Pods struct {
	Name      string  `json:"name"`
	Count     int     `json:"count"`
	Profile   string  `json:"profile"`
	GPUs      int     `json:"gpus"`
	GPUMemory string  `json:"gpuMemory"`
	Percent   float64 `json:"percent"`
	MIG       string  `json:"mig"`
	Cores     float64 `json:"cores"`
}

// Answer is the result, with what could not be counted.
type Answer struct {
	simulate.Fit

	Notes []string `json:"notes"`
}

// Evaluate answers the question for a cluster. Errors are *sharing.FieldError, or say what cannot be simulated.
func Evaluate(nodes []simulate.LiveNode, pods []simulate.LivePod, c *config.Config, q Question) (Answer, error) {
	if err := q.check(); err != nil {
		return Answer{}, err
	}
	for _, m := range q.Add {
		more, err := m.nodes(nodes)
		if err != nil {
			return Answer{}, err
		}
		nodes = append(nodes, more...)
	}
	match := func(globs []string) func(string) bool {
		return func(name string) bool { return len(globs) > 0 && sharing.MatchModels(globs, name) }
	}
	live, err := simulate.NewLive(nodes, pods, match(q.Remove), match(q.MIG))
	if err != nil {
		return Answer{}, fmt.Errorf("simulate the cluster: %w", err)
	}
	if len(live.Nodes) == 0 {
		return Answer{}, errors.New("no node is left")
	}
	more, err := q.list(c)
	if err != nil {
		return Answer{}, err
	}
	simulate.Size(more, live.Nodes)
	e := simulate.Experiment{Nodes: live.Nodes, Typical: live.Pods, Policy: simulate.NewKerf(live.Nodes, live.Pods),
		There: live.There, Now: func() time.Time { return time.Time{} }}
	fit, err := e.Fits(nil, slices.Concat(named("moved", live.Moved), named("pending", live.Waiting), more))
	if err != nil {
		return Answer{}, fmt.Errorf("simulate the pods: %w", err)
	}
	fit.Policy = "kerf"
	return Answer{fit, append(append([]string{}, live.Left...), live.Notes...)}, nil
}

func (q Question) check() error {
	var errs []error
	for i, glob := range slices.Concat(q.Remove, q.MIG) {
		if err := sharing.CheckGlob(fmt.Sprintf("nodes[%d]", i), glob); err != nil {
			errs = append(errs, err)
		}
	}
	sum := 0
	for i, m := range q.Add {
		sum += m.Count
		if m.Count < 1 || sum > mostAsked {
			errs = append(errs, sharing.Invalid(fmt.Sprintf("add[%d].count", i), fmt.Sprint(m.Count),
				"write a number in 1 to 10000", "is out of range"))
		}
	}
	sum = 0
	for i, p := range q.Pods {
		sum += max(1, p.Count)
		if p.Count < 0 || sum > mostAsked {
			errs = append(errs, sharing.Invalid(fmt.Sprintf("pods[%d].count", i), fmt.Sprint(p.Count),
				"write a number in 1 to 10000", "is out of range"))
		}
	}
	return errors.Join(errs...)
}

// nodes are new and empty nodes.
func (m More) nodes(all []simulate.LiveNode) ([]simulate.LiveNode, error) {
	at := slices.IndexFunc(all, func(n simulate.LiveNode) bool { return n.Name == m.Like && n.Report != nil })
	if at < 0 {
		return nil, sharing.Invalid("add.like", m.Like, "write the name of a node", "is no node with a report")
	}
	out := make([]simulate.LiveNode, 0, m.Count)
	for i := range m.Count {
		n, report := all[at], *all[at].Report
		n.Name, n.Closed = fmt.Sprintf("%s (new %d)", m.Like, i+1), false
		report.Grants, report.PendingPods, report.GPUs = nil, nil, slices.Clone(report.GPUs)
		for k := range report.GPUs {
			g := &report.GPUs[k]
			g.UUID = fmt.Sprintf("%s-new-%d", g.UUID, i)
			g.Health, g.Cordoned, g.Whole = sharing.HealthOK.String(), "", false
			g.FreeBytes, g.FreePercent = g.AllocatableBytes, 100
			if g.MIGState != nil {
				state := *g.MIGState
				state.Instances = nil
				g.MIGState = &state
			}
		}
		n.Report = &report
		out = append(out, n)
	}
	return out, nil
}

// list are the further pods.
func (q Question) list(c *config.Config) ([]simulate.Pod, error) {
	var s simulate.Scenario
	for i, p := range q.Pods {
		t := simulate.PodType{Name: p.Name, Count: max(1, p.Count), Cores: p.Cores, GPUs: p.GPUs, Percent: p.Percent,
			GPUMemory: p.GPUMemory, MIG: p.MIG}
		if t.Name == "" {
			t.Name = fmt.Sprintf("pods %d", i+1)
		}
		if p.Profile != "" {
			var err error
			if t, err = ofProfile(t, p.Profile, c); err != nil {
				return nil, err
			}
		}
		s.Pods = append(s.Pods, t)
	}
	return s.List()
}

// ofProfile has the amounts of a profile.
func ofProfile(t simulate.PodType, name string, c *config.Config) (simulate.PodType, error) {
	if c == nil {
		return t, sharing.Invalid("pods.profile", name, "write amounts", "cannot be read: the config is not known")
	}
	all := c.Profiles()
	at := slices.IndexFunc(all, func(p config.Profile) bool { return p.Name == name })
	if at < 0 {
		return t, sharing.Invalid("pods.profile", name, "write a profile of the config", "is no profile")
	}
	p := all[at]
	t.GPUs = p.GPUs
	if p.Memory > 0 {
		t.GPUMemory = fmt.Sprint(uint64(p.Memory) / uint64(max(1, p.GPUs)))
	}
	t.Percent = float64(p.Percent) / float64(max(1, p.GPUs))
	return t, nil
}

func named(word string, pods []simulate.Pod) []simulate.Pod {
	out := make([]simulate.Pod, len(pods))
	for i, p := range pods {
		p.Type = word + ": " + p.Type
		out[i] = p
	}
	return out
}
