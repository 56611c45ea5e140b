// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
)

// Experiment is a cluster and how it is filled.
type Experiment struct {
	// Nodes are empty; their order decides ties.
	Nodes []cluster.Node
	// Typical says what counts as fragmentation, whatever the policy knows.
	Typical []Pod
	Policy  cluster.Policy
	// There is what is held before anything arrives.
	There []There
	// Arrivals is how the time between two pods varies, where pods leave too.
	Arrivals Variation
	// Counted is for how many mean life times a run with departures is counted; 0 stands for CountedLives.
	Counted float64
	// Observers see a run with departures.
	Observers []Observer
	// Defrag has pods moved in a run with departures.
	Defrag Defrag
	// Now is the clock by which the speed is taken.
	Now func() time.Time
	// Detail asks for the samples and the nodes of the result.
	Detail bool
	// Progress hears, where it is set, which part of the run is done, 0 to 1, again and again.
	Progress func(part float64)
}

// Observer measures something more about a run with departures. Its methods are called in the order of what happens.
type Observer interface {
	// Begin says that what comes from now on counts.
	Begin()
	// Arrived hears of a pod that arrived, whatever became of it, and when it leaves, both in mean life times.
	Arrived(p *Pod, at, leaves float64)
	// Placed gets each pod that was placed, and Left each one that left. Refused gets a pod of the class without free
	// capacity.
	Placed(p *Pod)
	Left(p *Pod)
	Refused(p *Pod, class string)
	// Report writes what was found into the result. Demand is that of all that arrived since Begin.
	Report(r *Result, demand cluster.Milli)
}

func (e Experiment) progress(part float64) {
	if e.Progress != nil {
		e.Progress(part)
	}
}

// trial is an experiment that goes on.
type trial struct {
	cluster    *cluster.Cluster
	policy     cluster.Policy
	detail     bool
	now        func() time.Time
	usual      cluster.Workload
	capacity   cluster.Milli
	allocated  cluster.Milli // as asked for, whatever was booked
	idle       cluster.Milli // as booked
	fragmented int64
	arrived    cluster.Milli
	rejected   cluster.Milli
	deciding   time.Duration
	result     Result
	observers  []Observer
	mover      *mover
}

func (e Experiment) start() (*trial, error) {
	open := slices.Clone(e.Nodes)
	for i := range open {
		open[i].Cordoned, open[i].AllowedModes = false, cluster.AllModes // what is there stays
	}
	t := &trial{cluster: cluster.New(open, e.Policy), policy: e.Policy, detail: e.Detail, now: e.Now,
		usual: WorkloadOf(e.Typical), mover: &mover{Defrag: e.Defrag, running: map[*tenancy]bool{}}}
	t.result = Result{
		Rejects: map[string]int{}, Arrived: map[string]int{},
		AllocatedPercent: map[string]float64{}, FragmentationPercent: map[string]float64{},
	}
	for i := range t.cluster.Len() {
		t.fragmented += t.usual.Fragmentation(t.cluster.Node(i))
		t.capacity += t.cluster.Node(i).Free()
	}
	t.idle = t.capacity
	if t.capacity == 0 {
		return nil, errors.New("simulate: the nodes have no GPU")
	}
	for _, h := range e.There {
		if err := t.occupy(h); err != nil {
			return nil, fmt.Errorf("simulate what is there: %w", err)
		}
	}
	_, others := e.Policy.(cluster.Charger) // what people run today knows no rules of Kerf's
	for i := range e.Nodes {
		if err := t.cluster.Cordon(i, e.Nodes[i].Cordoned); err != nil {
			return nil, err
		}
		if !others {
			t.cluster.Node(i).AllowedModes = e.Nodes[i].AllowedModes
		}
	}
	return t, nil
}

// occupy reserves what is used before any pod arrives.
func (t *trial) occupy(h There) error {
	n := t.cluster.Node(h.Node)
	free := n.Free()
	t.fragmented -= t.usual.Fragmentation(n)
	if err := t.cluster.Take(h.Grant.Request, cluster.Placement{Node: h.Node, GPUs: h.Grant.GPUs,
		Starts: h.Grant.Starts}); err != nil {
		return err
	}
	t.fragmented += t.usual.Fragmentation(n)
	t.idle -= free - n.Free()
	t.allocated += free - n.Free()
	return nil
}

// held is a pod with its place, as it was booked.
type held struct {
	pod   *Pod
	taken cluster.Request
	place cluster.Placement
}

// arrive places a pod or counts it as refused; false for the latter.
func (t *trial) arrive(p *Pod) (held, bool, error) {
	h := held{pod: p, taken: t.request(p)}
	t.arrived += p.Demand()
	t.result.Arrived[classOf(p)]++
	begin := t.now()
	place, ok := t.cluster.Choose(h.taken)
	t.deciding += t.now().Sub(begin)
	t.cluster.Learn(p.Request)
	if !ok {
		place, ok = t.makeRoom(h)
	}
	if !ok {
		t.rejected += p.Demand()
		t.result.Rejects[classOf(p)]++
		for _, o := range t.observers {
			o.Refused(p, classOf(p))
		}
		return h, false, nil
	}
	h.place = place
	free := t.cluster.Node(place.Node).Free()
	t.fragmented -= t.usual.Fragmentation(t.cluster.Node(place.Node))
	if err := t.cluster.Take(h.taken, place); err != nil {
		return h, false, fmt.Errorf("simulate pod %s: %w", p.Name, err)
	}
	t.fragmented += t.usual.Fragmentation(t.cluster.Node(place.Node))
	t.idle -= free - t.cluster.Node(place.Node).Free()
	t.allocated += t.demand(h)
	for _, o := range t.observers {
		o.Placed(p)
	}
	return h, true, nil
}

// demand is what a pod counts for where it is: its request. On a node that gives more than there is, it is its part of
// that.
func (t *trial) demand(h held) cluster.Milli {
	n := t.cluster.Node(h.place.Node)
	if n.Overcommit == (sharing.Overcommit{}) {
		return h.pod.Demand()
	}
	return cluster.Milli(h.pod.GPUs) * n.Resolve(h.pod.Shape).Share
}

// request is the request that the policy takes for the pod's.
func (t *trial) request(p *Pod) cluster.Request {
	if b, ok := t.policy.(cluster.Charger); ok {
		return b.Charge(p.Request)
	}
	return p.Request
}

// leave gives back what a pod held.
func (t *trial) leave(h held) {
	free := t.cluster.Node(h.place.Node).Free()
	t.fragmented -= t.usual.Fragmentation(t.cluster.Node(h.place.Node))
	t.cluster.Release(h.taken, h.place)
	t.fragmented += t.usual.Fragmentation(t.cluster.Node(h.place.Node))
	t.idle += t.cluster.Node(h.place.Node).Free() - free
	t.allocated -= t.demand(h)
	for _, o := range t.observers {
		o.Left(h.pod)
	}
}

// percent is a part of the capacity.
func (t *trial) percent(m cluster.Milli) float64 { return 100 * float64(m) / float64(t.capacity) }

// fragmentation is what typical pods cannot use, in percent of the idle GPU.
func (t *trial) fragmentation() float64 {
	return 100 * float64(t.fragmented) / float64(t.usual.Weight()) / float64(max(1, t.idle))
}

// finish is the result, for the pods that arrived since the counts were last cleared.
func (t *trial) finish() Result {
	r := &t.result
	r.CapacityMilli, r.ArrivedMilli = int64(t.capacity), int64(t.arrived)
	pods := 0
	for _, n := range r.Arrived {
		pods += n
	}
	r.RejectedPodsPercent = round(100 * float64(r.Rejected()) / float64(max(1, pods)))
	r.RejectedDemandPercent = round(100 * float64(t.rejected) / float64(max(1, t.arrived)))
	if t.mover.Moves > 0 {
		t.mover.moved.PerThousand = round(1000 * float64(t.mover.moved.Moves) / float64(max(1, pods-r.Rejected())))
		r.Moved = &t.mover.moved
	}
	if t.deciding > 0 {
		r.Decisions = math.Round(float64(pods) / t.deciding.Seconds())
	}
	for _, o := range t.observers {
		o.Report(r, t.arrived)
	}
	if t.detail {
		t.sketch()
	}
	return *r
}

type point struct {
	allocated, fragmented float64
	rows                  int
}

// Fill lets the arrivals come to the nodes, and none leave.
func (e Experiment) Fill(arrivals []Pod) (Result, error) {
	t, err := e.start()
	if err != nil {
		return Result{}, err
	}
	points := map[int]*point{}
	t.sample(0, fillStep)
	for i := range arrivals {
		_, ok, err := t.arrive(&arrivals[i])
		if err != nil {
			return Result{}, err
		}
		e.progress(float64(i+1) / float64(len(arrivals)))
		load := t.percent(t.arrived)
		if !ok && t.result.FirstFailurePercent == 0 {
			t.result.FirstFailurePercent = round(load)
		}
		at := points[int(math.Round(load))]
		if at == nil {
			at = &point{}
			points[int(math.Round(load))] = at
		}
		at.rows++
		at.allocated += t.percent(t.allocated)
		at.fragmented += t.fragmentation()
		t.sample(load, fillStep)
	}
	for at, sum := range points {
		if slices.Contains(Points(), at) {
			t.result.AllocatedPercent[strconv.Itoa(at)] = round(sum.allocated / float64(sum.rows))
			t.result.FragmentationPercent[strconv.Itoa(at)] = round(sum.fragmented / float64(sum.rows))
		}
	}
	return t.finish(), nil
}

// NewKerf is the policy of kerf-scheduler. Pods are the usual workload; where there are none, the policy learns it from
// what arrives.
func NewKerf(nodes []cluster.Node, pods []Pod) cluster.Policy {
	if len(pods) == 0 {
		return cluster.NewOnline(nodes)
	}
	return cluster.NewKerf(WorkloadOf(pods), nodes)
}

// WorkloadOf is the workload of which the pods are a sample.
func WorkloadOf(pods []Pod) cluster.Workload {
	requests := make([]cluster.Request, len(pods))
	for i := range pods {
		requests[i] = pods[i].Request
	}
	return cluster.NewWorkload(requests)
}
