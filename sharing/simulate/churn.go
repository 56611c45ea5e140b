// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand" //nolint:depguard // as in the fill, a run is repeated by its seed
)

// How long a run with departures takes, in mean life times, before anything is counted; it is longer where some pods
// live longer than others.
const (
	warmUp   = 2.5
	longWarm = 20 * warmUp
)

// CountedLives is for how many mean life times a run with departures is counted where an Experiment says nothing else.
const CountedLives = 5.0

// Churn draws pods from the list at random moments and lets each leave after a random life. Load is the GPU that
// they would hold on average, in parts of the capacity, if all were placed. What is counted begins after the cluster
// has filled.
func (e Experiment) Churn(pods []Pod, load float64, seed int64) (Result, error) {
	t, err := e.start()
	if err != nil {
		return Result{}, err
	}
	t.observers = e.Observers
	demand, lives, longest := 0.0, 0.0, 0.0
	for i := range pods {
		longest = max(longest, pods[i].life())
		demand += float64(pods[i].Demand()) * pods[i].life()
		lives += pods[i].life()
	}
	if demand == 0 {
		return Result{}, fmt.Errorf("simulate: the pods request no GPU")
	}
	// Arrivals per mean life time.
	rate := load * float64(t.capacity) * lives / demand
	begin := min(longWarm, warmUp*longest*float64(len(pods))/lives)
	r := rand.New(rand.NewSource(seed)) //nolint:gosec // as above
	leaving, counted, area, last := &departures{}, false, 0.0, 0.0
	measured := cmp.Or(e.Counted, CountedLives)
	for at := e.Arrivals.draw(r) / rate; at < begin+measured; at += e.Arrivals.draw(r) / rate {
		for leaving.Len() > 0 && (*leaving)[0].at <= at {
			gone, _ := heap.Pop(leaving).(departure)
			if counted {
				area += (gone.at - last) * t.percent(t.allocated)
				last = gone.at
			}
			t.mover.end(gone.tenancy)
			t.leave(gone.held)
		}
		if !counted && at >= begin {
			counted, last = true, at
			for _, o := range t.observers {
				o.Begin()
			}
			t.arrived, t.rejected, t.deciding, t.mover.moved = 0, 0, 0, Moved{}
			clear(t.result.Arrived)
			clear(t.result.Rejects)
		}
		if counted {
			area += (at - last) * t.percent(t.allocated)
			last = at
		}
		e.progress(at / (begin + measured))
		p := &pods[r.Intn(len(pods))]
		t.mover.now = at
		h, ok, err := t.arrive(p)
		if err != nil {
			return Result{}, err
		}
		// The life is drawn for a refused pod too, so that all policies see the same arrivals.
		life := p.Varies.draw(r) * p.life() * float64(len(pods)) / lives
		for _, o := range t.observers {
			o.Arrived(p, at, at+life)
		}
		if ok {
			heap.Push(leaving, departure{at + life, t.mover.begin(h)})
		}
		if counted {
			t.sample(at-begin, churnStep)
		}
	}
	e.progress(1)
	t.result.Load = load
	t.result.MeanAllocatedPercent = round(area / measured)
	return t.finish(), nil
}

type departure struct {
	at float64
	*tenancy
}

// departures is a heap, the soonest first.
type departures []departure

func (d departures) Len() int           { return len(d) }
func (d departures) Less(i, j int) bool { return d[i].at < d[j].at }
func (d departures) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *departures) Push(x any) {
	if v, ok := x.(departure); ok {
		*d = append(*d, v)
	}
}
func (d *departures) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}
