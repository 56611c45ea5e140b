// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

var rewrite = flag.Bool("rewrite", false,
	"write the scripts' answers again; look at the difference before you commit it")

// story is the world of a script: a cluster, its state, and what its nodes have reserved.
type story struct {
	*testing.T
	clusterNow *scheduler.ClusterState
	now        time.Time
	nodes      []string
	gpus       map[string]int
	pods       map[string]sharing.Pod
	// claims are what each node reports of each pod, by node.
	claims   map[string]map[string]hold
	unplaced map[string]map[string]string
}

// Scripts read as a story: each line is a command, and the lines below it that begin with ">" are what came of it.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "state-*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			old, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s := &story{
				T: t, clusterNow: scheduler.New(), now: noon(), gpus: map[string]int{}, pods: map[string]sharing.Pod{},
				claims:   map[string]map[string]hold{},
				unplaced: map[string]map[string]string{},
			}
			out := strings.Builder{}
			for line := range strings.Lines(string(old)) {
				if strings.HasPrefix(line, ">") {
					continue
				}
				out.WriteString(line)
				if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
					for said := range strings.Lines(s.do(strings.Fields(line))) {
						out.WriteString("> " + strings.TrimSpace(said) + "\n")
					}
				}
			}
			if *rewrite {
				if err := os.WriteFile(path, []byte(out.String()), 0o600); err != nil {
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
func (s *story) do(words []string) string {
	s.Helper()
	switch arg := words[1]; words[0] {
	case "node": // NAME GPUS
		s.nodes, s.gpus[arg], s.claims[arg], s.unplaced[arg] = append(s.nodes, arg), s.number(words[2]),
			map[string]hold{}, map[string]string{}
		s.clusterNow.Machine(arg, machine())
		s.report(arg)
	case "pod": // NAME GIB|whole [GPU=node/index]
		return s.pod(arg, words[2:])
	case "bound": // the API server says so
		s.clusterNow.Pod(s.pods[arg], want(s, s.pods[arg]), s.now)
	case "undo":
		s.clusterNow.Unreserve(arg)
	case "claims": // POD GPU: its node has claimed for it
		node, p := s.pods[arg].Node, s.pods[arg]
		h := hold{uid: arg, gpu: s.number(words[2])}
		if r := want(s, p).Containers[0].Request; r.Kind == sharing.KindShared {
			h.memory = int64(r.Memory) / gib
		}
		delete(s.unplaced[node], arg)
		s.claims[node][arg] = h
		s.report(node)
	case "refuses": // POD: its node has no room for it
		s.unplaced[s.pods[arg].Node][arg] = "not enough free"
		s.report(s.pods[arg].Node)
	case "ended": // the API server says that it is gone
		s.clusterNow.PodRemoved(arg, s.now)
	case "lets-go": // its node has no claim of it any more
		delete(s.claims[s.pods[arg].Node], arg)
		s.report(s.pods[arg].Node)
	case "report", "beat":
		s.report(arg)
	case "wait":
		d, err := time.ParseDuration(arg)
		if err != nil {
			s.Fatal(err)
		}
		s.now = s.now.Add(d)
	case "stuck": // AFTER
		return s.stuck(arg)
	default:
		s.Fatalf("%q?", words)
	}
	return ""
}

func (s *story) number(text string) int {
	s.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		s.Fatal(err)
	}
	return n
}

// report brings a node's report and heartbeat.
func (s *story) report(name string) {
	at := slices.Index(s.nodes, name)
	status := statusOf(at, s.gpus[name], slices.Collect(func(yield func(hold) bool) {
		for _, uid := range slices.Sorted(maps.Keys(s.claims[name])) {
			if !yield(s.claims[name][uid]) {
				return
			}
		}
	})...)
	for uid, why := range s.unplaced[name] {
		status.PendingPods = append(status.PendingPods, gpunode.PendingPod{PodUID: uid, Reason: why})
	}
	s.clusterNow.Report(name, status)
	s.clusterNow.Heartbeat(name, s.now, 40*time.Second, s.now)
}

// pod is placed at the best place, or gets the reason why not.
func (s *story) pod(name string, words []string) string {
	s.Helper()
	limits := whole(1)
	if words[0] != "whole" {
		limits = memory(s.number(words[0]))
	}
	p := podOf(name, limits)
	w := want(s, p)
	s.clusterNow.Learn(w)
	best, most := "", int64(0)
	for _, node := range s.clusterNow.Fitting(w, s.now) {
		if score := s.clusterNow.Score(w, node, machine().CPU, s.now); best == "" || score > most {
			best, most = node, score
		}
	}
	if best == "" {
		return s.clusterNow.Explain(w, s.now)
	}
	plan, err := s.clusterNow.Reserve(w, best, s.now)
	if err != nil {
		return err.Error()
	}
	p.Node = best
	maps.Copy(p.Annotations, scheduler.Annotations(plan))
	s.pods[name] = p
	f := plan[0].Placement[0]
	return fmt.Sprintf("%s, GPU %s", best, strings.TrimLeft(f.GPU.String()[len(f.GPU.String())-3:], "0")+
		map[bool]string{true: "0"}[strings.HasSuffix(f.GPU.String(), "000")])
}

func (s *story) stuck(after string) string {
	s.Helper()
	d, err := time.ParseDuration(after)
	if err != nil {
		s.Fatal(err)
	}
	var out []string
	for _, p := range s.clusterNow.Stuck(d, s.now) {
		out = append(out, fmt.Sprintf("%s on %s for %v: %s", p.Name, p.Node, p.For, p.Reason))
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, "\n")
}
