// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kerf-gpu/kerf/sharing/config"
)

// configOf has these profiles.
func configOf(profiles string) string {
	return "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pools: [{name: default}]\n  profiles: [" +
		profiles + "]\n"
}

// inKerf is a ConfigMap of Kerf's namespace.
func inKerf(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kerf-system", Name: name,
		Labels: map[string]string{"a": "b"}}, Data: data}
}

func TestAmountsOf(t *testing.T) {
	c, err := config.Decode([]byte(configOf(
		"{name: small, memory: 4GiB, percent: 10}, {name: pair, gpuCount: 2}, {name: odd, memory: 1500MiB}, " +
			"{name: team, percent: 25, namespaces: [a-*, '!a-b'], allowPrivileged: true}, {name: odd-team, " +
			"memory: 1500MiB, namespaces: ['[ab]'], allowPrivileged: true}")))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"small": "kerf.dev/gpu-memory-gib=4 kerf.dev/gpu-percent=10", "pair": "kerf.dev/gpu=2",
		"team": "kerf.dev/gpu-percent=25 privileged namespaces:a-*,!a-b", "odd-team": "privileged",
	}
	if d := cmp.Diff(want, amountsOf(c.Profiles())); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// writtenBy are the amounts that the ConfigMap has, and the hash of their config.
func writtenBy(t *testing.T, client *fake.Clientset) (map[string]string, string) {
	t.Helper()
	m, err := client.CoreV1().ConfigMaps("kerf-system").Get(t.Context(), "kerf-profiles", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if m.Labels["a"] != "b" {
		t.Errorf("who made it has lost its labels: %v", m.Labels)
	}
	return m.Data, m.Annotations[hashAnnotation]
}

// The leader alone writes what the applied config says. Nothing is made where nothing was, and what is right is not
// written again.
func TestAmountWriter(t *testing.T) {
	one := candidate("a test", []config.File{{Name: "a.yaml", Data: []byte(configOf("{name: small, memory: 4GiB}"))}})
	small := map[string]string{"small": "kerf.dev/gpu-memory-gib=4"}
	for name, tt := range map[string]struct {
		lease string // of who holds it; - for none
		take  bool
		there map[string]string
		want  map[string]string
	}{
		"no election":       {lease: "-", take: true, want: small},
		"it leads":          {lease: "me_17", take: true, want: small},
		"another one leads": {lease: "meier_17", take: true},
		"no one leads":      {lease: "", take: true},
		"no document yet":   {lease: "me_17", there: small, want: small},
		"a user has changed it": {lease: "me_17", take: true, there: map[string]string{"small": "x", "other": "y"},
			want: small},
		"it is late and looks on": {lease: "other_1", take: true, there: map[string]string{"small": "x"},
			want: map[string]string{"small": "x"}},
		"of a document from before": {lease: "me_17", take: true, there: map[string]string{"gone": "kerf.dev/gpu=1"},
			want: small},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(inKerf("kerf-profiles", tt.there))
			r := unread(t)
			if tt.lease != "-" {
				r.Led(tt.lease)
			}
			if tt.take {
				r.take(t.Context(), one)
			}
			a := amountWriter{newOwned(r, client, "kerf-system/kerf-profiles", "me")}
			for range 2 {
				if err := a.look(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			got, hash := writtenBy(t, client)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			updates := 0
			for _, action := range client.Actions() {
				switch action.GetVerb() {
				case "update":
					updates++
				case "get":
				default:
					t.Errorf("it did %s", action.GetVerb())
				}
			}
			wrote := !cmp.Equal(tt.there, tt.want)
			if wrote != (updates == 1) || updates > 1 || wrote != (hash == one.Hash) {
				t.Errorf("%d times written, by document %q", updates, hash)
			}
		})
	}
	r := unread(t)
	r.take(t.Context(), one)
	a, client := amountWriter{newOwned(r, nil, "kerf-system/kerf-profiles", "me")}, fake.NewClientset()
	a.client = client
	if err := a.look(t.Context()); err == nil || !strings.Contains(err.Error(), "helm upgrade") ||
		len(client.Actions()) != 1 {
		t.Errorf("where there is none: %v, %v", err, client.Actions())
	}
}

// A config is taken from the ConfigMap as soon as that changes. Its profiles' amounts are written then, those of a bad
// one never, and of many in a row the last one's. The file, which is late, counts until the ConfigMap was seen.
func TestRulesFollowTheConfigMap(t *testing.T) {
	client := fake.NewClientset(inKerf("kerf-config",
		map[string]string{"sharing.yaml": configOf("{name: small, memory: 4GiB}")}), inKerf("kerf-profiles", nil))
	r, ctx := running(t)
	if err := r.Watch(ctx, Sources{ConfigMap: "kerf-system/kerf-config", ProfileAmounts: "kerf-system/kerf-profiles"},
		client, "", nil, nil); err != nil {
		t.Fatal(err)
	}
	become := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			got, _ := writtenBy(t, client)
			if got["small"] == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("small has %q, want %q", got["small"], want)
			}
		}
	}
	write := func(text string) {
		t.Helper()
		if _, err := client.CoreV1().ConfigMaps("kerf-system").Update(t.Context(),
			inKerf("kerf-config", map[string]string{"sharing.yaml": text}), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	become("kerf.dev/gpu-memory-gib=4")
	for n := range 20 {
		write(configOf(fmt.Sprintf("{name: small, memory: %dGiB}", 10+n)))
		write("nonsense")
	}
	become("kerf.dev/gpu-memory-gib=29")
	write(configOf("{name: small, memory: 7GiB, mmeory: 8GiB}"))
	write(configOf("{name: small, percent: 50}"))
	become("kerf.dev/gpu-percent=50")
	allowed := []string{"kerf.dev/gpu-memory-gib=4", "kerf.dev/gpu-memory-gib=29", "kerf.dev/gpu-percent=50"}
	for n := range 20 {
		// where this program had to wait for so long
		allowed = append(allowed, fmt.Sprintf("kerf.dev/gpu-memory-gib=%d", 10+n))
	}
	for _, action := range client.Actions() {
		update, ok := action.(clienttesting.UpdateAction)
		if !ok {
			continue
		}
		if m, ok := update.GetObject().(*corev1.ConfigMap); ok && m.Name == "kerf-profiles" &&
			!slices.Contains(allowed, m.Data["small"]) {
			t.Errorf("%q was written", m.Data["small"])
		}
	}
}
