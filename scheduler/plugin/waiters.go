// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// lostAfter is how long nothing may be heard of a pod that is tried again before the next of its class is. Most are
// heard of within milliseconds; one of which nothing comes (another plugin refused it first) must not hold up the
// others for good.
const lostAfter = 5 * time.Second

// waiting is a pod that waits for room, and how to have it tried again.
type waiting struct {
	pod  *corev1.Pod
	want scheduler.PodRequest
	// gang is true for a pod that waits for room for others too, so that only more room than before helps.
	gang     bool
	activate func(map[string]*corev1.Pod)
	// since orders the pods of a class: those that began to wait earlier are tried first.
	since uint64
	class *class
}

// waiters are the pods that wait for room. Pods with the same answer from every node are a class. After a change of a
// node, each class is evaluated once, and one of its pods is tried. The next is tried when that one was reserved,
// rejected or deleted, as long as there is room. So if thousands wait for one GPU, one is tried and not all.
//
// It promises that no pod waits while a node has capacity for it that had none at the last try. At the latest it is
// tried with the first change of any node after lostAfter. That applies for each pod before it that was tried without a
// result. It is not safe for concurrent use.
type waiters struct {
	now  func() time.Time
	fits func(w scheduler.PodRequest, node string) bool

	pods    map[types.UID]*waiting
	classes map[classKey]*class
	// tried are the classes of the pods that are being tried, due those of which one could be.
	tried map[types.UID]*class
	due   map[*class]bool
	// clock numbers what happens, and gangs counts the pods of gangs.
	clock uint64
	gangs int
}

// classKey has the priority too: of pods of different classes the framework tries the most important first.
type classKey struct {
	class    string
	priority int32
	gang     bool
}

// class is the pods that wait for the same.
type class struct {
	key classKey
	// want is that of any of them.
	want scheduler.PodRequest
	pods map[types.UID]*waiting
	// queue has those of no gang in their order; one that does not wait any more is found out when its turn comes.
	queue []*waiting
	// room is the nodes with room, and since when: who has waited for longer has not been tried there.
	room map[string]uint64
	// trying is the pod that has been tried since at; empty when there is none.
	trying types.UID
	at     time.Time
}

func newWaiters(now func() time.Time, fits func(scheduler.PodRequest, string) bool) *waiters {
	return &waiters{
		now: now, fits: fits, pods: map[types.UID]*waiting{}, classes: map[classKey]*class{},
		tried: map[types.UID]*class{}, due: map[*class]bool{},
	}
}

// add has a pod wait after its try. The nodes with capacity for it are roomy: something else kept it from them, whose
// end others report.
func (q *waiters) add(w waiting, roomy []string) {
	c := q.enter(&w)
	if w.gang {
		return
	}
	q.hasRoom(c, roomy)
	if len(c.room) > len(roomy) {
		maps.DeleteFunc(c.room, func(name string, _ uint64) bool { return !slices.Contains(roomy, name) })
	}
	if len(c.queue) > 2*len(c.pods) {
		c.queue = slices.DeleteFunc(c.queue, func(w *waiting) bool { return c.pods[w.pod.UID] != w })
	}
	c.queue = append(c.queue, &w)
}

// addUntried has a pod wait that has not been tried with the room that there is, so that its turn is next.
func (q *waiters) addUntried(w waiting, roomy []string) {
	c := q.enter(&w)
	q.hasRoom(c, roomy)
	w.since = 0
	c.queue = slices.Insert(c.queue, 0, &w)
	q.due[c] = true
}

// hasRoom notes that these nodes have room, from now on where that is news: then those who wait already have not been
// tried there.
func (q *waiters) hasRoom(c *class, nodes []string) {
	for _, name := range nodes {
		if _, known := c.room[name]; !known {
			c.room[name], q.due[c] = q.clock, true
		}
	}
}

// enter notes that the pod waits, in its class.
func (q *waiters) enter(w *waiting) *class {
	q.remove(w.pod.UID)
	key := classKey{w.want.Class(), w.want.Priority, w.gang}
	c := q.classes[key]
	if c == nil {
		c = &class{key: key, want: w.want, pods: map[types.UID]*waiting{}, room: map[string]uint64{}}
		c.want.UID = "" // what that pod holds later is not theirs
		q.classes[key] = c
	}
	q.clock++
	w.since, w.class = q.clock, c
	q.pods[w.pod.UID], c.pods[w.pod.UID] = w, w
	if w.gang {
		q.gangs++
	}
	return c
}

// remove tells that a pod does not wait any more, and is not being tried any more.
func (q *waiters) remove(uid types.UID) {
	q.leave(q.pods[uid])
	q.heard(uid)
}

// leave takes a pod out of its class.
func (q *waiters) leave(w *waiting) {
	if w == nil {
		return
	}
	delete(q.pods, w.pod.UID)
	delete(w.class.pods, w.pod.UID)
	if w.gang {
		q.gangs--
	}
	q.tidy(w.class)
}

// heard tells that something came of a pod, if it was being tried.
func (q *waiters) heard(uid types.UID) {
	c := q.tried[uid]
	if c == nil {
		return
	}
	delete(q.tried, uid)
	c.trying, q.due[c] = "", true
	q.tidy(c)
}

// tidy removes a class without pods.
func (q *waiters) tidy(c *class) {
	if len(c.pods) == 0 && c.trying == "" {
		delete(q.classes, c.key)
		delete(q.due, c)
	}
}

// look reports that a node has changed, and whether it has more capacity than before. It returns the pods of gangs to
// try for that, which do not wait any more. The others come from next.
func (q *waiters) look(node string, more bool) []waiting {
	q.clock++
	var out []waiting
	for _, c := range q.classes {
		if c.key.gang {
			if more && q.fits(c.want, node) {
				for _, w := range c.pods {
					out = append(out, *w)
					q.leave(w)
				}
			}
			continue
		}
		if !q.fits(c.want, node) {
			delete(c.room, node)
			continue
		}
		q.hasRoom(c, []string{node})
	}
	return out
}

// next are the pods to try now. Of each class without a current try it is the first, if there is capacity that it was
// not tried with. They do not wait until they are added again.
func (q *waiters) next() []waiting {
	for uid, c := range q.tried {
		if q.now().Sub(c.at) > lostAfter {
			q.heard(uid)
		}
	}
	var out []waiting
	for c := range q.due {
		delete(q.due, c)
		w := q.first(c)
		if c.trying != "" || w == nil || !q.untried(c, w) {
			continue
		}
		c.queue = c.queue[1:]
		c.trying, c.at, q.tried[w.pod.UID] = w.pod.UID, q.now(), c
		q.leave(w)
		out = append(out, *w)
	}
	return out
}

// first is the pod whose turn it is; nil where none waits.
func (q *waiters) first(c *class) *waiting {
	for len(c.queue) > 0 && c.pods[c.queue[0].pod.UID] != c.queue[0] {
		c.queue = c.queue[1:]
	}
	if len(c.queue) == 0 {
		return nil
	}
	return c.queue[0]
}

// untried is true when a node has room that the pod has not been tried with.
func (q *waiters) untried(c *class, w *waiting) bool {
	for name, since := range c.room {
		switch {
		case since <= w.since:
		case q.fits(c.want, name):
			return true
		default:
			delete(c.room, name) // taken meanwhile; look learns when it has room again
		}
	}
	return false
}

// The reasons of events.
const (
	// reasonAssigned of a pod: the node and the GPUs that were assigned to it.
	reasonAssigned = "GPUAssigned"
	// reasonTimeout of a pod: its node could not place it within placementTimeout, and the scheduler evicts it.
	reasonTimeout = "GPUPlacementTimeout"
	// reasonGangFailed of a pod: a faulty GPU ended another pod of its gang, and the scheduler evicts it, too.
	reasonGangFailed = "GangMemberFailed"
	// reasonPreempted of a pod: the scheduler evicts it for a pod of higher priority, which is named.
	reasonPreempted = "Preempted"
	// reasonConfigRejected of the ConfigMap kerf-config: a config was rejected, with its errors and the config that
	// stays applied.
	reasonConfigRejected = "SharingConfigRejected"
)
