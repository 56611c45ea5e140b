// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

const shareSide = "share-cap-with.kerf.dev/side"

// Containers that share a cap are reserved together at the sandbox and again with each of them. Each gets what kubelet
// admitted it with.
func TestSharedCap(t *testing.T) {
	c := newContainerd(t).start()
	b := plug(t, c.socket(), &fakeNode{}).serving(t)
	b.know(specOf("train", memory("main", sharing.ContainerApp, "10"), memory("side", sharing.ContainerApp, "4"),
		memory("other", sharing.ContainerApp, "1")))
	pod := podOf("train", shareSide, "main")
	if err := c.runPod(pod); err != nil {
		t.Fatal(err)
	}
	if _, err := c.create(pod, containerOf("main", guarded()...)); err != nil {
		t.Fatal(err)
	}
	// not what the spec says
	if _, err := c.create(pod, containerOf("side", sharing.HookDevice, "kerf.dev/ask=gpu-memory-gib:3")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.create(pod, containerOf("other", sharing.HookDevice, "kerf.dev/ask=gpu-memory-gib:1")); err != nil {
		t.Fatal(err)
	}
	grants := b.node.reserved
	if len(grants) != 3 {
		t.Fatalf("%d grants of pods, want those of the sandbox, main and side", len(grants))
	}
	for i, want := range []struct {
		members   int
		sharedCap sharing.Bytes
	}{{3, 14 * sharing.GiB}, {2, 14 * sharing.GiB}, {2, 13 * sharing.GiB}} {
		if len(grants[i]) != want.members {
			t.Errorf("grant %d is of %d containers, want %d", i, len(grants[i]), want.members)
		}
		for _, a := range grants[i] {
			if shares := a.Ref.Container != "other"; shares && a.SharedCap.Memory != want.sharedCap || !shares &&
				a.SharedCap.GPUs != 0 || (a.With == "main") != (a.Ref.Container == "side") {
				t.Errorf("grant %d: %s with %q asks together for %v, want %v", i, a.Ref.Container, a.With, a.SharedCap,
					want.sharedCap)
			}
		}
	}
	for name, want := range map[string]sharing.Bytes{"main": 10 * sharing.GiB, "side": 3 * sharing.GiB,
		"other": sharing.GiB} {
		if ask := b.node.asked["id-"+name]; ask.Request.Memory != want ||
			(ask.SharedCap.GPUs > 0) != (name != "other") {
			t.Errorf("%s is given %v of %v", name, ask.Request, ask.SharedCap)
		}
	}
}

// What cannot share a cap is rejected by name. A container of an unknown pod gets its own cap, or nothing: none starts
// with another cap than the pod says.
func TestSharedCapRefused(t *testing.T) {
	c := newContainerd(t).start()
	b := plug(t, c.socket(), &fakeNode{}).serving(t)
	b.know(specOf("train", memory("main", sharing.ContainerApp, "10"), memory("side", sharing.ContainerApp, "4")))
	for value, want := range map[string]string{
		"mian": `annotation share-cap-with.kerf.dev/side "mian" is no container of this pod`,
		"side": "names the container itself"} {
		if err := c.runPod(podOf("train", shareSide, value)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", value, err)
		}
	}
	b.node.grant = func(context.Context, []sharing.ContainerRequest) error { return sharing.ErrExhausted }
	if _, err := c.create(podOf("train", shareSide, "main"), containerOf("side", guarded()...)); err == nil ||
		!strings.Contains(err.Error(), "kubelet tries again") || len(b.node.asked) > 0 {
		t.Errorf("not enough free for all: %v, injected %v", err, b.node.asked)
	}
	unmanaged := podOf("unmanaged", shareSide, "main")
	for _, name := range []string{"main", "side"} {
		if _, err := c.create(unmanaged, containerOf(name, guarded()...)); err != nil {
			t.Fatal(err)
		}
		if ask := b.node.asked["id-"+name]; !ask.ExistingOnly || (ask.With == "main") != (name == "side") {
			t.Errorf("%s of a pod that is not known requests more than what it has: %+v", name, ask)
		}
	}
}
