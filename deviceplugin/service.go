// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kerf-gpu/kerf/sharing"
)

// service answers kubelet for one resource on one socket.
type service struct {
	pluginapi.UnimplementedDevicePluginServer

	resource string
	board    *board
	gate     func(context.Context) error
	wait     time.Duration
	log      *slog.Logger
	// answered receives the duration of an answer to Allocate; it may be nil.
	answered func(time.Duration)
	// began and ended are called with each stream of the list.
	began, ended func()
}

func options() *pluginapi.DevicePluginOptions {
	return &pluginapi.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}
}

// GetDevicePluginOptions says that PreStartContainer is wanted, and that kubelet shall ask which ids to take.
func (s *service) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return options(), nil
}

// ListAndWatch sends the newest list, and again when it has changed. A slow receiver misses the lists in
// between: nothing is queued for it.
func (s *service) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	s.began()
	defer s.ended()
	for sent := (*list)(nil); ; {
		l, changed := s.board.read()
		if l != nil && !l.equal(sent) {
			if err := stream.Send(message(l)); err != nil {
				return err
			}
			sent = l
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-changed:
		}
	}
}

func message(l *list) *pluginapi.ListAndWatchResponse {
	out := &pluginapi.ListAndWatchResponse{Devices: make([]*pluginapi.Device, 0, len(l.devices))}
	for _, d := range l.devices {
		p := &pluginapi.Device{ID: d.id, Health: pluginapi.Healthy}
		if !d.healthy {
			p.Health = pluginapi.Unhealthy
		}
		if d.numa != NoNUMA {
			p.Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: int64(d.numa)}}}
		}
		out.Devices = append(out.Devices, p)
	}
	return out
}

// Allocate answers each container's ids with CDI names, or nothing at all: InvalidArgument names the id that
// is wrong. It changes nothing.
func (s *service) Allocate(_ context.Context, req *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	start := time.Now()
	out, err := s.allocate(req)
	if s.answered != nil {
		s.answered(time.Since(start))
	}
	return out, err
}

func (s *service) allocate(req *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	l := s.board.cur.Load()
	if l == nil {
		return nil, status.Errorf(codes.Unavailable, "%s: nothing is advertised yet", s.resource)
	}
	asked := 0
	for _, c := range req.GetContainerRequests() {
		asked += len(c.GetDevicesIds())
	}
	if asked == 0 || asked > MaxIDs || len(req.GetContainerRequests()) > MaxIDs {
		err := sharing.Invalid(s.resource, fmt.Sprint(asked), "", "is no number of ids from 1 to %d", MaxIDs)
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	out := &pluginapi.AllocateResponse{}
	for _, c := range req.GetContainerRequests() {
		names, err := l.answer(c.GetDevicesIds())
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		r := &pluginapi.ContainerAllocateResponse{}
		for _, n := range names {
			r.CdiDevices = append(r.CdiDevices, &pluginapi.CDIDevice{Name: n})
		}
		out.ContainerResponses = append(out.ContainerResponses, r)
	}
	return out, nil
}

// GetPreferredAllocation prefers, of ids with a NUMA node, those of the node with the fewest left and enough. The
// agent then assigns GPUs of that node. Within that, it prefers low numbers. Any id is as good as another, but a lost
// GPU takes free ids from the highest number down (decide). Kubelet also counts ids of ended init containers. Keeping
// the two apart means that, after a kubelet restart, a lost GPU does not make it reject a pod on another GPU.
func (s *service) GetPreferredAllocation(_ context.Context, req *pluginapi.PreferredAllocationRequest) (
	*pluginapi.PreferredAllocationResponse, error) {
	out := &pluginapi.PreferredAllocationResponse{}
	for _, c := range req.GetContainerRequests() {
		out.ContainerResponses = append(out.ContainerResponses,
			&pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: s.lowest(c)})
	}
	return out, nil
}

// tightest is the NUMA node with the fewest available ids that are enough, the lowest of several. It is NoNUMA if no
// node has enough, or some ids are given already.
func (l *list) tightest(c *pluginapi.ContainerPreferredAllocationRequest) int {
	if len(c.GetMustIncludeDeviceIDs()) > 0 {
		return NoNUMA
	}
	left := map[int]int{}
	for _, id := range c.GetAvailableDeviceIDs() {
		if n := l.numaOf(id); n != NoNUMA {
			left[n]++
		}
	}
	node := NoNUMA
	for n, count := range left {
		if count >= int(c.GetAllocationSize()) &&
			(node == NoNUMA || cmp.Or(cmp.Compare(count, left[node]), cmp.Compare(n, node)) < 0) {
			node = n
		}
	}
	return node
}

// numaOf is the NUMA node of an id, NoNUMA also for one that is not in the list, and before there is a list.
func (l *list) numaOf(id string) int {
	if l == nil {
		return NoNUMA
	}
	if i, ok := l.at[id]; ok {
		return l.devices[i].numa
	}
	return NoNUMA
}

func (s *service) lowest(c *pluginapi.ContainerPreferredAllocationRequest) []string {
	ids, size := slices.Clone(c.GetMustIncludeDeviceIDs()), int(c.GetAllocationSize())
	l := s.board.cur.Load()
	node := l.tightest(c)
	rest := slices.SortedFunc(slices.Values(c.GetAvailableDeviceIDs()), func(a, b string) int {
		na, knownA := number(s.resource, a)
		nb, knownB := number(s.resource, b)
		return cmp.Or(order(knownA, knownB), order(l.numaOf(a) == node, l.numaOf(b) == node), cmp.Compare(na, nb),
			cmp.Compare(a, b))
	})
	for _, id := range rest {
		if len(ids) >= size {
			break
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// PreStartContainer waits until containers can start. If that takes too long, it returns an error with the cause.
// Kubelet shows the text with the pod and tries again, whatever the pod's restart policy.
func (s *service) PreStartContainer(ctx context.Context, _ *pluginapi.PreStartContainerRequest) (
	*pluginapi.PreStartContainerResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	if err := await(ctx, s.gate); err != nil {
		s.log.Warn("postponed container start", "resource", s.resource, "error", err)
		return nil, status.Errorf(codes.Unavailable, "kerf is not ready to start GPU containers: %v", err)
	}
	return &pluginapi.PreStartContainerResponse{}, nil
}

// gateEvery is how often a gate that answers at once is asked again.
const gateEvery = 250 * time.Millisecond

// await asks the gate until it says yes or ctx ends. The error is the last answer that is not only ctx's own.
func await(ctx context.Context, gate func(context.Context) error) error {
	if gate == nil {
		return nil
	}
	t := time.NewTicker(gateEvery)
	defer t.Stop()
	for reason := error(nil); ; {
		err := gate(ctx)
		if err == nil {
			return nil
		}
		if reason == nil || ctx.Err() == nil {
			reason = err
		}
		select {
		case <-ctx.Done():
			return reason
		case <-t.C:
		}
		if ctx.Err() != nil {
			return reason
		}
	}
}

// device is one id of a list.
type device struct {
	number  int
	id      string
	numa    int
	healthy bool
}

// list is kubelet's list of one resource. It is immutable.
type list struct {
	resource string
	// devices are ordered by number.
	devices []device
	// at is the place of an id in devices.
	at map[string]int
}

func newList(resource string, devices []device) *list {
	l := &list{resource: resource, devices: devices, at: make(map[string]int, len(devices))}
	for i, d := range devices {
		l.at[d.id] = i
	}
	return l
}

// unhealthy reports whether id is on the list and not healthy.
func (l *list) unhealthy(id string) bool {
	if l == nil {
		return false
	}
	i, ok := l.at[id]
	return ok && !l.devices[i].healthy
}

func (l *list) equal(o *list) bool {
	return o != nil && l.resource == o.resource && slices.Equal(l.devices, o.devices)
}

// healthy counts the ids that kubelet may give out.
func (l *list) healthy() int {
	n := 0
	for _, d := range l.devices {
		if d.healthy {
			n++
		}
	}
	return n
}
