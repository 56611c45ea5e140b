// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package simulate fills a cluster with arriving pods and measures how well a policy places them.
//
// It promises that equal nodes, pods, seeds and policy give an equal result, the speed apart. A pod that does not
// fit is dropped for good. It opens no file and needs no GPU.
package simulate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// Scenario is a cluster and what it is asked for, as people write it in YAML.
type Scenario struct {
	Machines []Machine `yaml:"machines"`
	Pods     []PodType `yaml:"pods"`
	// Draw makes the list of pods by lot; without it each type is there as often as its count.
	Draw Draw `yaml:"draw"`
	// Arrivals is the time between two pods, and Lifetimes how long a pod whose type says nothing else runs. Without
	// the mean of the former, nothing says how many are there at once.
	Arrivals  Times `yaml:"arrivals"`
	Lifetimes Times `yaml:"lifetimes"`
}

// Machine is a number of equal nodes.
type Machine struct {
	Name   string  `yaml:"name"`
	Count  int     `yaml:"count"`
	Cores  float64 `yaml:"cores"`
	Memory string  `yaml:"memory"`
	GPUs   int     `yaml:"gpus"`
	Model  string  `yaml:"model"`
	// GPUMemory is that of each GPU; without it no pod that asks by memory fits.
	GPUMemory string `yaml:"gpuMemory"`
	MIG       bool   `yaml:"mig"`
}

// PodType is a number of equal pods.
type PodType struct {
	Name   string  `yaml:"name"`
	Count  int     `yaml:"count"`
	Cores  float64 `yaml:"cores"`
	Memory string  `yaml:"memory"`
	// GPUs is 1 where a share is asked for and the number is left out.
	GPUs int `yaml:"gpus"`
	// Percent and GPUMemory are of each GPU; without both a GPU is whole.
	Percent   float64 `yaml:"percent"`
	GPUMemory string  `yaml:"gpuMemory"`
	// MIG asks for an instance of the profile, such as 1g.10gb, in place of a share.
	MIG    string   `yaml:"mig"`
	Models []string `yaml:"models"`
	// Vary is how much larger and smaller than said the drawn pods of the type are, 0 to 1.
	Vary float64 `yaml:"vary"`
	// Life is the mean time that such a pod runs, in parts of the mean of Lifetimes; 1 where it is left out.
	Life float64 `yaml:"life"`
	// Lifetime stands in place of Lifetimes.
	Lifetime Times `yaml:"lifetime"`
}

// mostPods bounds what a slip of the keyboard makes of a count.
const mostPods = 1 << 17

// Nodes are the machines one by one. Errors are sharing.FieldError.
func (s *Scenario) Nodes() ([]cluster.Node, error) {
	var nodes []cluster.Node
	for i, m := range s.Machines {
		f := fields{at: fmt.Sprintf("machines[%d].", i)}
		name := m.Name
		if name == "" {
			name = fmt.Sprintf("machine%d", i)
		}
		n := cluster.Node{
			CPU: f.cores(m.Cores), Memory: f.bytes("memory", m.Memory), Model: m.Model,
			GPUMemory: f.bytes("gpuMemory", m.GPUMemory),
		}
		f.within("gpus", m.GPUs, 0, MaxGPUs)
		f.within("count", m.Count, 1, mostPods-len(nodes))
		if f.err != nil {
			return nil, f.err
		}
		from := len(nodes)
		for k := range m.Count {
			n.Name = fmt.Sprintf("%s-%d", name, k)
			n.GPUs = slices.Repeat([]cluster.Milli{cluster.WholeGPU}, m.GPUs)
			nodes = append(nodes, n)
		}
		if err := MIG(nodes[from:], func(string) bool { return m.MIG }); err != nil {
			return nil, sharing.Invalid(f.at+"mig", "true",
				"leave it out, or write the gpuMemory of a model that has MIG", "%v", err)
		}
	}
	return nodes, nil
}

// List is the pods one by one. Errors are sharing.FieldError.
func (s *Scenario) List() ([]Pod, error) {
	f := fields{}
	f.within("draw.pods", s.Draw.Pods, 0, mostPods)
	varies, usual := f.times("lifetimes", s.Lifetimes)
	var types, pods []Pod
	for i, t := range s.Pods {
		f.at = fmt.Sprintf("pods[%d].", i)
		p := Pod{Type: cmp.Or(t.Name, fmt.Sprintf("pod%d", i)), Varies: varies, Life: t.Life}
		f.ask(&p, t)
		f.live(&p, t, usual)
		f.within("count", t.Count, 0, mostPods-len(pods))
		if f.err != nil {
			return nil, f.err
		}
		types = append(types, p)
		for k := range max(1, t.Count) {
			p.Name = fmt.Sprintf("%s-%06d", p.Type, k)
			pods = append(pods, p)
		}
	}
	if s.Draw.Pods > 0 && len(types) > 0 {
		return s.draw(types), nil
	}
	return pods, f.err
}

// ask is what the pods of the type ask for.
func (f *fields) ask(p *Pod, t PodType) {
	p.CPU, p.Memory, p.GPUs, p.Models = f.cores(t.Cores), f.bytes("memory", t.Memory), t.GPUs,
		strings.Join(t.Models, "|")
	p.GPUMemory = f.bytes("gpuMemory", t.GPUMemory)
	f.within("gpus", t.GPUs, 0, MaxGPUs)
	if !(t.Percent >= 0 && t.Percent <= 100) {
		f.wrong("percent", t.Percent, "write the part of each GPU, above 0 and at most 100")
	}
	if !(t.Vary >= 0 && t.Vary <= 1) {
		f.wrong("vary", t.Vary, "write how much larger and smaller the pods are, 0 to 1")
	}
	for _, glob := range t.Models {
		if err := sharing.CheckGlob(f.at+"models", glob); err != nil && f.err == nil {
			f.err = err
		}
	}
	p.Share = cluster.Milli(math.Round(t.Percent * 10))
	if t.MIG != "" {
		f.instance(p, t)
		return
	}
	switch {
	case t.GPUs == 0 && (t.Percent > 0 || p.GPUMemory > 0):
		p.GPUs = 1
	case t.GPUs > 0 && p.GPUMemory == 0 && p.Share == 0:
		p.Share = cluster.WholeGPU
	}
}

// instance is a request for a MIG instance, which is one of one GPU.
func (f *fields) instance(p *Pod, t PodType) {
	if _, err := mig.ParseWish(f.at+"mig", t.MIG); err != nil && f.err == nil {
		f.err = err
	}
	if t.GPUs > 1 || t.Percent > 0 || t.GPUMemory != "" || t.Vary > 0 {
		f.wrong("mig", t.MIG, "leave out gpus, percent, gpuMemory and vary: the profile says all")
	}
	p.Profile, p.GPUs, p.Share = t.MIG, 1, 0
}

// live is how long the pods of the type run: in hours where the scenario says so, else compared with each other.
func (f *fields) live(p *Pod, t PodType, usual time.Duration) {
	if !(t.Life >= 0 && t.Life <= mostPods) {
		f.wrong("life", t.Life, "write how long such a pod runs, compared with the others")
	}
	if usual > 0 {
		p.Life = cmp.Or(t.Life, 1) * usual.Hours()
	}
	if t.Lifetime == (Times{}) {
		return
	}
	own, mean := f.times("lifetime", t.Lifetime)
	p.Varies = own
	if mean > 0 {
		p.Life = mean.Hours()
		if t.Life > 0 {
			f.wrong("life", t.Life, "leave it out: lifetime has the mean")
		}
		if usual == 0 {
			f.wrong("lifetime", t.Lifetime.Mean, "write the mean of lifetimes too, that of the other pods")
		}
	}
}

// Size lets pods that ask by GPU memory count for their part of the mean GPU of the nodes, of what is given of it.
func Size(pods []Pod, nodes []cluster.Node) {
	memory, gpus := sharing.Bytes(0), sharing.Bytes(0)
	for i := range nodes {
		memory += nodes[i].Overcommit.Memory.Of(nodes[i].GPUMemory) / sharing.MiB * sharing.Bytes(len(nodes[i].GPUs))
		gpus += sharing.Bytes(len(nodes[i].GPUs))
	}
	for i := range pods {
		if pods[i].Profile != "" {
			pods[i].Part = migPart(pods[i].Profile, nodes)
			continue
		}
		if memory == 0 {
			continue
		}
		part := pods[i].GPUMemory / sharing.MiB * gpus * sharing.Bytes(cluster.WholeGPU) / memory
		pods[i].Part = cluster.Milli(min(part, sharing.Bytes(cluster.WholeGPU)))
	}
}

// fields reads amounts and keeps the first error.
type fields struct {
	at  string
	err error
}

func (f *fields) wrong(name string, value any, remedy string) {
	if f.err == nil {
		f.err = sharing.Invalid(f.at+name, fmt.Sprint(value), remedy, "is out of range")
	}
}

func (f *fields) within(name string, value, least, greatest int) {
	if value < least || value > greatest {
		f.wrong(name, value, fmt.Sprintf("write a number in %d to %d", least, greatest))
	}
}

func (f *fields) cores(v float64) cluster.Milli {
	if !(v >= 0 && v <= MaxAmount/1000) {
		f.wrong("cores", v, "write a number of cores, such as 4 or 0.5")
		return 0
	}
	return cluster.Milli(math.Round(v * 1000))
}

func (f *fields) bytes(name, v string) sharing.Bytes {
	if v == "" {
		return 0
	}
	b, err := sharing.ParseBytes(f.at+name, v)
	if err == nil && b > MaxAmount*sharing.MiB {
		f.wrong(name, v, "write at most 1Pi")
	}
	if err == nil && b > 0 && b < sharing.MiB && f.err == nil { // "10" is ten bytes
		err = sharing.Invalid(f.at+name, v, "write a unit, such as 10Gi", "is less than 1 MiB")
	}
	if err != nil && f.err == nil {
		f.err = err
	}
	return b
}

// Pod is a request that has a name.
type Pod struct {
	Name string
	// Type is what pods of one kind share; empty where the list tells none.
	Type string
	// Life is the mean time that it runs, compared with the others; 0 counts as 1.
	Life float64
	// Varies is how that time varies.
	Varies Variation
	// Part is what a pod that asks by GPU memory counts for on each GPU; Size sets it.
	Part cluster.Milli
	cluster.Request
}

// Demand is what the pod counts for, on all GPUs together.
func (p *Pod) Demand() cluster.Milli { return cluster.Milli(p.GPUs) * p.each() }

func (p *Pod) each() cluster.Milli { return max(p.Part, p.Share) }

func (p *Pod) life() float64 {
	if p.Life > 0 {
		return p.Life
	}
	return 1
}

// MaxAmount is the largest amount that is believed; products of two stay within an int64.
const MaxAmount = 1 << 30

// MaxGPUs is how many GPUs one node or one pod may have.
const MaxGPUs = 64
