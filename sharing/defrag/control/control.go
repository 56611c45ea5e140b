// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package control decides the next act of a defragmentation.
//
// The whole state is a Record, which its user stores before each act, and a View of the cluster. So a program that is
// killed at any step goes on where it was. An eviction is repeated only for the same pod.
//
// While pods move, the GPUs for the pending pod are cordoned, so that no moved pod returns there.
package control

import (
	"fmt"
	"slices"
	"time"
)

// Phase is how far a defragmentation is.
type Phase string

// The phases, in their order.
const (
	// Idle: nothing is being moved.
	Idle Phase = ""
	// Moving: the GPUs are cordoned, and pods move one after the other.
	Moving Phase = "Moving"
	// Releasing: all moved pods run. The GPUs are uncordoned, and the pending pod is to run.
	Releasing Phase = "Releasing"
	// Stopping: the GPUs are uncordoned, and nothing more is moved.
	Stopping Phase = "Stopping"
)

// Record is the stored state.
type Record struct {
	Phase Phase `json:"phase,omitempty"`
	// For is the pending pod that gets the GPUs, Node their node and GPUs their UUIDs.
	For  Ref      `json:"for,omitzero"`
	Node string   `json:"node,omitempty"`
	GPUs []string `json:"gpus,omitempty"`
	// Moves are in their order.
	Moves []Move `json:"moves,omitempty"`
	// Since is when the phase began.
	Since time.Time `json:"since,omitzero"`
	// Evictions are those of the last hour.
	Evictions []Eviction `json:"evictions,omitempty"`
	// Stopped says why the last defragmentation stopped before its end, and StoppedAt when.
	Stopped   string    `json:"stopped,omitempty"`
	StoppedAt time.Time `json:"stoppedAt,omitzero"`
}

// Ref names a pod.
type Ref struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// String returns "namespace/name".
func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// Move is a pod to move.
type Move struct {
	Pod Ref `json:"pod"`
	// Owner is the UID of its controller.
	Owner string `json:"owner"`
	// Node is where it is, Pool the pool of that node, To the node that the plan names.
	Node string `json:"node"`
	Pool string `json:"pool"`
	To   string `json:"to"`
	// Evicted is when its eviction began; zero before. Ready is how many pods of its controller were ready then.
	Evicted time.Time `json:"evicted,omitzero"`
	Ready   int       `json:"ready,omitempty"`
	// Done is true once as many pods of its controller are ready again.
	Done bool `json:"done,omitempty"`
}

// Eviction is an eviction that counts for the limit of a pool.
type Eviction struct {
	Pool string    `json:"pool"`
	At   time.Time `json:"at"`
}

// Pod is what is known of a pod.
type Pod struct {
	Ref

	Owner, Node   string
	Ready, Ending bool
	// StayReason says why the pod must stay; empty if it can be moved.
	StayReason string
}

// View is the cluster as far as the record is about it.
type View struct {
	// Pods are those of the namespaces in the record.
	Pods []Pod
	// Cordoned are the GPUs of the record's node that this package had cordoned.
	Cordoned []string
}

func (v *View) pod(uid string) (Pod, bool) {
	i := slices.IndexFunc(v.Pods, func(p Pod) bool { return p.UID == uid })
	if i < 0 {
		return Pod{}, false
	}
	return v.Pods[i], true
}

// ready is how many pods of a controller are ready.
func (v *View) ready(owner string) int {
	n := 0
	for _, p := range v.Pods {
		if p.Owner == owner && p.Ready && !p.Ending {
			n++
		}
	}
	return n
}

// Limits bound a defragmentation. A zero value stands for the default.
type Limits struct {
	// PerPoolPerHour is the most evictions from the nodes of one pool in one hour.
	PerPoolPerHour int
	// Wait is how long a moved pod may take until its replacement is ready.
	Wait time.Duration
}

// The defaults of Limits, and for how long nothing begins after a stop.
const (
	DefaultPerPoolPerHour = 2
	DefaultWait           = 10 * time.Minute
	Pause                 = time.Hour
)

// Act is what is to be done in the cluster.
type Act string

// The acts.
const (
	// Nothing: wait for the next round.
	Nothing Act = ""
	// Cordon and Uncordon are about the GPUs of the record.
	Cordon   Act = "Cordon"
	Uncordon Act = "Uncordon"
	// Evict is about one pod.
	Evict Act = "Evict"
	// Finished and Failed end a defragmentation.
	Finished Act = "Finished"
	Failed   Act = "Failed"
)

// Decision is what is to be stored, and then to be done.
type Decision struct {
	Record Record
	Act    Act
	// Move is the pod to evict.
	Move Move
	// Reason says what is waited for, or why it ended.
	Reason string
}

// Begin is a record for new moves.
func Begin(r Record, pending Ref, node string, gpus []string, moves []Move, now time.Time) Record {
	return Record{Phase: Moving, For: pending, Node: node, GPUs: gpus, Moves: moves, Since: now, Evictions: r.Evictions}
}

// MayBegin says why nothing may begin now; empty if it may.
func MayBegin(r Record, now time.Time) string {
	if left := r.StoppedAt.Add(Pause).Sub(now); !r.StoppedAt.IsZero() && left > 0 {
		return fmt.Sprintf("the last defragmentation stopped (%s); the next one can begin in %v", r.Stopped,
			left.Round(time.Second))
	}
	return ""
}
