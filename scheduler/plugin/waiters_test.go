// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

const (
	crowdNodes = 6
	crowdSteps = 20_000
)

// crowd is pods that wait for nodes of which each has a number of units free, a framework that tries those that are
// woken, and a second one, naive, that would try all pods at each change.
type crowd struct {
	*testing.T
	rand  *rand.Rand
	clock time.Time
	q     *waiters
	free  [crowdNodes]int64
	// unseen are the nodes that have changed without a notification yet.
	unseen map[int]bool
	// pods are those that are not placed; active are those that the framework is going to try, lost those that it never
	// will.
	pods         map[types.UID]*guest
	active, lost []types.UID
	placed       []*guest
	next         int
	// tries and naive count what both tried.
	tries, naive int
}

// guest is a pod: how many units it asks for, and the nodes that other plugins keep it from.
type guest struct {
	uid   types.UID
	units int64
	not   [crowdNodes]bool
	node  int
}

func newCrowd(t *testing.T, seed uint64) *crowd {
	c := &crowd{T: t, rand: rand.New(rand.NewPCG(seed, 5)), clock: time.Unix(1e9, 0), unseen: map[int]bool{},
		pods: map[types.UID]*guest{}}
	c.q = newWaiters(func() time.Time { return c.clock },
		func(w scheduler.PodRequest, node string) bool { return c.free[number(node)] >= int64(w.CPU) })
	return c
}

func number(node string) int { return int(node[1] - '0') }

func (c *crowd) waiting(g *guest) waiting {
	p := podOf(string(g.uid), 1)
	p.UID = g.uid
	// In place of memory it asks for CPU, by which the classes differ as well.
	return waiting{pod: p, want: scheduler.PodRequest{UID: string(g.uid), Namespace: "ns", CPU: cluster.Milli(g.units),
		Priority: int32(g.units % 2)}}
}

func (c *crowd) roomy(g *guest) []string {
	var out []string
	for n, free := range c.free {
		if free >= g.units {
			out = append(out, fmt.Sprintf("n%d", n))
		}
	}
	return out
}

// home is a node that takes the pod now; -1 when there is none.
func (c *crowd) home(g *guest) int {
	for n, free := range c.free {
		if free >= g.units && !g.not[n] {
			return n
		}
	}
	return -1
}

// wake lets the framework try those whose turn it is.
func (c *crowd) wake(found []waiting) {
	for _, w := range append(found, c.q.next()...) {
		if c.pods[w.pod.UID] == nil || slices.Contains(c.active, w.pod.UID) {
			c.Fatalf("%s is woken, and it does not wait", w.pod.UID)
		}
		c.active = append(c.active, w.pod.UID)
	}
}

// try is one cycle of the framework.
func (c *crowd) try() {
	if len(c.active) == 0 {
		return
	}
	g := c.pods[c.active[0]]
	c.active = c.active[1:]
	c.tries++
	switch n := c.home(g); {
	case n >= 0:
		c.free[n] -= g.units // the cluster state changes at once, without a notification
		g.node = n
		c.placed = append(c.placed, g)
		delete(c.pods, g.uid)
		c.q.remove(g.uid)
	case c.rand.IntN(40) == 0:
		c.lost = append(c.lost, g.uid) // nothing is heard of it for a while
		return
	case c.rand.IntN(20) == 0:
		c.q.addUntried(c.waiting(g), c.roomy(g)) // it was to be reserved, and its room was gone
	default:
		c.q.add(c.waiting(g), c.roomy(g))
	}
	c.wake(nil)
}

func (c *crowd) tell(n int) {
	delete(c.unseen, n)
	for _, g := range c.pods {
		if c.free[n] >= g.units {
			c.naive++
		}
	}
	c.wake(c.q.look(fmt.Sprintf("n%d", n), true))
}

func (c *crowd) step() {
	c.clock = c.clock.Add(time.Duration(c.rand.IntN(300)) * time.Millisecond)
	switch c.rand.IntN(10) {
	case 0, 1, 2:
		if len(c.pods) < 60 {
			c.next++
			g := &guest{uid: types.UID(fmt.Sprintf("p%d", c.next)), units: int64(1 + c.rand.IntN(4))}
			for n := range g.not {
				g.not[n] = c.rand.IntN(4) == 0
			}
			c.pods[g.uid] = g
			c.active = append(c.active, g.uid)
		}
	case 3, 4, 5:
		c.try()
	case 6, 7: // one ends, and its node says so later
		if len(c.placed) > 0 {
			i := c.rand.IntN(len(c.placed))
			g := c.placed[i]
			c.placed = slices.Delete(c.placed, i, i+1)
			c.free[g.node] += g.units
			c.unseen[g.node] = true
		} else {
			n := c.rand.IntN(crowdNodes)
			c.free[n]++
			c.unseen[n] = true
		}
	case 8:
		for n := range c.unseen {
			c.tell(n)
			break
		}
	default: // one that waits is deleted
		for uid := range c.pods {
			if !slices.Contains(c.active, uid) && c.rand.IntN(3) == 0 {
				delete(c.pods, uid)
				c.lost = slices.DeleteFunc(c.lost, func(l types.UID) bool { return l == uid })
				c.q.remove(uid)
				c.wake(nil)
			}
			break
		}
	}
}

// settle sends all notifications and makes all tries. Then no pod may wait that could be placed.
func (c *crowd) settle() {
	for n := range crowdNodes {
		c.tell(n)
	}
	for len(c.active) > 0 || len(c.q.tried) > 0 {
		for len(c.active) > 0 {
			c.try()
		}
		silent := maps.Clone(c.q.tried)
		c.clock = c.clock.Add(lostAfter + time.Millisecond)
		c.tell(0)
		for uid := range silent {
			if c.q.tried[uid] != nil {
				c.Fatalf("nothing was heard of %s for longer than %v, and its class waits for it", uid, lostAfter)
			}
		}
	}
	for uid, g := range c.pods {
		if n := c.home(g); n >= 0 && !slices.Contains(c.lost, uid) {
			c.Fatalf("%s requests %d units and waits, and n%d has %d free and takes it", g.uid, g.units, n, c.free[n])
		}
	}
	if len(c.q.pods) != len(c.pods)-len(c.lost) {
		c.Fatalf("%d pods are known to wait, and %d do", len(c.q.pods), len(c.pods)-len(c.lost))
	}
	c.active, c.lost = c.lost, nil // the framework tries again by itself, some time
}

// No pod waits that could be placed, whatever comes in what order. Far fewer pods are tried than if all were tried at
// each change that lets them fit.
func TestNoPodWaitsForNothing(t *testing.T) {
	for seed := range uint64(4) {
		c := newCrowd(t, seed)
		for i := range crowdSteps / 4 {
			if c.step(); i%50 == 49 {
				c.settle()
			}
		}
		if len(c.placed) == 0 || c.naive < 2*c.tries {
			t.Errorf("seed %d: %d placed; %d tried where a naive one would have tried %d", seed, len(c.placed), c.tries,
				c.naive)
		}
	}
}

// A thousand pods wait for the same, and one place becomes free. The cluster state is asked once, and one pod is tried.
// The next is tried when that one was refused, and no more once one has taken the place.
func TestOneOfManyIsTried(t *testing.T) {
	asked, free := 0, int64(0)
	q := newWaiters(time.Now, func(w scheduler.PodRequest, _ string) bool { asked++; return free >= int64(w.CPU) })
	c := &crowd{}
	for i := range 1000 {
		q.add(c.waiting(&guest{uid: types.UID(fmt.Sprintf("p%d", i)), units: 1}), nil)
	}
	free = 1
	if gangs, now := q.look("n0", true), q.next(); asked > 2 || len(gangs) != 0 || len(now) != 1 ||
		now[0].pod.UID != "p0" {
		t.Fatalf("asked %d times, tried %d", asked, len(now))
	}
	if q.look("n0", true); len(q.next()) != 0 {
		t.Error("a second one is tried with the first")
	}
	q.add(c.waiting(&guest{uid: "p0", units: 1}), []string{"n0"}) // other plugins keep it from there
	if now := q.next(); len(now) != 1 || now[0].pod.UID != "p1" {
		t.Fatalf("after the first was refused: %+v", now)
	}
	free = 0
	q.remove("p1")
	if now := q.next(); len(now) != 0 || len(q.pods) != 999 {
		t.Errorf("the place is taken: %d are tried, %d wait", len(now), len(q.pods))
	}
}

// A change of a node while many pods of few kinds wait.
func BenchmarkLook(b *testing.B) {
	q := newWaiters(time.Now, func(scheduler.PodRequest, string) bool { return false })
	c := &crowd{}
	for i := range 5000 {
		q.add(c.waiting(&guest{uid: types.UID(fmt.Sprintf("p%d", i)), units: int64(i % 20)}), nil)
	}
	for b.Loop() {
		q.look("n0", false)
		q.next()
	}
}
