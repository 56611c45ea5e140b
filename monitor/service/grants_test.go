// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

func TestGrantsOfAPicture(t *testing.T) {
	got := grantsOf(&nodeapi.GetNodeResponse{Grants: []*nodeapi.Grant{
		{Id: "k1", Name: "train", Cgroup: "/cg/k1", Level: "driver", Profile: "small",
			Shares: []*nodeapi.Share{{Gpu: "GPU-0", MemoryBytes: 10, BurstBytes: 5, Percent: 25,
				CapEvents: &nodeapi.CapEvents{Refused: proto.Uint64(0), Violations: proto.Uint64(2),
					DelaySeconds: 0.5}}}},
		{Id: "k2", Shares: []*nodeapi.Share{{Gpu: "GPU-0", Whole: true}}},
		{Id: "k5", Shares: []*nodeapi.Share{{Gpu: "GPU-1", MemoryBytes: 10, MigProfile: "1g.10gb", MigStart: 2}}},
		{Id: "k3", PodNamespace: "ml", PodName: "p", PodUid: "old", Container: "c"},
		{Id: "k4", PodNamespace: "ml", PodName: "p", PodUid: "new", Container: "c",
			Claims: []string{"p-gpu-x/gpu"}},
	}})
	active := func(id, dir string, f ...attribution.Share) attribution.Attachment {
		return attribution.Attachment{Grant: id, Cgroup: dir, Shares: f}
	}
	want := map[string]collect.Grant{
		"k1": {ID: "k1", Name: "train", Level: "driver", Profile: "small",
			Attachment: active("k1", "/cg/k1", attribution.Share{GPU: sharing.GPURef{UUID: "GPU-0"}}),
			Caps: []collect.Cap{{Memory: 10, Burst: 5, Percent: 25,
				Events: collect.CapEvents{Counted: true, Violations: 2, Delay: 500 * time.Millisecond,
					Watched: true}}}},
		"k2": {ID: "k2", Name: "k2", Attachment: active("k2", "", attribution.Share{GPU: sharing.GPURef{UUID: "GPU-0"},
			Whole: true}), Caps: []collect.Cap{{}}},
		"k5": {ID: "k5", Name: "k5", Attachment: active("k5", "",
			attribution.Share{GPU: sharing.GPURef{UUID: "GPU-1", Instance: sharing.InstanceRef{Profile: "1g.10gb",
				Start: 2}}}), Caps: []collect.Cap{{Memory: 10}}},
		"k3": {ID: "k3", Name: "ml/p/c#k3", Namespace: "ml", Pod: "p", PodUID: "old", Container: "c",
			Attachment: active("k3", "")},
		"k4": {ID: "k4", Name: "ml/p/c#k4", Namespace: "ml", Pod: "p", PodUID: "new", Container: "c",
			Claims:     []string{"p-gpu-x/gpu"},
			Attachment: active("k4", "")},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// lines sends each line of a log to the test.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// TestAgentOfAnotherVersion follows an agent that does not have this version of the node API, as in an upgrade. The
// last known grants stay.
func TestAgentOfAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", nodeclient.SocketPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	agent := grpc.NewServer()
	ended := make(chan error, 1)
	go func() { ended <- agent.Serve(l) }()
	log := make(lines, 1)
	g := newGrants(slog.New(slog.NewTextHandler(log, nil)))
	g.set(map[string]collect.Grant{"k1": {ID: "k1"}})
	ctx, cancel := context.WithCancel(t.Context())
	followed := make(chan error, 1)
	go func() { followed <- g.follow(ctx, dir) }()
	if line := <-log; !strings.Contains(line, "using its last known grants") ||
		!strings.Contains(line, "another version") {
		t.Errorf("logged %s", line)
	}
	cancel()
	if err := <-followed; err != nil {
		t.Error(err)
	}
	if known, fresh := g.Grants(); len(known) != 1 || fresh {
		t.Errorf("%v, fresh %v", known, fresh)
	}
	agent.Stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
