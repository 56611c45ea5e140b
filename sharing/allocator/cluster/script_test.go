// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// scene is a script's cluster and who holds what there.
type scene struct {
	t       *testing.T
	nodes   []cluster.Node
	c       *cluster.Cluster
	holders []cluster.VictimCandidate
}

// Scripts read as a story: each line is a command, and the lines below it that begin with ">" are what came of it. A
// node is written as in why.txt, with a name and with mig in front where its GPUs are in MIG mode.
func TestScriptsOfDecisions(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "script-*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			old, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s, out := &scene{t: t}, strings.Builder{}
			for line := range strings.Lines(string(old)) {
				if strings.HasPrefix(line, ">") {
					continue
				}
				out.WriteString(line)
				if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
					for _, said := range s.do(strings.Fields(line)) {
						out.WriteString("> " + said + "\n")
					}
				}
			}
			if *rewrite {
				if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(old), out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// do carries one command out.
func (s *scene) do(words []string) []string {
	s.t.Helper()
	if words[0] == "node" {
		at := 2
		if words[2] == "mig" {
			at = 3
		}
		n := nodesFor(s.t, strings.Join(words[at:], " "))[0]
		if n.Name = words[1]; at == 3 {
			n.Table = slices8(s.t)
		}
		s.nodes = append(s.nodes, n)
		return nil
	}
	if s.c == nil {
		s.c = cluster.New(s.nodes, cluster.NewOnline(s.nodes))
	}
	switch words[0] {
	case "pod":
		return s.pod(words[1], words[2:])
	case "end":
		return s.end(words[1])
	case "close", "open":
		return s.must(s.c.Cordon(s.at(words[1]), words[0] == "close"))
	case "sick", "well":
		return s.must(s.c.Withhold(s.at(words[1]), s.number(words[2]), words[0] == "sick"))
	case "preempt":
		return s.preempt(words[1:])
	case "gang":
		return s.gang(s.number(words[1]), words[2:])
	}
	s.t.Fatalf("%q?", words)
	return nil
}

func (s *scene) must(err error) []string {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	return nil
}

func (s *scene) number(text string) int {
	s.t.Helper()
	n, err := strconv.Atoi(text)
	s.must(err)
	return n
}

func (s *scene) at(name string) int {
	s.t.Helper()
	i := slices.IndexFunc(s.nodes, func(n cluster.Node) bool { return n.Name == name })
	if i < 0 {
		s.t.Fatalf("no node %q", name)
	}
	return i
}

// prioritized takes "priority=5" and "cost=2" off the words.
func (s *scene) prioritized(words []string) (priority int32, cost int64, rest string) {
	s.t.Helper()
	for _, w := range words {
		switch key, value, _ := strings.Cut(w, "="); key {
		case "priority":
			priority = int32(s.number(value))
		case "cost":
			cost = int64(s.number(value))
		default:
			rest += " " + w
		}
	}
	return priority, cost, rest
}

func (s *scene) said(p cluster.Placement) string {
	text := fmt.Sprintf("%s, GPU %s", s.nodes[p.Node].Name, strings.Trim(fmt.Sprint(p.GPUs), "[]"))
	if p.Starts != nil {
		text += " at " + strings.Trim(fmt.Sprint(p.Starts), "[]")
	}
	return text
}

func (s *scene) pod(name string, words []string) []string {
	s.t.Helper()
	priority, cost, rest := s.prioritized(words)
	r := requestFor(s.t, rest)
	s.c.Learn(r)
	p, ok := s.c.Choose(r)
	if !ok {
		return []string{refused(s.c, r)}
	}
	s.must(s.c.Take(r, p))
	s.holders = append(s.holders, cluster.VictimCandidate{
		Pod: name, Node: p.Node, Priority: priority, Cost: cost,
		Grants: []cluster.Grant{{Request: r, GPUs: p.GPUs, Starts: p.Starts}},
	})
	return []string{s.said(p)}
}

func (s *scene) end(name string) []string {
	s.t.Helper()
	i := slices.IndexFunc(s.holders, func(h cluster.VictimCandidate) bool { return h.Pod == name })
	if i < 0 {
		s.t.Fatalf("no pod %q", name)
	}
	h := s.holders[i]
	s.c.Release(h.Grants[0].Request, cluster.Placement{Node: h.Node, GPUs: h.Grants[0].GPUs,
		Starts: h.Grants[0].Starts})
	s.holders = slices.Delete(s.holders, i, i+1)
	return nil
}

func (s *scene) preempt(words []string) []string {
	s.t.Helper()
	priority, _, rest := s.prioritized(words)
	p, ok := s.c.Preempt(requestFor(s.t, rest), priority, s.holders)
	if !ok {
		return []string{"no capacity after any eviction"}
	}
	var names []string
	for _, i := range p.Victims {
		names = append(names, s.holders[i].Pod)
	}
	return []string{fmt.Sprintf("%s, when %s is gone", s.said(p.Placement), strings.Join(names, " and "))}
}

// gang prefers nodes whose names begin with the same letter.
func (s *scene) gang(count int, words []string) []string {
	s.t.Helper()
	var racks []string
	for i := range s.nodes {
		racks = append(racks, s.nodes[i].Name[:1])
	}
	g, ok := s.c.Gang(slices.Repeat([]cluster.Request{requestFor(s.t, strings.Join(words, " "))}, count), racks)
	if !ok {
		return []string{"not all have a place"}
	}
	out := []string{"spread"}
	if g.Level == 0 {
		out[0] = "together in " + g.Domain
	}
	for _, p := range g.Placements {
		out = append(out, s.said(p))
	}
	return out
}
