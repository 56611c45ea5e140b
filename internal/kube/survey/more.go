// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/internal/kube/access"
)

const (
	// leasesPath is where the agents' heartbeats are, and leasePrefix what stands before the node's name.
	leasesPath  = "/apis/coordination.k8s.io/v1/namespaces/kerf-system/leases"
	leasePrefix = "kerf-node-"
	// configPath is the object with the agents' configuration.
	configPath = "/api/v1/namespaces/kerf-system/configmaps/kerf-config"
)

// More is data of one pod in addition to the cluster. Not every user may read all of it: unreadable parts are empty,
// and Left names them.
type More struct {
	// Events are those of the pod, the oldest first.
	Events []Event
	// Heartbeats are those of the agents, by node.
	Heartbeats map[string]Heartbeat
	// Config is what the ConfigMap of the agents' configuration has, by key; nil where there is none.
	Config map[string]string
	// Left has a sentence for each thing that could not be read.
	Left []string
}

// Event is something that was said of a pod, for the first time and the last, and how often.
type Event struct {
	Reason, Message, From string
	Last                  time.Time
	Count                 int32
}

// Heartbeat is when an agent was heard from, by its own clock, and how long that holds.
type Heartbeat struct {
	Renewed time.Time
	Valid   time.Duration
}

// TakeFor is Take, and what belongs to one pod. Its errors are those of Take.
func TakeFor(ctx context.Context, api *access.Client, namespace, pod string) (Cluster, More, error) {
	c, err := Take(ctx, api)
	if err != nil {
		return c, More{}, err
	}
	var m More
	if m.Events, err = Events(ctx, api, namespace, pod); err != nil {
		m.Left = append(m.Left, err.Error())
	}
	if m.Heartbeats, err = Heartbeats(ctx, api); err != nil {
		m.Left = append(m.Left, err.Error())
	}
	if m.Config, err = Config(ctx, api); err != nil {
		m.Left = append(m.Left, err.Error())
	}
	return c, m, nil
}

// Config is what the ConfigMap of the agents' configuration has, by key. Errors are those of Take; sharing.ErrNotFound
// where there is no such ConfigMap.
func Config(ctx context.Context, api *access.Client) (map[string]string, error) {
	var m corev1.ConfigMap
	if err := api.Get(ctx, configPath, nil, &m); err != nil {
		return nil, fmt.Errorf("read configmap kerf-config: %w", err)
	}
	return m.Data, nil
}

// Heartbeats are those of the agents, by node. Errors are those of Take.
func Heartbeats(ctx context.Context, api *access.Client) (map[string]Heartbeat, error) {
	beats := map[string]Heartbeat{}
	err := api.List(ctx, leasesPath, nil, func(raw json.RawMessage) error {
		var l coordinationv1.Lease
		err := json.Unmarshal(raw, &l)
		if node, ours := strings.CutPrefix(l.Name, leasePrefix); ours && l.Spec.RenewTime != nil &&
			l.Spec.LeaseDurationSeconds != nil {
			beats[node] = Heartbeat{l.Spec.RenewTime.Time, time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second}
		}
		return err
	})
	return beats, err
}

// Events are those of one pod, the oldest first. Errors are those of Take.
func Events(ctx context.Context, api *access.Client, namespace, pod string) ([]Event, error) {
	return EventsOf(ctx, api, namespace, "Pod", pod)
}

// EventsOf are those of one object of a kind, such as Job, the oldest first. Errors are those of Take.
func EventsOf(ctx context.Context, api *access.Client, namespace, kind, name string) ([]Event, error) {
	var out []Event
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/events"
	query := url.Values{"fieldSelector": {"involvedObject.kind=" + kind + ",involvedObject.name=" + name}}
	err := api.List(ctx, path, query, func(raw json.RawMessage) error {
		var e corev1.Event
		err := json.Unmarshal(raw, &e)
		one := Event{Reason: e.Reason, Message: e.Message, From: e.Source.Component, Last: e.LastTimestamp.Time,
			Count: max(1, e.Count)}
		if e.ReportingController != "" {
			one.From = e.ReportingController
		}
		if e.Series != nil {
			one.Last, one.Count = e.Series.LastObservedTime.Time, e.Series.Count
		} else if one.Last.IsZero() {
			one.Last = e.EventTime.Time
		}
		out = append(out, one)
		return err
	})
	slices.SortStableFunc(out, func(a, b Event) int { return a.Last.Compare(b.Last) })
	return out, err
}
