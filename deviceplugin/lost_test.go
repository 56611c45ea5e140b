// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
	"github.com/kerf-gpu/kerf/test/fakekubelet"
)

// shares admits n containers of one GiB and says that they sit on a GPU.
func shares(t *testing.T, k *fakekubelet.Kubelet, p *Plugin,
	on map[sharing.GPURef]int) map[sharing.GPURef][]sharing.ContainerRef {
	t.Helper()
	holders := map[sharing.GPURef][]sharing.ContainerRef{}
	for gpu, n := range on {
		for i := range n {
			r := ref(fmt.Sprintf("p%d-%s", i, gpu))
			admit(t, k, r, sharing.ResourceMemory, 1)
			// The runtime knows the UID, podresources does not.
			r.PodUID = fmt.Sprint("uid-", i)
			holders[gpu] = append(holders[gpu], r)
		}
	}
	p.SetOwners(holders)
	return holders
}

func idsOf(t *testing.T, k *fakekubelet.Kubelet, refs []sharing.ContainerRef) []string {
	t.Helper()
	held, err := k.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range refs {
		r.PodUID = ""
		out = append(out, held[r][sharing.ResourceMemory]...)
	}
	slices.Sort(out)
	return out
}

// A GPU with ten shares dies: exactly those ten ids turn unhealthy, and the capacity stays. Grants on the other GPU
// keep theirs and may start again. Everything comes back with the GPU.
func TestGPULost(t *testing.T) {
	dir := folder(t)
	k := kubelet(t, dir)
	p := plugin(dir, k)
	set(t, p, all(gpus(0, 1)))
	run(t, p)
	counts(t, k, sharing.ResourceMemory, 20, 20)
	counts(t, k, sharing.ResourceGPU, 2, 2)
	holders := shares(t, k, p, map[sharing.GPURef]int{uuid(0): 10, uuid(1): 6})

	set(t, p, all(lose(gpus(0, 1), 0)))
	counts(t, k, sharing.ResourceMemory, 20, 10)
	counts(t, k, sharing.ResourceGPU, 2, 1)
	counts(t, k, sharing.ResourcePercent, 200, 100)
	if diff := cmp.Diff(idsOf(t, k, holders[uuid(0)]), k.Unhealthy(sharing.ResourceMemory)); diff != "" {
		t.Errorf("unhealthy ids, of the lost GPU's holders (-want +got):\n%s", diff)
	}
	for _, r := range holders[uuid(1)] {
		admit(t, k, r, sharing.ResourceMemory, 1)
	}
	if _, err := k.Admit(t.Context(), holders[uuid(0)][0], sharing.ResourceMemory, 1); err == nil {
		t.Error("a container on the lost GPU was admitted again")
	}
	// Unhealthy ids are answered all the same: kubelet may have chosen them a moment ago.
	if _, err := k.Client(sharing.ResourceMemory).Allocate(t.Context(),
		allocation(k.Unhealthy(sharing.ResourceMemory)...)); err != nil {
		t.Error(err)
	}
	// Their owners go: the loss stays where it was, and new containers fit in addition.
	sick := k.Unhealthy(sharing.ResourceMemory)
	for _, r := range holders[uuid(0)] {
		k.Release(r)
	}
	p.SetOwners(map[sharing.GPURef][]sharing.ContainerRef{uuid(1): holders[uuid(1)]})
	for i := range 4 {
		admit(t, k, ref(fmt.Sprint("new", i)), sharing.ResourceMemory, 1)
	}
	p.SetOwners(map[sharing.GPURef][]sharing.ContainerRef{uuid(1): holders[uuid(1)]})
	if diff := cmp.Diff(sick, k.Unhealthy(sharing.ResourceMemory)); diff != "" {
		t.Errorf("unhealthy ids (-before +after):\n%s", diff)
	}
	set(t, p, all(gpus(0, 1)))
	counts(t, k, sharing.ResourceMemory, 20, 20)
	counts(t, k, sharing.ResourceGPU, 2, 2)
}

// An error of podresources changes nothing. No id of a container that may run well turns unhealthy before the owners
// are known, and known owners stay.
func TestHoldersFail(t *testing.T) {
	dir := folder(t)
	k := kubelet(t, dir)
	h := &podResources{next: broken}
	p := plugin(dir, h)
	p.often = 20 * time.Millisecond
	set(t, p, Inventory{Units: lose(gpus(0, 1), 0), Memory: true})
	run(t, p)
	counts(t, k, sharing.ResourceMemory, 20, 20)
	holders := shares(t, k, p, map[sharing.GPURef]int{uuid(1): 8})
	for range 3 {
		n := h.calls()
		eventually.True(t, "another look", func() bool { return h.calls() > n })
	}
	if sick := k.Unhealthy(sharing.ResourceMemory); len(sick) > 0 {
		t.Fatalf("a guess: %v", sick)
	}
	h.set(k.List)
	counts(t, k, sharing.ResourceMemory, 20, 10)
	for _, id := range idsOf(t, k, holders[uuid(1)]) {
		if slices.Contains(k.Unhealthy(sharing.ResourceMemory), id) {
			t.Errorf("%s is held on the sound GPU, and unhealthy", id)
		}
	}
	sick := k.Unhealthy(sharing.ResourceMemory)
	for _, next := range []func(context.Context) (map[sharing.ContainerRef]map[string][]string, error){broken, hang} {
		h.set(next)
		n := h.calls()
		p.SetOwners(map[sharing.GPURef][]sharing.ContainerRef{uuid(1): holders[uuid(1)]})
		eventually.True(t, "another look", func() bool { return h.calls() > n+1 })
		if diff := cmp.Diff(sick, k.Unhealthy(sharing.ResourceMemory)); diff != "" {
			t.Errorf("unhealthy ids (-before +after):\n%s", diff)
		}
	}
}

// A profile withdraws half of the units while containers have ids above it. Their ids stay as long as they do, also
// over a restart of the agent. No more than the new amount is given out.
func TestInventoryShrinks(t *testing.T) {
	dir := folder(t)
	k := kubelet(t, dir)
	p := plugin(dir, k)
	set(t, p, all(gpus(0, 1)))
	stop := run(t, p)
	counts(t, k, sharing.ResourceMemory, 20, 20)
	holders := shares(t, k, p, map[sharing.GPURef]int{uuid(0): 9})
	held := idsOf(t, k, holders[uuid(0)])
	above := 0
	for _, s := range held {
		if s > "u0010" {
			above++
		}
	}

	set(t, p, Inventory{Units: gpus(0), Memory: true})
	counts(t, k, sharing.ResourceMemory, 10+above, 10)
	stop()
	eventually.True(t, "the old plugin's end", func() bool { return k.Plugins(sharing.ResourceMemory) == 0 })
	p = plugin(dir, k)
	set(t, p, Inventory{Units: gpus(0), Memory: true})
	run(t, p)
	eventually.True(t, "the new plugin", func() bool { return k.Plugins(sharing.ResourceMemory) == 1 })
	counts(t, k, sharing.ResourceMemory, 10+above, 10)
	for _, r := range holders[uuid(0)] {
		admit(t, k, r, sharing.ResourceMemory, 1)
	}
	admit(t, k, ref("last"), sharing.ResourceMemory, 1)
	if _, err := k.Admit(t.Context(), ref("too-many"), sharing.ResourceMemory, 1); err == nil {
		t.Error("more was given out than there is")
	}

	// Not advertised at all any more: what is held stays registered.
	set(t, p, Inventory{Units: gpus(0), Percent: true})
	counts(t, k, sharing.ResourceMemory, 10, 10)
	for _, r := range holders[uuid(0)] {
		admit(t, k, r, sharing.ResourceMemory, 1)
	}
}

// If all is well, kubelet gets one question for every change of the GPUs, and no other. Grants that come and go cause
// none, nor does a repeated inventory or the passing of time.
func TestKubeletIsAskedSeldom(t *testing.T) {
	dir := folder(t)
	k := kubelet(t, dir)
	h := &podResources{next: k.List}
	p := plugin(dir, h)
	p.often, p.seldom = time.Millisecond, time.Millisecond
	set(t, p, Inventory{Units: gpus(0, 1), Memory: true})
	run(t, p)
	counts(t, k, sharing.ResourceMemory, 20, 20)
	for range 100 {
		p.SetOwners(nil)
		set(t, p, Inventory{Units: gpus(0, 1), Memory: true})
	}
	time.Sleep(20 * p.seldom)
	if n := h.calls(); n != 1 {
		t.Errorf("kubelet was asked %d times, want 1", n)
	}
	set(t, p, Inventory{Units: gpus(0, 1, 2), Memory: true})
	counts(t, k, sharing.ResourceMemory, 30, 30)
	if n := h.calls(); n != 2 {
		t.Errorf("kubelet was asked %d times, want 2", n)
	}
}
