// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

// kubeletIDs is kubelet's device manager as its pod resources show it: names, and what was given out so far.
type kubeletIDs struct {
	pods map[string]heldIDs // by namespace/name
	gets []string
	// lists is how often all were asked for; err, where set, is every answer to Get.
	lists int
	err   error
}

func (k *kubeletIDs) Get(_ context.Context, namespace, pod string) (heldIDs, error) {
	k.gets = append(k.gets, pod)
	ids, ok := k.pods[namespace+"/"+pod]
	switch {
	case k.err != nil:
		return nil, k.err
	case !ok:
		return nil, sharing.ErrNotFound
	}
	return maps.Clone(ids), nil
}

func (k *kubeletIDs) List(context.Context) (heldIDs, error) {
	k.lists++
	all := heldIDs{}
	for _, ids := range k.pods {
		maps.Copy(all, ids)
	}
	return all, nil
}

func (k *kubeletIDs) asked() []string {
	gets := k.gets
	k.gets = nil
	return gets
}

// podsKnown is what API server and agent know.
type podsKnown struct {
	pods  []sharing.Pod
	away  bool
	begun []sharing.ContainerRef
}

func (p *podsKnown) on(k podResources) *assignedIDs {
	return &assignedIDs{
		kubelet: k, pods: func() ([]sharing.Pod, bool) { return p.pods, !p.away },
		begun: func() []sharing.ContainerRef { return p.begun },
	}
}

func containerOf(pod, name string) sharing.ContainerRef {
	return sharing.ContainerRef{Namespace: "ns", Pod: pod, Container: name}
}

func memoryIDs(pod, container string, ids ...string) heldIDs {
	return heldIDs{containerOf(pod, container): {sharing.ResourceMemory: ids}}
}

func begunOf(uid, pod, container string) sharing.ContainerRef {
	ref := containerOf(pod, container)
	ref.PodUID = uid
	return ref
}

// asking is a pod whose container main asks for so many GiB.
func asking(uid, name string, gib int, more ...sharing.PodContainer) sharing.Pod {
	main := sharing.PodContainer{Name: "main", Limits: map[string]string{sharing.ResourceMemory: strconv.Itoa(gib)}}
	return sharing.Pod{UID: uid, Namespace: "ns", Name: name, Containers: append([]sharing.PodContainer{main}, more...)}
}

// step is one question and what comes of it.
func (h *assignedIDs) step(t *testing.T, k *kubeletIDs, want heldIDs, gets ...string) {
	t.Helper()
	got, err := h.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("assignedIDs (-want +got):\n%s", diff)
	}
	if asked := k.asked(); !slices.Equal(asked, gets) {
		t.Errorf("kubelet was asked after %v, want %v", asked, gets)
	}
}

// A pod is asked after until it has begun and the answer is complete, and then never again while it is there.
func TestHoldingsRememberWhatIsComplete(t *testing.T) {
	k, p := &kubeletIDs{pods: map[string]heldIDs{}}, &podsKnown{}
	h := p.on(k)
	h.step(t, k, heldIDs{})

	p.pods = []sharing.Pod{asking("1", "a", 2,
		sharing.PodContainer{Name: "init", Kind: sharing.ContainerInit,
			Limits: map[string]string{sharing.ResourceMemory: "3"}},
		sharing.PodContainer{Name: "side", Kind: sharing.ContainerSidecar,
			Limits: map[string]string{sharing.ResourcePercent: "1"}},
		sharing.PodContainer{Name: "plain"})}
	h.step(t, k, heldIDs{}, "a") // bound, and kubelet has not heard of it
	k.pods["ns/a"] = heldIDs{}
	h.step(t, k, heldIDs{}, "a")
	k.pods["ns/a"] = heldIDs{containerOf("a", "side"): {sharing.ResourcePercent: {"u0001"}}}
	h.step(t, k, k.pods["ns/a"], "a") // it is being admitted
	k.pods["ns/a"] = heldIDs{containerOf("a", "side"): {sharing.ResourcePercent: {"u0001"}},
		containerOf("a", "main"): {sharing.ResourceMemory: {"u0001"}}}
	h.step(t, k, k.pods["ns/a"], "a")
	full := heldIDs{containerOf("a", "side"): {sharing.ResourcePercent: {"u0001"}},
		containerOf("a", "main"): {sharing.ResourceMemory: {"u0001", "u0002"}}}
	k.pods["ns/a"] = full
	h.step(t, k, full, "a")
	h.step(t, k, full, "a") // it may be of a pod that had the name before
	p.begun = []sharing.ContainerRef{begunOf("1", "a", "init"), begunOf("1", "a", "main"), begunOf("1", "a", "side")}
	h.step(t, k, full, "a")
	h.step(t, k, full)
	p.begun = nil
	h.step(t, k, full)
	p.begun = []sharing.ContainerRef{begunOf("1", "a", "main")}
	p.pods = nil // it is at its end, and its grants are not
	h.step(t, k, full)
	p.begun = nil
	h.step(t, k, heldIDs{})
	p.begun = []sharing.ContainerRef{begunOf("1", "a", "main")}
	h.step(t, k, full, "a") // forgotten with its last grant
}

// The name of a pod that has ended passes to the next, which has other ids; while both are there kubelet is asked each
// time.
func TestHoldingsOfOneName(t *testing.T) {
	k, p := &kubeletIDs{pods: map[string]heldIDs{"ns/a": memoryIDs("a", "main", "u0001")}}, &podsKnown{}
	h := p.on(k)
	p.pods, p.begun = []sharing.Pod{asking("1", "a", 1)}, []sharing.ContainerRef{begunOf("1", "a", "main")}
	h.step(t, k, memoryIDs("a", "main", "u0001"), "a")
	p.pods = []sharing.Pod{asking("2", "a", 1)}
	h.step(t, k, memoryIDs("a", "main", "u0001"), "a")
	k.pods["ns/a"] = memoryIDs("a", "main", "u0007")
	h.step(t, k, memoryIDs("a", "main", "u0007"), "a")
	p.begun = append(p.begun, begunOf("2", "a", "main"))
	h.step(t, k, memoryIDs("a", "main", "u0007"), "a")
	p.begun = p.begun[1:]
	h.step(t, k, memoryIDs("a", "main", "u0007"), "a")
	h.step(t, k, memoryIDs("a", "main", "u0007"))
}

// Nothing follows from what cannot be read, and what was learned stays.
func TestHoldingsThatCannotBeRead(t *testing.T) {
	k, p := &kubeletIDs{pods: map[string]heldIDs{"ns/a": memoryIDs("a", "main", "u0001"),
		"ns/b": memoryIDs("b", "main", "u0002")}}, &podsKnown{}
	h := p.on(k)
	fails := func(what string) {
		t.Helper()
		if got, err := h.List(t.Context()); !errors.Is(err, sharing.ErrUnavailable) || got != nil || k.lists > 0 {
			t.Errorf("%s: %v, %v, %d lists", what, got, err, k.lists)
		}
	}
	p.pods, p.begun, p.away = []sharing.Pod{asking("1", "a", 1)}, []sharing.ContainerRef{begunOf("1", "a", "main")},
		true
	fails("the API server has not been read")
	p.away = false
	h.step(t, k, memoryIDs("a", "main", "u0001"), "a")
	p.pods = append(p.pods, asking("2", "b", 1))
	k.err = fmt.Errorf("kubelet is away: %w", sharing.ErrUnavailable)
	fails("kubelet is away")
	k.err = nil
	k.asked()
	both := memoryIDs("b", "main", "u0002")
	maps.Copy(both, memoryIDs("a", "main", "u0001"))
	h.step(t, k, both, "b")

	// A kubelet that starts knows no pod yet. One whose sandbox it has made is the sign; one that was only bound is
	// not.
	h, k.pods = p.on(k), map[string]heldIDs{}
	fails("kubelet does not know a pod with a grant")
	p.begun = nil
	k.asked()
	h.step(t, k, heldIDs{}, "a", "b")
	p.pods, p.begun = nil, []sharing.ContainerRef{begunOf("1", "a", "main")}
	h.step(t, k, heldIDs{}, "a") // deleted, and kubelet has forgotten it
}

// A kubelet without that question is asked for its list, and for nothing where no pod can hold an id.
func TestHoldingsOfAnOlderKubelet(t *testing.T) {
	k := &kubeletIDs{pods: map[string]heldIDs{"ns/a": memoryIDs("a", "main", "u0001"),
		"ns/b": memoryIDs("b", "main", "u0002")}, err: sharing.ErrUnsupported}
	p := &podsKnown{}
	h := p.on(k)
	h.step(t, k, heldIDs{})
	if k.lists != 0 {
		t.Errorf("it was requested %d lists, and there is no pod", k.lists)
	}
	p.pods = []sharing.Pod{asking("1", "a", 1)}
	both := memoryIDs("b", "main", "u0002")
	maps.Copy(both, memoryIDs("a", "main", "u0001"))
	h.step(t, k, both, "a")
	if k.lists != 1 {
		t.Errorf("%d lists, want 1", k.lists)
	}
}

// After any sequence of pod events, the cached answer equals kubelet's full answer. A pod is not queried again once it
// runs and all its IDs are known.
func TestHoldingsAgainstModel(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		k, p := &kubeletIDs{pods: map[string]heldIDs{}}, &podsKnown{}
		h := p.on(k)
		next := 0
		knows := map[string]string{} // the UID of the pod that kubelet knows by a name
		told := map[string]bool{}    // names of pods with complete answers
		for step := range 80 {
			name := fmt.Sprintf("p%d", r.IntN(5))
			at := slices.IndexFunc(p.pods, func(q sharing.Pod) bool { return q.Name == name })
			begun := slices.ContainsFunc(p.begun, func(c sharing.ContainerRef) bool { return c.Pod == name })
			admitted := at >= 0 && knows[name] == p.pods[at].UID
			switch {
			case at < 0 && begun: // at its end: it is let go of, and kubelet may know it for a while
				p.begun = slices.DeleteFunc(p.begun, func(c sharing.ContainerRef) bool { return c.Pod == name })
				delete(told, name)
			case at < 0: // the next of that name
				next++
				p.pods = append(p.pods, asking(strconv.Itoa(next), name, 2))
			case begun && r.IntN(3) == 0:
				p.pods = slices.Delete(p.pods, at, at+1)
			case !admitted: // kubelet hears of it
				k.pods["ns/"+name], knows[name] = heldIDs{}, p.pods[at].UID
			case len(k.pods["ns/"+name]) == 0: // and gives it ids
				next++
				k.pods["ns/"+name] = memoryIDs(name, "main", fmt.Sprintf("u%04d", next),
					fmt.Sprintf("u%04d", next+5000))
			case !begun:
				p.begun = append(p.begun, begunOf(p.pods[at].UID, name, "main"))
			}
			got, err := h.List(t.Context())
			if err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			asked := k.asked()
			want, err := p.on(k).List(t.Context())
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Fatalf("seed %d, step %d: %v, (-want +got):\n%s", seed, step, err, diff)
			}
			for _, name := range asked {
				if told[name] {
					t.Fatalf("seed %d, step %d: %s was asked after again", seed, step, name)
				}
			}
			for _, c := range p.begun {
				told[c.Pod] = told[c.Pod] ||
					slices.ContainsFunc(p.pods, func(q sharing.Pod) bool { return q.UID == c.PodUID })
			}
			k.asked()
		}
	}
}
