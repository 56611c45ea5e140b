// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package defrag

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/sharing"
	planner "github.com/kerf-gpu/kerf/sharing/defrag"
	"github.com/kerf-gpu/kerf/sharing/defrag/control"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

const (
	// recordPath is where the record is stored, and recordsPath where it is created.
	recordsPath = "/api/v1/namespaces/kerf-system/configmaps"
	recordName  = "kerf-defrag"
	recordPath  = recordsPath + "/" + recordName
	recordKey   = "record.json"
	// by marks the cordons of this package.
	by = "kerf-defrag"

	gpuNodesPath = "/apis/" + gpunode.Group + "/" + gpunode.Version + "/" + gpunode.Resource
)

// Runner carries out a defragmentation, one act with each call of Step. It keeps nothing in memory: several may run,
// and one that is killed is continued by the next.
type Runner struct {
	API     *access.Client
	Options Options
	Limits  control.Limits
}

// Status is what a step found and did.
type Status struct {
	control.Decision
	// Begun is true if the step began new moves.
	Begun bool
	// node is the GPUNode of the record, as the decision saw it.
	node gpunode.Object
}

// stored is the ConfigMap with the record.
type stored struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   meta              `json:"metadata"`
	Data       map[string]string `json:"data"`
}

type meta struct {
	Name            string            `json:"name"`
	Namespace       string            `json:"namespace,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
}

// load reads the record; an empty one if there is none.
func (r *Runner) load(ctx context.Context) (control.Record, string, error) {
	var m stored
	err := r.API.Get(ctx, recordPath, nil, &m)
	if errors.Is(err, sharing.ErrNotFound) {
		return control.Record{}, "", nil
	}
	var out control.Record
	if err == nil && m.Data[recordKey] != "" {
		err = json.Unmarshal([]byte(m.Data[recordKey]), &out)
	}
	if err != nil {
		return out, "", fmt.Errorf("read configmap %s: %w", recordName, err)
	}
	return out, m.Metadata.ResourceVersion, nil
}

// save writes the record if no one else wrote it since it was read.
func (r *Runner) save(ctx context.Context, record control.Record, version string) error {
	text, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return fmt.Errorf("write configmap %s: %w", recordName, err)
	}
	m := stored{"v1", "ConfigMap", meta{recordName, "kerf-system", version,
		map[string]string{"app.kubernetes.io/part-of": "kerf"}}, map[string]string{recordKey: string(text)}}
	method, path := http.MethodPut, recordPath
	if version == "" {
		method, path = http.MethodPost, recordsPath
	}
	if err := r.API.Do(ctx, method, path, url.Values{"fieldManager": {by}},
		&access.Body{Type: access.JSON, Value: m}, nil); err != nil {
		return fmt.Errorf("write configmap %s: %w", recordName, err)
	}
	return nil
}

// Step does the next act, or begins a defragmentation if pods wait. A conflict with another writer is no error: that
// one acts.
func (r *Runner) Step(ctx context.Context, now time.Time) (Status, error) {
	record, version, err := r.load(ctx)
	if err != nil {
		return Status{}, err
	}
	var s Status
	if record.Phase == control.Idle {
		s, err = r.begin(ctx, record, now)
	} else {
		s, err = r.next(ctx, record, now)
	}
	if err != nil {
		return s, err
	}
	// The write also proves that the decision is current. A leader that was paused meanwhile must not act any more.
	if s.Act != control.Nothing || changed(record, s.Record) {
		if err := r.save(ctx, s.Record, version); errors.Is(err, sharing.ErrConflict) {
			return Status{Decision: control.Decision{Record: record, Reason: "another client was first"}}, nil
		} else if err != nil {
			return s, err
		}
	}
	err = r.act(ctx, &s)
	return s, err
}

func changed(a, b control.Record) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX != nil || errY != nil || !bytes.Equal(x, y)
}

// begin plans moves, and makes a record of the first step.
func (r *Runner) begin(ctx context.Context, record control.Record, now time.Time) (Status, error) {
	idle := func(why string) (Status, error) {
		return Status{Decision: control.Decision{Record: record, Reason: why}}, nil
	}
	if why := control.MayBegin(record, now); why != "" {
		return idle(why)
	}
	o := r.Options
	o.Limits.Single = true // The GPUs of one pod are cordoned.
	c, err := Read(ctx, r.API, o, now)
	if err != nil {
		return Status{}, err
	}
	if len(c.Left) > 0 { // a plan can show moves with less, but nothing is evicted on a guess
		return idle("not read: " + strings.Join(c.Left, "; "))
	}
	plan := c.State.Make()
	if len(plan.Steps) == 0 {
		return idle("no moves would let a pending pod fit")
	}
	s := Status{Begun: true}
	s.Record = c.record(record, plan.Steps[0], now)
	return s, nil
}

// record is a record of a step.
func (c *Cluster) record(old control.Record, step planner.Step, now time.Time) control.Record {
	b, fit := c.State, step.Fits[0]
	var gpus []string
	for _, g := range fit.To.GPUs {
		gpus = append(gpus, b.Problem.Nodes[fit.To.Node].GPUs[g])
	}
	var moves []control.Move
	for _, m := range step.Moves {
		from := b.Problem.Nodes[m.From.Node]
		moves = append(moves, control.Move{Pod: refOf(&b.Pods[m.Pod]), Owner: c.Pods[b.Pods[m.Pod].UID].OwnerUID,
			Node: from.Name, Pool: from.Pool, To: b.Problem.Nodes[m.To.Node].Name})
	}
	pending, node := refOf(&b.Pods[fit.Pod]), b.Problem.Nodes[fit.To.Node].Name
	return control.Begin(old, pending, node, gpus, moves, now)
}

func refOf(p *planner.Pod) control.Ref {
	return control.Ref{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// next decides the next act of a record.
func (r *Runner) next(ctx context.Context, record control.Record, now time.Time) (Status, error) {
	node, err := r.gpuNode(ctx, record.Node)
	if err != nil {
		return Status{}, err
	}
	v, err := r.view(ctx, record, node)
	if err != nil {
		return Status{}, err
	}
	return Status{Decision: control.Next(record, v, r.Limits, now), node: node}, nil
}

// view reads what a record is about. node is its GPUNode.
func (r *Runner) view(ctx context.Context, record control.Record, node gpunode.Object) (control.View, error) {
	var v control.View
	rules, err := r.Options.rules(ctx, r.API)
	if err != nil {
		return v, err
	}
	namespaces := []string{record.For.Namespace}
	for _, m := range record.Moves {
		namespaces = append(namespaces, m.Pod.Namespace)
	}
	slices.Sort(namespaces)
	for _, namespace := range slices.Compact(namespaces) {
		pods, err := survey.PodsOf(ctx, r.API, namespace)
		if err != nil {
			return v, fmt.Errorf("read pods of namespace %s: %w", namespace, err)
		}
		for _, p := range pods {
			moved := podOf(p, scheduler.PodRequest{}, nil)
			v.Pods = append(v.Pods, control.Pod{Ref: control.Ref{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
				Owner: p.OwnerUID, Node: p.Node, Ready: p.Ready, Ending: p.Ending,
				StayReason: rules.StayReason(&moved)})
		}
	}
	for _, c := range node.Spec.CordonedGPUs {
		if c.By == by {
			v.Cordoned = append(v.Cordoned, c.UUID)
		}
	}
	return v, nil
}

func (r *Runner) gpuNode(ctx context.Context, name string) (gpunode.Object, error) {
	var o gpunode.Object
	if err := r.API.Get(ctx, gpuNodesPath+"/"+url.PathEscape(name), nil, &o); err != nil &&
		!errors.Is(err, sharing.ErrNotFound) { // a node that is gone has no cordons
		return o, fmt.Errorf("read gpunode %s: %w", name, err)
	}
	return o, nil
}

// ErrStopped is the error of a defragmentation that stopped before its end.
var ErrStopped = errors.New("the defragmentation stopped")

// Run steps until a defragmentation has ended, or until ctx ends. It calls tell for each status, and wait between two
// steps. If idle is true it waits for the next one in place of returning.
func (r *Runner) Run(ctx context.Context, now func() time.Time, wait func(context.Context) error, idle bool,
	tell func(Status, error)) error {
	for {
		s, err := r.Step(ctx, now())
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		tell(s, err)
		switch {
		case idle:
		case err != nil && !errors.Is(err, sharing.ErrUnavailable):
			return err
		case s.Act == control.Failed:
			return fmt.Errorf("%w: %s", ErrStopped, s.Reason)
		case err == nil && s.Record.Phase == control.Idle:
			return nil
		}
		if err := wait(ctx); err != nil {
			return err
		}
	}
}
