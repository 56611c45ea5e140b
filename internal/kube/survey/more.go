// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package survey

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

const (
	// leasesPath is where the agents' heartbeats are, and leasePrefix what stands before the node's name.
	leasesPath  = "/apis/coordination.k8s.io/v1/namespaces/kerf-system/leases"
	leasePrefix = "kerf-node-"
	// configPath is the object with the agents' configuration, and configKey its document.
	configPath = "/api/v1/namespaces/kerf-system/configmaps/kerf-config"
	configKey  = "sharing.yaml"
)

// More is what belongs to one pod beside the cluster. Not everybody may read all of it: what could not be read is empty, and
// Left says so.
type More struct {
	// Events are those of the pod, the oldest first.
	Events []Event
	// Heartbeats are those of the agents, by node.
	Heartbeats map[string]Heartbeat
	// Config is the document of the agents' configuration; empty where there is none.
	Config string
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
func TakeFor(ctx context.Context, kubeconfig, namespace, pod string) (Cluster, More, error) {
	s, end, err := open(kubeconfig)
	if err != nil {
		return Cluster{}, More{}, err
	}
	defer end()
	c, err := s.take(ctx)
	if err != nil {
		return c, More{}, err
	}
	m := More{Heartbeats: map[string]Heartbeat{}}
	if err := s.events(ctx, namespace, pod, &m); err != nil {
		m.Left = append(m.Left, err.Error())
	}
	if err := s.list(ctx, leasesPath, func(raw json.RawMessage) error {
		var l coordinationv1.Lease
		err := json.Unmarshal(raw, &l)
		if node, ours := strings.CutPrefix(l.Name, leasePrefix); ours && l.Spec.RenewTime != nil && l.Spec.LeaseDurationSeconds != nil {
			m.Heartbeats[node] = Heartbeat{l.Spec.RenewTime.Time, time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second}
		}
		return err
	}); err != nil {
		m.Left = append(m.Left, err.Error())
	}
	var config corev1.ConfigMap
	if err := s.get(ctx, configPath, url.Values{}, &config); err != nil {
		m.Left = append(m.Left, "read configmap kerf-config: "+err.Error())
	}
	m.Config = config.Data[configKey]
	return c, m, nil
}

func (s surveyor) events(ctx context.Context, namespace, pod string, m *More) error {
	path := "/api/v1/namespaces/" + url.PathEscape(namespace) + "/events?fieldSelector=involvedObject.kind=Pod,involvedObject.name=" + pod
	err := s.list(ctx, path, func(raw json.RawMessage) error {
		var e corev1.Event
		err := json.Unmarshal(raw, &e)
		out := Event{Reason: e.Reason, Message: e.Message, From: e.Source.Component, Last: e.LastTimestamp.Time, Count: max(1, e.Count)}
		if e.ReportingController != "" {
			out.From = e.ReportingController
		}
		if e.Series != nil {
			out.Last, out.Count = e.Series.LastObservedTime.Time, e.Series.Count
		} else if out.Last.IsZero() {
			out.Last = e.EventTime.Time
		}
		m.Events = append(m.Events, out)
		return err
	})
	slices.SortStableFunc(m.Events, func(a, b Event) int { return a.Last.Compare(b.Last) })
	return err
}
