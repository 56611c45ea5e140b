// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/cache"

	"github.com/kerf-gpu/kerf/internal/kube/podspec"
	"github.com/kerf-gpu/kerf/sharing"
)

// TestPodsAgainstAModel changes a few pods at random, and shows some changes at once and some only by the next list.
// Each pod that was ever shown and is over must be reported once, and no other.
func TestPodsAgainstAModel(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := newPods()
		reported := map[string]int{}
		s.onGone(func(uid string) { reported[uid]++ })
		there := map[string]*corev1.Pod{} // by name, as the API server has it
		shown := map[string]bool{}        // UIDs that the store has seen
		next, stale := 0, false           // stale: the store has missed something
		show := func(act func() error, p *corev1.Pod) {
			if stale {
				return // a watch that has missed something ends; only a list goes on
			}
			if err := act(); err != nil {
				t.Fatal(err)
			}
			shown[string(p.UID)] = true
		}
		for range 60 {
			name := fmt.Sprintf("p%d", r.IntN(4))
			p := there[name]
			switch {
			case r.IntN(6) == 0: // a list
				var list []any
				for _, p := range there {
					list = append(list, p)
					shown[string(p.UID)] = true
				}
				if err := s.Replace(list, ""); err != nil {
					t.Fatal(err)
				}
				stale = false
				check(t, seed, s, there, shown, reported)
				continue
			case r.IntN(8) == 0:
				stale = true
			}
			switch {
			case p == nil:
				next++
				p = pod(uid(next), name, corev1.PodPending)
				there[name] = p
				show(func() error { return s.Add(p) }, p)
			case r.IntN(2) == 0:
				delete(there, name)
				obj := any(p)
				if r.IntN(2) == 0 {
					obj = cache.DeletedFinalStateUnknown{Obj: p}
				}
				show(func() error { return s.Delete(obj) }, p)
			default:
				phases := []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}
				if podspec.Terminal(p) {
					phases = phases[1:2] // it never comes back
				}
				p = pod(string(p.UID), name, phases[r.IntN(len(phases))])
				there[name] = p
				show(func() error { return s.Update(p) }, p)
			}
		}
	}
}

func check(t *testing.T, seed uint64, s *pods, there map[string]*corev1.Pod, shown map[string]bool,
	reported map[string]int) {
	t.Helper()
	lives := map[string]bool{}
	for _, p := range there {
		if !podspec.Terminal(p) {
			lives[string(p.UID)] = true
		}
		if got, ok := s.byUID[string(p.UID)]; !ok || got.Terminal != podspec.Terminal(p) {
			t.Fatalf("seed %d: pod %s: %+v, %v", seed, p.Name, got, ok)
		}
	}
	if len(s.byUID) != len(there) || len(s.byName) != len(there) {
		t.Fatalf("seed %d: %d pods and %d names, want %d", seed, len(s.byUID), len(s.byName), len(there))
	}
	for uid := range shown {
		want := 1
		if lives[uid] {
			want = 0
		}
		if reported[uid] != want {
			t.Fatalf("seed %d: pod %s reported %d times, want %d", seed, uid, reported[uid], want)
		}
	}
	if others := slices.DeleteFunc(slices.Collect(maps.Keys(reported)),
		func(uid string) bool { return shown[uid] }); len(others) > 0 {
		t.Fatalf("seed %d: reported %v, which were never shown", seed, others)
	}
}

// Only pods that request something from Kerf, and still run, are reported as such.
func TestAsking(t *testing.T) {
	s := newPods()
	if all, synced := s.asking(); len(all) != 0 || synced {
		t.Errorf("before the first list: %v, %t", all, synced)
	}
	asks := func(n int, phase corev1.PodPhase, resources ...corev1.ResourceName) *corev1.Pod {
		p := pod(uid(n), fmt.Sprintf("p%d", n), phase)
		limits := corev1.ResourceList{}
		for _, r := range resources {
			limits[r] = resource.MustParse("1")
		}
		p.Spec.Containers = []corev1.Container{{Name: "none"},
			{Name: "main", Resources: corev1.ResourceRequirements{Limits: limits}}}
		return p
	}
	list := []any{
		asks(1, corev1.PodRunning, sharing.ResourceMemory), asks(2, corev1.PodPending, "nvidia.com/gpu"),
		asks(3, corev1.PodSucceeded, sharing.ResourceMemory), asks(4, corev1.PodPending, sharing.ResourceGPU,
			corev1.ResourceCPU),
	}
	if err := s.Replace(list, ""); err != nil {
		t.Fatal(err)
	}
	all, synced := s.asking()
	got := map[string]bool{}
	for _, p := range all {
		got[p.UID] = true
	}
	if len(all) != 2 || !got[uid(1)] || !got[uid(4)] || !synced {
		t.Errorf("asking are %v (%t), want pods 1 and 4", all, synced)
	}
}

func TestStoreRefusesWhatIsNoPod(t *testing.T) {
	s := newPods()
	for name, err := range map[string]error{
		"add": s.Add(&corev1.Node{}), "update": s.Update(nil), "delete": s.Delete("x"),
		"replace": s.Replace([]any{&corev1.Node{}}, ""),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if s.isSynced() {
		t.Error("a list that was refused counts as one")
	}
}

func TestLibraryLogsAreQuiet(t *testing.T) {
	for level, want := range map[slog.Level][]string{
		slog.LevelInfo:  nil,
		slog.LevelDebug: {"level=DEBUG msg=failed", "level=DEBUG msg=said"},
	} {
		var out bytes.Buffer
		log := logr.FromSlogHandler(quiet{slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})}).WithName(
			"x").WithValues("a", 1)
		log.Error(nil, "failed")
		log.V(2).Info("said")
		log.V(8).Info("babbled")
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if out.Len() == 0 {
			lines = nil
		}
		if !slices.EqualFunc(lines, want, strings.Contains) {
			t.Errorf("at %s: %q, want %q", level, lines, want)
		}
	}
}
