// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// heard collects what OnPodRemoved and Resync tell.
type heard struct {
	mu   sync.Mutex
	uids []string
}

func (h *heard) tell(uid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.uids = append(h.uids, uid)
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.uids)
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestOpenRefuses(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	broken := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"no node":           {Kubeconfig: broken},
		"not in a pod":      {Node: node},
		"no kubeconfig":     {Node: node, Kubeconfig: broken + "-is-not-there"},
		"broken kubeconfig": {Node: node, Kubeconfig: broken},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Open(o); !errors.Is(err, sharing.ErrInvalid) {
				t.Errorf("Open: %v, want ErrInvalid", err)
			}
		})
	}
}

func TestPodWaitsForItsPod(t *testing.T) {
	a := newAPI(t)
	other := pod(uid(9), "elsewhere", corev1.PodRunning)
	other.Spec.NodeName = "node-2"
	a.put(other)
	c := a.client(t, true)

	found := make(chan sharing.Pod, 1)
	go func() {
		p, _, _ := c.Pod(within(t, time.Minute), uid(1))
		found <- p
	}()
	eventually.True(t, "the pods are read", c.Synced)
	a.put(pod(uid(1), "p", corev1.PodPending))
	if p := <-found; p.Name != "p" || p.UID != uid(1) {
		t.Errorf("Pod = %+v, want p", p)
	}
	if _, ok, err := c.Pod(within(t, 10*time.Millisecond), uid(9)); ok || err != nil {
		t.Errorf("Pod of another node: %v, %v; want none", ok, err)
	}
}

func TestPodsBeforeTheAPIServerAnswers(t *testing.T) {
	a := newAPI(t)
	a.put(pod(uid(1), "p", corev1.PodRunning))
	a.away(fails)
	c := a.client(t, true)
	if _, _, err := c.Pod(within(t, 50*time.Millisecond), uid(1)); !errors.Is(err, sharing.ErrUnavailable) ||
		c.Synced() {
		t.Errorf("Pod: %v, synced %v; want ErrUnavailable, false", err, c.Synced())
	}
	a.away(nil)
	if _, ok, err := c.Pod(within(t, time.Minute), uid(1)); !ok || err != nil {
		t.Errorf("Pod when the API server is there: %v, %v", ok, err)
	}
}

func TestOnGoneTellsEachEndOnce(t *testing.T) {
	a := newAPI(t)
	for i, name := range []string{"runs", "succeeds", "fails", "is-deleted", "is-remade", "had-failed", "goes-unseen",
		"is-remade-unseen"} {
		phase := corev1.PodRunning
		if name == "had-failed" {
			phase = corev1.PodFailed
		}
		a.put(pod(uid(i), name, phase))
	}
	c := a.client(t, false)
	var h heard
	c.OnPodRemoved(h.tell)
	a.run(t, c)
	want := []string{uid(5)}
	expect := func(what string, more ...string) {
		t.Helper()
		want = append(want, more...)
		eventually.True(t, what, func() bool { return len(h.all()) >= len(want) })
		if got := h.all(); !slices.Equal(got, want) {
			t.Fatalf("%s: reported %v, want %v", what, got, want)
		}
	}
	expect("one had failed before")
	eventually.True(t, "the watch begins", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return len(a.watches) == 1 })
	a.put(pod(uid(1), "succeeds", corev1.PodSucceeded))
	expect("one succeeds", uid(1))
	a.put(pod(uid(2), "fails", corev1.PodFailed))
	expect("one fails", uid(2))
	a.remove("team", "fails")
	a.remove("team", "is-deleted")
	expect("one is deleted, after one that had failed", uid(3))
	a.put(pod(uid(14), "is-remade", corev1.PodPending))
	expect("a name passes to another pod", uid(4))

	a.away(fails)
	a.remove("team", "goes-unseen")
	expect("nothing is reported while the API server is away")
	a.away(nil)
	expect("one went meanwhile", uid(6))

	a.away(fails)
	a.put(pod(uid(17), "is-remade-unseen", corev1.PodPending))
	a.away(nil)
	expect("a name passed on meanwhile", uid(7))
	if _, ok, err := c.Pod(within(t, time.Minute), uid(0)); !ok || err != nil {
		t.Errorf("the pod that runs: %v, %v", ok, err)
	}
}

func TestGone(t *testing.T) {
	a := newAPI(t)
	a.put(pod(uid(1), "runs", corev1.PodRunning))
	a.put(pod(uid(2), "failed", corev1.PodFailed))
	const static, later = "0123456789abcdef0123456789abcdef", "ffffffffffffffffffffffffffffffff"
	mirror := pod(uid(3), "static", corev1.PodRunning)
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: static}
	a.put(mirror)
	c := a.client(t, false)
	ref := func(uid, name string) sharing.ContainerRef {
		return sharing.ContainerRef{PodUID: uid, Namespace: "team", Pod: name}
	}
	for name, tc := range map[string]struct {
		ref  sharing.ContainerRef
		gone bool
		want error
	}{
		"runs":                               {ref(uid(1), "runs"), false, nil},
		"another has its name":               {ref(uid(8), "runs"), true, nil},
		"failed":                             {ref(uid(2), "failed"), true, nil},
		"is not there":                       {ref(uid(4), "no-one"), true, nil},
		"a static pod with its mirror":       {ref(static, "static"), false, nil},
		"a static pod with another mirror":   {ref(later, "static"), true, nil},
		"a static pod without a mirror":      {ref(later, "no-one"), false, nil},
		"a static pod whose name is a pod's": {ref(static, "runs"), false, nil},
		"no UID":                             {ref("", "runs"), false, sharing.ErrInvalid},
		"no name":                            {ref(uid(1), ""), false, sharing.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			gone, err := c.PodRemoved(within(t, time.Minute), tc.ref)
			if gone != tc.gone || !errors.Is(err, tc.want) {
				t.Errorf("Gone(%v) = %v, %v; want %v, %v", tc.ref, gone, err, tc.gone, tc.want)
			}
		})
	}
}

func TestGoneConcludesNothingFromErrors(t *testing.T) {
	a := newAPI(t)
	c := a.client(t, false)
	ref := sharing.ContainerRef{PodUID: uid(1), Namespace: "team", Pod: "p"}
	for name, tc := range map[string]struct {
		broken http.HandlerFunc
		want   error
	}{
		"an error inside": {fails, sharing.ErrUnavailable},
		"a proxy's 404":   {proxied, sharing.ErrUnavailable},
		"an API server without pods yet": {func(w http.ResponseWriter, _ *http.Request) {
			status(w, 404, "NotFound",
				nil)
		}, sharing.ErrUnavailable},
		"no answer": {hang, sharing.ErrUnavailable},
		"denied": {func(w http.ResponseWriter, _ *http.Request) { status(w, 403, "Forbidden", nil) },
			sharing.ErrDenied},
		"another pod": {func(w http.ResponseWriter, _ *http.Request) {
			answer(w, 200, pod(uid(1), "q", corev1.PodFailed))
		}, sharing.ErrUnavailable},
		"an empty answer": {func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, struct{}{}) },
			sharing.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			a.away(tc.broken)
			limit := time.Minute
			if name == "no answer" {
				limit = time.Second
			}
			if gone, err := c.PodRemoved(within(t, limit), ref); gone || !errors.Is(err, tc.want) {
				t.Errorf("Gone = %v, %v; want false, %v", gone, err, tc.want)
			}
		})
	}
	t.Run("no one listens", func(t *testing.T) {
		a.server.Close()
		if gone, err := c.PodRemoved(within(t, time.Minute), ref); gone || !errors.Is(err, sharing.ErrUnavailable) {
			t.Errorf("Gone = %v, %v; want false, ErrUnavailable", gone, err)
		}
	})
	closeIdle(c.http)
}

func TestResync(t *testing.T) {
	a := newAPI(t)
	a.put(pod(uid(1), "runs", corev1.PodRunning))
	a.put(pod(uid(2), "failed", corev1.PodFailed))
	unbound := pod(uid(4), "not-seen-here", corev1.PodRunning)
	unbound.Spec.NodeName = ""
	a.put(unbound)
	c := a.client(t, true)
	claims := []sharing.ContainerRef{
		{PodUID: uid(1), Namespace: "team", Pod: "runs", Container: "main"},
		{PodUID: uid(2), Namespace: "team", Pod: "failed", Container: "a"},
		{PodUID: uid(2), Namespace: "team", Pod: "failed", Container: "b"},
		{PodUID: uid(3), Namespace: "team", Pod: "deleted", Container: "main"},
		{PodUID: uid(4), Namespace: "team", Pod: "not-seen-here", Container: "main"},
	}
	gone := []string{uid(2), uid(3)}

	var first heard
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Resync(ctx, func() []sharing.ContainerRef { return claims }, first.tell)
	}()
	eventually.True(t, "the round after the sync", func() bool { return len(first.all()) == 2 })
	cancel()
	<-done
	if got := first.all(); !slices.Equal(got, gone) {
		t.Errorf("reported %v, want %v", got, gone)
	}

	a.away(fails)
	known := map[string]bool{}
	var h heard
	c.resync(within(t, time.Minute), claims, known, h.tell)
	if got := h.all(); got != nil {
		t.Errorf("without an API server: reported %v, want nothing", got)
	}
	a.away(nil)
	before := a.asked("failed")
	for range 2 {
		c.resync(within(t, time.Minute), claims, known, h.tell)
	}
	if got := h.all(); !slices.Equal(got, append(gone, gone...)) {
		t.Errorf("two rounds: reported %v, want each twice", got)
	}
	if n := a.asked("failed") - before; n != 1 {
		t.Errorf("a pod that is gone was asked after %d times, want once", n)
	}
	if n := a.asked("runs"); n != 0 {
		t.Errorf("a pod that runs was asked after %d times", n)
	}
	c.resync(within(t, time.Minute), claims[:1], known, h.tell)
	if len(known) != 0 {
		t.Errorf("pods without claims are remembered: %v", known)
	}
}

func (a *api) asked(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gets[name]
}
