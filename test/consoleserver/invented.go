// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/console/consoletest"
	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/internal/console/source"
	"github.com/kerf-gpu/kerf/internal/console/stream"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
	"github.com/kerf-gpu/kerf/sharing/simulate"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

// markup is what a browser must show as text.
const markup = `"><img src=x onerror="window.xss=1"><script>window.xss=1</script>`

const document = `apiVersion: kerf.dev/v1alpha2
kind: SharingConfig
spec:
  pools:
  - name: default
  profiles:
  - name: notebook
    memory: 10Gi
    percent: 25
  prices:
    currency: EUR
    perGPUHour:
    - model: "*H100*"
      price: 2.50
`

// invented is a source without a cluster. The same options give the same nodes and pods.
type invented struct {
	nodes, changes int
	hostile        bool

	r    *rand.Rand
	pods []model.SeenPod
}

// text is the text, or markup that begins with it.
func (i *invented) text(s string) string {
	if i.hostile {
		return s + markup
	}
	return s
}

func (i *invented) pod(namespace, name, node string, limits map[string]string) model.SeenPod {
	p := consoletest.Pod(i.text(namespace), i.text(name), node, limits)
	p.UID, p.Since = namespace+"-"+name, time.Now().Add(-time.Duration(5+len(i.pods)%90)*time.Minute)
	p.Labels = map[string]string{"team": i.text(namespace), i.text("app"): "x"}
	p.Containers[0].Name = i.text("main")
	i.pods = append(i.pods, p)
	return p
}

// Run implements source.Source.
func (i *invented) Run(ctx context.Context, hub *stream.Broadcaster) error {
	i.r = rand.New(rand.NewPCG(7, 7))
	problems := []string{}
	if i.hostile {
		problems = append(problems, i.text("Cannot read heartbeats: "))
	}
	hub.Describe(stream.Meta{Source: "cluster", Problems: problems, Prometheus: true})
	c, err := config.Decode([]byte(document))
	if err != nil {
		return err
	}
	hub.Configure(&c)
	for n := range i.nodes {
		hub.Node(i.node(n, 0))
		i.hand(hub)
	}
	i.pods = i.pending()
	i.hand(hub)
	hub.Flush()
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for round := 1; ; round++ {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		for range i.changes {
			hub.Node(i.node(i.r.IntN(i.nodes), round))
		}
		hub.Flush()
	}
}

// hand gives the pods to the hub and forgets them.
func (i *invented) hand(hub *stream.Broadcaster) {
	for _, p := range i.pods {
		p.Owner = "ReplicaSet/" + p.Name
		hub.Pod(p)
	}
	i.pods = i.pods[:0]
}

// mostMeasured is the largest number of nodes with measured values. A cluster's source has none, and a large invented
// cluster is to cost what a cluster costs.
const mostMeasured = 100

// teams hold shares in these sizes; 0 is a whole GPU.
var teams = []string{"nlp", "vision", "speech", "robotics", "search"}

// node is a node. A later round has other grants on its last GPU.
func (i *invented) node(n, round int) stream.Node {
	name := fmt.Sprintf("h100-%03d", n)
	if i.hostile && n == 0 {
		name = i.text(name)
	}
	r, sizes := rand.New(rand.NewPCG(uint64(n), 1)), []int{10, 20, 20, 30, 40, 0}
	var holds []consoletest.Grant
	for g := range 8 {
		if g == 7 {
			r = rand.New(rand.NewPCG(uint64(n), uint64(2+round)))
		}
		for free := 79; ; {
			gib := sizes[r.IntN(len(sizes))]
			if gib == 0 && free < 79 || gib > free || free < 79 && r.IntN(9) == 0 || n%14 >= 12 && g < 2 {
				break
			}
			team := teams[r.IntN(len(teams))]
			limits := map[string]string{sharing.ResourceMemory: fmt.Sprint(gib)}
			if gib == 0 {
				limits, free = map[string]string{sharing.ResourceGPU: "1"}, 0
			}
			free -= gib
			p := i.held(team, fmt.Sprintf("job-%d-%d-%d", n, g, len(holds)), name, limits, round)
			holds = append(holds, consoletest.Grant{Pod: p, GPU: g, GiB: gib})
			if gib == 0 {
				break
			}
		}
	}
	s := consoletest.Node(name, 8, holds...)
	i.decorate(&s, n)
	var used map[string]model.Usage
	if i.nodes <= mostMeasured {
		used = measured(s)
	}
	return stream.Node{Usage: used, Live: simulate.LiveNode{Name: name, Report: &s, CPU: 96_000,
		Memory: 1000 * sharing.GiB, Allocatable: map[string]int64{sharing.ResourceMemory: 632, sharing.ResourceGPU: 8}}}
}

func (i *invented) held(team, name, node string, limits map[string]string, round int) model.SeenPod {
	if round == 0 {
		return i.pod(team, name, node, limits)
	}
	return consoletest.Pod(team, name, node, limits)
}

// decorate makes some nodes differ: MIG, a fault, a cordon, a config error.
func (i *invented) decorate(s *gpunode.Status, n int) {
	for k := range s.GPUs {
		s.GPUs[k].Model = i.text(s.GPUs[k].Model)
	}
	for k := range s.Grants {
		s.Grants[k].Profile = i.text("notebook")
	}
	idle := func(k int) bool { return s.GPUs[k].GrantedBytes == 0 }
	switch n % 14 {
	case 1:
		s.GPUs[2].Health, s.GPUs[2].HealthReason = "unhealthy", i.text("Xid 79: the GPU has fallen off the bus")
	case 2:
		s.GPUs[5].Cordoned = i.text("fan noise (ann)")
	case 3:
		s.Conditions[0].Status, s.Conditions[0].Message = gpunode.False, i.text("the driver does not answer")
	case 4:
		s.Config = &gpunode.Config{SHA256: "4f2c81d09ab3", Errors: []string{i.text("line 3: unknown field")}}
	}
	for k := range s.GPUs {
		if n%14 >= 12 && idle(k) {
			s.GPUs[k].MIG, s.GPUs[k].MIGState = true, consoletest.Geometry()
			s.GPUs[k].MIGState.Instances = []gpunode.MIGInstance{{Profile: "1g.10gb", Start: 0, MemorySlices: 1,
				Managed: true, Ready: true}, {Profile: "3g.40gb", Start: 4, MemorySlices: 4, Managed: true,
				Ready: true}}
		}
	}
}

func measured(s gpunode.Status) map[string]model.Usage {
	out := map[string]model.Usage{}
	for _, g := range s.GPUs {
		used, busy := uint64(g.GrantedBytes)/5*3, uint32(40)
		out[g.UUID] = model.Usage{Used: &used, Utilization: &busy, Shares: map[string]uint64{}}
	}
	for _, grant := range s.Grants {
		for _, f := range grant.Shares {
			out[f.GPU].Shares[grant.ID] = uint64(f.MemoryBytes) / 5 * 3
		}
	}
	return out
}

// pending are the pods that wait.
func (i *invented) pending() []model.SeenPod {
	big := i.pod("nlp", "train-llm", "", map[string]string{sharing.ResourceGPU: "8"})
	big.Message = i.text("0/14 nodes are available: needs 8 whole GPUs: best of 14 nodes has 2 free.")
	big.Priority = 100
	share := i.pod("vision", "detector", "", map[string]string{sharing.ResourceMemory: "79"})
	share.Message = i.text("0/14 nodes are available: needs 79 GiB on one GPU.")
	wrong := i.pod("speech", "typo", "", map[string]string{sharing.ResourceMemory: "200"})
	wrong.Message = i.text("0/14 nodes are available: 14 nodes have GPUs that are too small.")
	i.pods = i.pods[:len(i.pods)-3]
	return []model.SeenPod{big, share, wrong}
}

// Usage implements source.Source.
func (i *invented) Usage(context.Context, time.Duration, []string) ([]usage.Part, config.Prices, error) {
	c, err := config.Decode([]byte(document))
	var out []usage.Part
	for k, team := range teams {
		seconds := float64(3600 * (40 + 60*k))
		out = append(out, usage.Part{Labels: map[string]string{"namespace": i.text(team), "label:team": i.text(team),
			"profile": i.text("notebook"), "model": consoletest.Model, "level": "driver"},
			Record: usage.Record{GPU: "GPU-0", Model: consoletest.Model, Share: 1, Seconds: seconds,
				Known: seconds * 0.95, Busy: seconds * (0.9 - 0.15*float64(k)), Idle: seconds * 0.05 * float64(k),
				Memory: usage.Histogram{60: seconds}, Compute: usage.Histogram{50: seconds}}})
	}
	return out, c.Prices(), err
}

// History implements source.Source.
func (i *invented) History(context.Context, string, time.Duration) ([]source.Point, error) {
	var out []source.Point
	for k := range 60 {
		memory, busy := (40+12*math.Sin(float64(k)/6))*float64(sharing.GiB), 50+30*math.Cos(float64(k)/5)
		out = append(out, source.Point{Time: time.Now().Add(time.Duration(k-60) * time.Minute), Memory: &memory,
			Utilization: &busy})
	}
	return out, nil
}

// Events implements source.Source.
func (i *invented) Events(_ context.Context, _, pod string) ([]source.Event, error) {
	return []source.Event{{Time: time.Now().Add(-time.Hour), Reason: i.text("GrantActive"), Count: 1,
		Message: i.text("The grant of " + pod + " is active."), From: "kerf-agent"}}, nil
}

// Plan implements source.Source.
func (i *invented) Plan(_ context.Context, after config.Config, files []config.File) (any, error) {
	before, err := config.Decode([]byte(document))
	if err != nil {
		return nil, err
	}
	differences, err := change.Between(before, after)
	return map[string]any{"sha256": config.Hash(files), "differences": differences, "unknown": []string{}}, err
}
