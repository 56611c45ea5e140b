// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// recent is how old an event may be.
	recent = 24 * time.Hour
	// logLines and logBytes bound the log of one container.
	logLines = "5000"
	logBytes = 4 << 20
	// ownNamespace begins the paths of objects in Kerf's namespace.
	ownNamespace = "/api/v1/namespaces/" + command.SystemNamespace
)

// FromCluster adds what a cluster tells of Kerf: GPUNodes, heartbeats, nodes, configs, Kerf's pods with logs, and
// events. The rights are those of the user; what they do not allow is missing. It reads no Secret.
func (a *Archive) FromCluster(ctx context.Context, api *access.Client) {
	var server json.RawMessage
	err := api.Get(ctx, "/version", nil, &server)
	a.JSON("cluster/version.json", server, err)
	a.list(ctx, api, "cluster/gpunodes.json", command.GPUNodesPath, nil, all)
	a.list(ctx, api, "cluster/heartbeats.json", "/apis/coordination.k8s.io/v1/namespaces/"+command.SystemNamespace+
		"/leases", nil, all)
	a.list(ctx, api, "cluster/nodes.json", "/api/v1/nodes", url.Values{"labelSelector": {sharing.LabelNode + "=true"}},
		all)
	a.list(ctx, api, "cluster/configmaps.json", ownNamespace+"/configmaps", nil, func(raw json.RawMessage) bool {
		return strings.HasPrefix(nameOf(raw), "kerf-")
	})
	a.list(ctx, api, "cluster/events.json", "/api/v1/events", nil, a.about)
	for _, p := range a.list(ctx, api, "cluster/pods.json", ownNamespace+"/pods", nil, all) {
		a.logs(ctx, api, p)
	}
}

func all(json.RawMessage) bool { return true }

// list adds the objects of a list, and returns them.
func (a *Archive) list(ctx context.Context, api *access.Client, name, path string, query url.Values,
	want func(json.RawMessage) bool) []json.RawMessage {
	found := []json.RawMessage{}
	err := api.List(ctx, path, query, func(raw json.RawMessage) error {
		if want(raw) {
			found = append(found, raw)
		}
		return nil
	})
	a.JSON(name, found, err)
	return found
}

func nameOf(raw json.RawMessage) string {
	var o struct{ Metadata struct{ Name string } }
	if json.Unmarshal(raw, &o) != nil {
		return ""
	}
	return o.Metadata.Name
}

// about reports whether an event is recent, and by Kerf or in its namespace.
func (a *Archive) about(raw json.RawMessage) bool {
	var e struct {
		Metadata           struct{ Namespace string }
		Source             struct{ Component string }
		ReportingComponent string
		EventTime          time.Time
		LastTimestamp      time.Time
	}
	if json.Unmarshal(raw, &e) != nil {
		return false
	}
	last := e.LastTimestamp
	if e.EventTime.After(last) {
		last = e.EventTime
	}
	own := e.Metadata.Namespace == command.SystemNamespace || strings.HasPrefix(e.Source.Component, "kerf-") ||
		strings.HasPrefix(e.ReportingComponent, "kerf-")
	return own && a.now.Sub(last) < recent
}

// logs adds the ends of the logs of a pod's containers, of this instance and the one before.
func (a *Archive) logs(ctx context.Context, api *access.Client, raw json.RawMessage) {
	var p struct {
		Metadata struct{ Name string }
		Spec     struct{ Containers []struct{ Name string } }
		Status   struct {
			ContainerStatuses []struct {
				Name         string
				RestartCount int
			}
		}
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		a.Text("logs", nil, err)
		return
	}
	restarts := map[string]int{}
	for _, c := range p.Status.ContainerStatuses {
		restarts[c.Name] = c.RestartCount
	}
	for _, c := range p.Spec.Containers {
		path := fmt.Sprintf("%s/pods/%s/log", ownNamespace, url.PathEscape(p.Metadata.Name))
		query := url.Values{"container": {c.Name}, "tailLines": {logLines}, "timestamps": {"true"}}
		name := "logs/" + p.Metadata.Name + "-" + c.Name
		text, err := api.Text(ctx, path, query, logBytes)
		a.Text(name+".log", text, err)
		if restarts[c.Name] > 0 {
			query.Set("previous", "true")
			text, err = api.Text(ctx, path, query, logBytes)
			a.Text(name+"-previous.log", text, err)
		}
	}
}
