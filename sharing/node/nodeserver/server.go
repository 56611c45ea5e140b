// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeserver

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
)

const (
	// maxRequest bounds a request, in bytes: a SharingConfig of maxConfig bytes, and what goes with it. Others have a
	// few hundred bytes.
	maxRequest = maxConfig + 4<<10
	// stopGrace is how long running calls may take when the server stops.
	stopGrace = 5 * time.Second
)

// Server answers the node API.
type Server struct {
	nodeapi.UnimplementedNodeServer
	runtime *node.Runtime
	log     *slog.Logger
	// containers is nil where grants for containers are not taken; hook goes with it.
	containers Containers
	hook       Hook
	// planner is nil if no GPU supports MIG.
	planner  MIGPlanner
	pictures *pictures
	pace     *pace
	// stopping is closed when the server stops, so that Watch streams end.
	stopping chan struct{}
}

// New makes a server over the runtime.
func New(r *node.Runtime, log *slog.Logger) *Server {
	state := func(ctx context.Context) *nodeapi.GetNodeResponse { return Message(r.State(ctx)) }
	return &Server{runtime: r, log: log, pictures: newPictures(state), pace: newPace(time.Now),
		stopping: make(chan struct{})}
}

// Serve answers on l until ctx ends, lets running calls finish for a while, and closes l.
func (s *Server) Serve(ctx context.Context, l *serve.Listener) error {
	g := grpc.NewServer(serve.GRPC(serve.GRPCRules{
		MaxRequest: maxRequest, Streams: []string{nodeapi.Node_Watch_FullMethodName}, Identify: true,
	})...)
	nodeapi.RegisterNodeServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	close(s.stopping)
	stopped := make(chan struct{})
	go func() { g.GracefulStop(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(stopGrace):
		g.Stop()
		<-stopped
	}
	return <-done
}

// GetNode implements the node API.
func (s *Server) GetNode(ctx context.Context, _ *nodeapi.GetNodeRequest) (*nodeapi.GetNodeResponse, error) {
	p, err := s.pictures.take(ctx)
	if err != nil {
		return nil, err
	}
	return p.message, nil
}

// Reserve implements the node API.
func (s *Server) Reserve(ctx context.Context, in *nodeapi.ReserveRequest) (*nodeapi.ReserveResponse, error) {
	peer, err := s.pacedCaller(ctx, "reserve", "")
	if err != nil {
		return nil, statusOf(err)
	}
	req, err := sharing.RequestFromAmounts(sharing.Amounts{
		Memory: in.GetMemoryBytes(), Percent: in.GetPercent(), GPUs: in.GetGpuCount(), Whole: in.GetWhole(),
		MIG:    in.GetMig(),
		Models: in.GetModels(), UUIDs: in.GetUuids(),
		MinLevel: in.GetMinEnforcement(), Place: in.GetPlacementPolicy(), Profile: in.GetProfile(),
	})
	if err != nil {
		return nil, statusOf(err)
	}
	if in.GetContainer() {
		return s.reserveForContainer(ctx, peer, in, req)
	}
	if in.GetReserveSeconds() != 0 {
		return nil, statusOf(sharing.Invalid("reserve_seconds", fmt.Sprint(in.GetReserveSeconds()),
			"leave it out, or set container", "is for containers alone"))
	}
	id, err := s.runtime.Reserve(ctx, peer, in.GetName(), req)
	if err != nil {
		return nil, statusOf(err)
	}
	grant, err := s.grant(id)
	return &nodeapi.ReserveResponse{Grant: grant}, err
}

// Activate implements the node API.
func (s *Server) Activate(ctx context.Context, in *nodeapi.ActivateRequest) (*nodeapi.ActivateResponse, error) {
	peer, err := s.pacedCaller(ctx, "activate", in.GetId())
	if err != nil {
		return nil, statusOf(err)
	}
	activated, err := s.runtime.ActivateWith(ctx, peer, ledger.GrantID(in.GetId()),
		lifecycle.ActivateOptions{NoPreloadFile: in.GetNoPreloadFile()})
	if err != nil {
		return nil, statusOf(err)
	}
	grant, err := s.grant(activated.ID)
	if err != nil {
		return nil, err
	}
	visible, err := s.visible(activated)
	if err != nil {
		return nil, statusOf(err)
	}
	return &nodeapi.ActivateResponse{
		VisibleFiles: visible, Grant: grant, Env: s.runtime.Env(activated), OtherGpusCapped: activated.OthersCapped,
		Devices: s.runtime.Devices(activated.Own), HiddenDevices: s.runtime.Devices(activated.Others),
		Mounts: mountMessages(activated.Mounts), Preload: activated.Preload,
	}, nil
}

// visible are the capability nodes of MIG instances that the program may see.
func (s *Server) visible(activated lifecycle.Activated) ([]*nodeapi.VisibleFiles, error) {
	folder, there := s.runtime.Instances.Files.Folder()
	if !there {
		return nil, nil
	}
	out := &nodeapi.VisibleFiles{Folder: folder}
	if activated.Device.UUID != "" && len(activated.Own) == 1 {
		list, err := s.runtime.Instances.Files.Capabilities(activated.Own[0], activated.Device)
		if err != nil {
			return nil, err
		}
		for _, c := range list {
			out.Files = append(out.Files, c.Host)
		}
	}
	return []*nodeapi.VisibleFiles{out}, nil
}

// Release implements the node API.
func (s *Server) Release(ctx context.Context, in *nodeapi.ReleaseRequest) (*nodeapi.ReleaseResponse, error) {
	peer, err := callerOf(ctx)
	if err != nil {
		return nil, statusOf(err)
	}
	if err := s.runtime.Release(ctx, peer, ledger.GrantID(in.GetId())); err != nil {
		return nil, statusOf(err)
	}
	return &nodeapi.ReleaseResponse{}, nil
}

// Resize implements the node API.
func (s *Server) Resize(ctx context.Context, in *nodeapi.ResizeRequest) (*nodeapi.ResizeResponse, error) {
	peer, err := s.pacedCaller(ctx, "resize", in.GetId())
	if err != nil {
		return nil, statusOf(err)
	}
	id := ledger.GrantID(in.GetId())
	if err := s.runtime.Limit(ctx, peer, id, sharing.Bytes(in.GetMemoryBytes())); err != nil {
		return nil, statusOf(err)
	}
	grant, err := s.grant(id)
	return &nodeapi.ResizeResponse{Grant: grant}, err
}

// Watch implements the node API.
func (s *Server) Watch(in *nodeapi.WatchRequest, out grpc.ServerStreamingServer[nodeapi.GetNodeResponse]) error {
	interval := time.Second
	switch ms := in.GetIntervalMs(); {
	case ms == 0:
	case ms < 100 || ms > 60_000:
		return status.Errorf(codes.InvalidArgument, "interval_ms %d is out of range; write 100 to 60000", ms)
	default:
		interval = time.Duration(ms) * time.Millisecond
	}
	ctx := out.Context()
	for {
		changed := s.runtime.Changed() // before the picture, so that no change falls in between
		p, err := s.pictures.take(ctx)
		if err != nil {
			return err
		}
		if err := out.SendMsg(p.encoded); err != nil {
			return err
		}
		if !s.pause(ctx, pictureGap, nil) || !s.pause(ctx, interval, changed) {
			return nil
		}
	}
}

// pause waits for d or for early; it returns false when the stream is to end.
func (s *Server) pause(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-s.stopping:
		return false
	case <-early:
	case <-t.C:
	}
	return true
}

// grant is one grant as GetNode shows it.
func (s *Server) grant(id ledger.GrantID) (*nodeapi.Grant, error) {
	g, ok := s.runtime.Grant(id)
	if !ok {
		return nil, status.Errorf(codes.NotFound, "grant %q ended", id)
	}
	return grantMessage(g), nil
}
