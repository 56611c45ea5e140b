// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
)

func allocation(ids ...string) *pluginapi.AllocateRequest {
	return &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}}}
}

// Whatever is asked, the answer is all or nothing and says what is wrong.
func TestAllocateRefuses(t *testing.T) {
	dir := folder(t)
	k := kubelet(t, dir)
	p := plugin(dir, k)
	set(t, p, Inventory{Units: []Unit{{GPU: uuid(0), GiB: MaxIDs, NUMA: NoNUMA}}, Memory: true})
	run(t, p)
	counts(t, k, sharing.ResourceMemory, MaxIDs, MaxIDs)
	c := k.Client(sharing.ResourceMemory)
	every := slices.Sorted(maps.Keys(k.Devices(sharing.ResourceMemory)))
	for name, tc := range map[string]struct {
		req  *pluginapi.AllocateRequest
		code codes.Code
		text string
	}{
		"one":                  {req: allocation("u0001")},
		"as many as there are": {req: allocation(every...)},
		"more than the most": {req: allocation(append(every, "u0001")...), code: codes.InvalidArgument,
			text: `"10001"`},
		"no containers": {req: &pluginapi.AllocateRequest{}, code: codes.InvalidArgument, text: `"0"`},
		"no ids":        {req: allocation(), code: codes.InvalidArgument, text: `"0"`},
		"unknown":       {req: allocation("u0001", "u0000"), code: codes.InvalidArgument, text: `"u0000"`},
		"twice":         {req: allocation("u0007", "u0007"), code: codes.InvalidArgument, text: `"u0007"`},
		"a second container that is wrong": {
			req: &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{
				{DevicesIds: []string{"u0001"}}, {DevicesIds: []string{"x"}}}},
			code: codes.InvalidArgument, text: `"x"`,
		},
		"a second container without ids": {
			req: &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{
				{DevicesIds: []string{"u0001"}}, {}}},
			code: codes.InvalidArgument, text: "without an id",
		},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := c.Allocate(t.Context(), tc.req)
			if status.Code(err) != tc.code || err != nil && (!strings.Contains(err.Error(), tc.text) ||
				!strings.Contains(err.Error(), sharing.ResourceMemory)) {
				t.Errorf("error %v, want %v with %q", err, tc.code, tc.text)
			}
			if (err == nil) != (len(resp.GetContainerResponses()) == 1) {
				t.Errorf("error %v and response %v", err, resp)
			}
		})
	}
}

// Kubelet is to take the lowest ids: the highest are the first that a lost GPU takes.
func TestLowestIDsFirst(t *testing.T) {
	dir := folder(t)
	k := kubelet(t, dir)
	p := plugin(dir, k)
	set(t, p, all(gpus(0, 0)))
	run(t, p)
	counts(t, k, sharing.ResourceMemory, 20, 20)
	c := k.Client(sharing.ResourceMemory)
	if o, err := c.GetDevicePluginOptions(t.Context(), &pluginapi.Empty{}); err != nil ||
		!o.GetGetPreferredAllocationAvailable() {
		t.Errorf("options %v, %v", o, err)
	}
	for name, tc := range map[string]struct {
		available, must []string
		size            int32
		want            []string
	}{
		"the lowest": {available: []string{"u0012", "u0003", "u0020", "u0007"}, size: 2,
			want: []string{"u0003", "u0007"}},
		"what it must have": {available: []string{"u0003", "u0012", "u0007"}, must: []string{"u0012"}, size: 2,
			want: []string{"u0012", "u0003"}},
		"all that it has":    {available: []string{"u0002", "u0001"}, size: 2, want: []string{"u0001", "u0002"}},
		"fewer than it asks": {available: []string{"u0002"}, size: 2, want: []string{"u0002"}},
		"unknown ones last":  {available: []string{"gone", "u0002"}, size: 1, want: []string{"u0002"}},
		"none":               {size: 2},
	} {
		t.Run(name, func(t *testing.T) {
			one := &pluginapi.ContainerPreferredAllocationRequest{AvailableDeviceIDs: tc.available,
				MustIncludeDeviceIDs: tc.must, AllocationSize: tc.size}
			pref, err := c.GetPreferredAllocation(t.Context(),
				&pluginapi.PreferredAllocationRequest{
					ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{one}})
			if err != nil || len(pref.GetContainerResponses()) != 1 {
				t.Fatalf("%v, %v", pref, err)
			}
			if got := pref.GetContainerResponses()[0].GetDeviceIDs(); !slices.Equal(got, tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// Of ids with NUMA nodes those of one node are taken where one has enough, of several the one with the fewest left.
func TestPreferredOfOneNode(t *testing.T) {
	dir := folder(t)
	k := kubelet(t, dir)
	p := plugin(dir, k)
	set(t, p, all(gpus(0, 0, 0, 1, 1, 1, NoNUMA)))
	run(t, p)
	counts(t, k, sharing.ResourceGPU, 7, 7)
	ids := map[int][]string{}
	for id, d := range k.Devices(sharing.ResourceGPU) {
		node := NoNUMA
		if n := d.GetTopology().GetNodes(); len(n) > 0 {
			node = int(n[0].GetID())
		}
		ids[node] = append(ids[node], id)
	}
	for _, of := range ids {
		slices.Sort(of)
	}
	zero, one, none := ids[0], ids[1], ids[NoNUMA]
	for name, tc := range map[string]struct {
		available, must []string
		size            int32
		want            []string
	}{
		"two alike: the first":  {available: slices.Concat(zero, one, none), size: 1, want: zero[:1]},
		"the fewer":             {available: slices.Concat(zero, one[1:], none), size: 1, want: one[1:2]},
		"the fewer are too few": {available: slices.Concat(zero, one[2:], none), size: 2, want: zero[:2]},
		"a node that is full":   {available: slices.Concat(one, none), size: 3, want: one},
		"more than a node has": {available: slices.Concat(none, one[2:], zero), size: 4,
			want: slices.Sorted(slices.Values(slices.Concat(zero, one[2:], none)))[:4]},
		"next to what it has": {available: slices.Concat(zero, one[1:]), must: one[1:2], size: 2,
			want: []string{one[1], zero[0]}},
		"those that kubelet has aligned": {available: one, size: 2, want: one[:2]},
	} {
		t.Run(name, func(t *testing.T) {
			ask := &pluginapi.ContainerPreferredAllocationRequest{AvailableDeviceIDs: tc.available,
				MustIncludeDeviceIDs: tc.must, AllocationSize: tc.size}
			pref, err := k.Client(sharing.ResourceGPU).GetPreferredAllocation(t.Context(),
				&pluginapi.PreferredAllocationRequest{
					ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{ask}})
			if err != nil || len(pref.GetContainerResponses()) != 1 {
				t.Fatalf("%v, %v", pref, err)
			}
			if got := pref.GetContainerResponses()[0].GetDeviceIDs(); !slices.Equal(got, tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// The same IDs, again and in any order, give the same answer, and kubelet gets no change.
func TestAllocateAgain(t *testing.T) {
	dir := folder(t)
	k := kubelet(t, dir)
	p := plugin(dir, k)
	set(t, p, all(gpus(0, 1, 1)))
	run(t, p)
	counts(t, k, sharing.ResourceGPU, 3, 3)
	updates := k.Updates(sharing.ResourceGPU)
	var want []string
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 50 {
		ids := []string{"g01", "g02", "g03"}
		r.Shuffle(len(ids), func(a, b int) { ids[a], ids[b] = ids[b], ids[a] })
		resp, err := k.Client(sharing.ResourceGPU).Allocate(t.Context(), allocation(ids...))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range resp.GetContainerResponses()[0].GetCdiDevices() {
			got = append(got, d.GetName())
		}
		if i == 0 {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("call %d (-first +this):\n%s", i, diff)
		}
	}
	if n := k.Updates(sharing.ResourceGPU); n != updates {
		t.Errorf("%d lists were sent meanwhile", n-updates)
	}
}

// allocations asks for 64 containers at once, and waits for the answers.
func allocations(t *testing.T, c pluginapi.DevicePluginClient) {
	t.Helper()
	var calls sync.WaitGroup
	for i := range 64 {
		calls.Go(func() {
			var ids []string
			for n := range 20 {
				ids = append(ids, id(sharing.ResourceMemory, 20*i+n+1))
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if _, err := c.Allocate(ctx, allocation(ids...)); err != nil {
				t.Errorf("allocate: %v", err)
			}
		})
	}
	calls.Wait()
}

// Everything else hangs: podresources, and the gate with as many starts in it as a node has pods. Allocate is answered
// before any of them ends.
func TestAllocateWhileAllElseHangs(t *testing.T) {
	const pods = 128
	dir := folder(t)
	k := kubelet(t, dir)
	h := &podResources{next: k.List}
	var waiting atomic.Int32
	p := plugin(dir, h, func(o *Options) {
		o.ReadinessGate = func(ctx context.Context) error {
			waiting.Add(1)
			<-ctx.Done()
			return ctx.Err()
		}
	})
	set(t, p, Inventory{Units: []Unit{{GPU: uuid(0), GiB: 1000}, {GPU: uuid(1), GiB: 1000}}, Memory: true})
	run(t, p)
	counts(t, k, sharing.ResourceMemory, 2000, 2000)
	c := k.Client(sharing.ResourceMemory)
	// It does not even heed its deadline.
	hanging, release := context.WithCancel(context.Background())
	t.Cleanup(release)
	h.set(func(context.Context) (map[sharing.ContainerRef]map[string][]string, error) {
		<-hanging.Done()
		return nil, errors.New("at last")
	})
	looks := h.calls()
	set(t, p, Inventory{Units: lose([]Unit{{GPU: uuid(0), GiB: 1000}, {GPU: uuid(1), GiB: 1000}}, 0), Memory: true})
	eventually.True(t, "a look that hangs", func() bool { return h.calls() > looks })

	starts, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var ended atomic.Int32
	for range pods {
		wg.Go(func() {
			if _, err := c.PreStartContainer(starts, &pluginapi.PreStartContainerRequest{}); err == nil {
				t.Error("a start came through a closed gate")
			}
			ended.Add(1)
		})
	}
	eventually.True(t, "all starts wait", func() bool { return waiting.Load() == pods })
	allocations(t, c)
	if n := ended.Load(); n > 0 {
		t.Errorf("%d of %d starts ended before Allocate was answered", n, pods)
	}
	end()
	release()
	wg.Wait()
}

// Allocate waits for no lock of the plugin: it answers while all of them are held.
func TestAllocateTakesNoLock(t *testing.T) {
	dir := folder(t)
	k := kubelet(t, dir)
	p := plugin(dir, k)
	set(t, p, Inventory{Units: gpus(0), Memory: true})
	run(t, p)
	counts(t, k, sharing.ResourceMemory, 10, 10)
	endpoints := p.all()
	p.mu.Lock()
	defer p.mu.Unlock()
	var svc *service
	for _, e := range endpoints {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.svc.board.mu.Lock()
		defer e.svc.board.mu.Unlock()
		if e.svc.resource == sharing.ResourceMemory {
			svc = &e.svc
		}
	}
	answered := make(chan error, 1)
	go func() {
		_, err := svc.Allocate(context.Background(), allocation(id(sharing.ResourceMemory, 1)))
		answered <- err
	}()
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("Allocate waits for a lock that a decision, a list or a registration may hold")
	}
}

func TestPreStart(t *testing.T) {
	dir := folder(t)
	k := kubelet(t, dir)
	var mu sync.Mutex
	reason := errors.New("NRI is not connected")
	p := plugin(dir, k, func(o *Options) {
		o.ReadinessGate = func(context.Context) error { mu.Lock(); defer mu.Unlock(); return reason }
		o.preStart = 100 * time.Millisecond
	})
	set(t, p, Inventory{Units: gpus(0), Memory: true})
	run(t, p)
	counts(t, k, sharing.ResourceMemory, 10, 10)
	admit(t, k, ref("a"), sharing.ResourceMemory, 1)
	err := k.Prepare(t.Context(), ref("a"))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "NRI is not connected") {
		t.Errorf("not ready: %v", err)
	}
	mu.Lock()
	reason = nil
	mu.Unlock()
	if err := k.Prepare(t.Context(), ref("a")); err != nil {
		t.Errorf("ready: %v", err)
	}
}

// A gate may wait by itself, or say at once what is missing; the reason survives the deadline in both cases.
func TestAwait(t *testing.T) {
	slow := errors.New("the driver does not answer")
	calls := 0
	for name, tc := range map[string]struct {
		gate func(context.Context) error
		err  error
	}{
		"no gate": {},
		"open":    {gate: func(context.Context) error { return nil }},
		"opens": {gate: func(context.Context) error {
			if calls++; calls < 3 {
				return slow
			}
			return nil
		}},
		"closed":           {gate: func(context.Context) error { return slow }, err: slow},
		"waits, then says": {gate: func(ctx context.Context) error { <-ctx.Done(); return slow }, err: slow},
		"waits, says naught": {gate: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			err: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			limit := 3 * gateEvery
			if name == "opens" {
				limit = patience
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := await(ctx, tc.gate); !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Errorf("%v, want %v", err, tc.err)
			}
		})
	}
	// The reason of an earlier answer is worth more than the bare end of the time.
	first := true
	ctx, cancel := context.WithTimeout(t.Context(), 2*gateEvery)
	defer cancel()
	err := await(ctx, func(ctx context.Context) error {
		if first {
			first = false
			return slow
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, slow) {
		t.Errorf("%v, want %v", err, slow)
	}
}

// The plugin stops while starts wait: they are let go, and nothing is left.
func TestStopWhileStartsWait(t *testing.T) {
	dir := folder(t)
	k := kubelet(t, dir)
	waiting := make(chan struct{}, 1)
	p := plugin(dir, k, func(o *Options) {
		o.ReadinessGate = func(ctx context.Context) error {
			select {
			case waiting <- struct{}{}:
			default:
			}
			<-ctx.Done()
			return ctx.Err()
		}
	})
	set(t, p, Inventory{Units: gpus(0), Memory: true})
	stop := run(t, p)
	counts(t, k, sharing.ResourceMemory, 10, 10)
	admit(t, k, ref("a"), sharing.ResourceMemory, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := k.Prepare(context.Background(), ref("a")); err == nil {
			t.Error("a start came through a closed gate")
		}
	})
	<-waiting
	stop()
	wg.Wait()
}

// A receiver that takes no lists misses those in between, and gets the newest one.
func TestSlowReceiver(t *testing.T) {
	dir := folder(t)
	k := kubelet(t, dir)
	slow := make(chan struct{})
	k.Slow(slow)
	p := plugin(dir, nil)
	units := []Unit{{GPU: uuid(0), GiB: 5000}, {GPU: uuid(1), GiB: 4999}}
	set(t, p, Inventory{Units: units, Memory: true})
	run(t, p)
	eventually.True(t, "registration", func() bool { return k.Plugins(sharing.ResourceMemory) == 1 })
	const changes = 60
	for i := range changes {
		units[0].Lost = i%2 == 0
		set(t, p, Inventory{Units: units, Memory: true})
		eventually.True(t, "the decision", func() bool {
			return p.Status()[0].Healthy == map[bool]int{true: 4999, false: 9999}[units[0].Lost]
		})
	}
	units[1].Lost = true
	set(t, p, Inventory{Units: units, Memory: true})
	eventually.True(t, "the decision", func() bool { return p.Status()[0].Healthy == 5000 })
	k.Slow(nil)
	close(slow)
	counts(t, k, sharing.ResourceMemory, 9999, 5000)
	if n := k.Updates(sharing.ResourceMemory); n > changes/4 {
		t.Errorf("%d lists were kept for a receiver that took none", n)
	}
}

// Only kubelet's IDs distinguish the names of many kinds of container.
func BenchmarkAllocate(b *testing.B) {
	dir := folder(b)
	k := kubelet(b, dir)
	p := plugin(dir, k)
	set(b, p, Inventory{Units: []Unit{{GPU: uuid(0), GiB: 1536}}, Memory: true})
	run(b, p)
	for end := time.Now().Add(patience); k.Client(sharing.ResourceMemory) == nil ||
		k.Updates(sharing.ResourceMemory) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.Fatal("not registered")
		}
	}
	c := k.Client(sharing.ResourceMemory)
	var ids []string
	for n := range 80 {
		ids = append(ids, id(sharing.ResourceMemory, n+1))
	}
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		if _, err := c.Allocate(b.Context(), allocation(ids...)); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
