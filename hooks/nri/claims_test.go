// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// TestClaims: a container that ResourceClaims admit uses a grant that exists. Nothing that its pod says makes one.
func TestClaims(t *testing.T) {
	c := newContainerd(t).start()
	b := plug(t, c.socket(), &fakeNode{}).serving(t)
	b.know(specOf("train", memory("main", sharing.ContainerInit, "10")))
	const uid = "11111111-0000-4000-8000-000000000000"
	one, two := sharing.ClaimRequest(uid, "one"), sharing.ClaimRequest(uid, "two")
	pod := podOf("train", shareSide, "main", "kerf.dev/profile", "large")
	if _, err := c.create(pod, containerOf("main", sharing.HookDevice, two.Device(), one.Device())); err != nil {
		t.Fatal(err)
	}
	ask := b.node.asked["id-main"]
	if !ask.ExistingOnly || ask.Kind != sharing.ContainerInit || !slices.Equal(ask.Requests,
		[]sharing.ResourceRequest{one, two}) ||
		ask.Request.GPUs != 0 || ask.Request.Profile != "" || ask.With != "" {
		t.Errorf("requested %+v", ask)
	}
	if len(b.node.reserved) != 0 {
		t.Errorf("reserved %+v", b.node.reserved)
	}
	if _, err := c.create(pod, containerOf("both", append(guarded(), one.Device())...)); err == nil {
		t.Error("a container with a claim and an amount was created")
	}
	if _, err := c.create(pod, containerOf("bare", one.Device())); err == nil {
		t.Error("a container with a claim and no hook was created")
	}
}

// strongNamespaces have the label that allows privileged containers, if it is "trusted".
type strongNamespaces struct{ fail error }

func (s strongNamespaces) NamespaceLabels(_ context.Context, name string) (map[string]string, error) {
	if name == "trusted" {
		return map[string]string{sharing.LabelPrivileged: "true"}, s.fail
	}
	return nil, s.fail
}

// TestStrongPodsWithClaims: a container of a claim does not start in a pod that could take off the cap. Its namespace
// or its profile can allow it. What is not known is rejected.
func TestStrongPodsWithClaims(t *testing.T) {
	const uid, permitted = "11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000"
	for name, tc := range map[string]struct {
		namespace, uid string
		strong         []string
		unknown        bool
		fail           error
		want           string
	}{
		"plain": {namespace: "default", uid: uid},
		"privileged": {namespace: "default", uid: uid, strong: []string{"hostPID"},
			want: sharing.LabelPrivileged},
		"with the label":   {namespace: "trusted", uid: uid, strong: []string{"hostPID"}},
		"with the profile": {namespace: "default", uid: permitted, strong: []string{"hostPID"}},
		"an unknown pod":   {namespace: "default", uid: uid, unknown: true, want: "has not reported"},
		"an unknown label": {namespace: "trusted", uid: uid, strong: []string{"hostPID"}, fail: sharing.ErrUnavailable,
			want: "is not known"},
		"plain, API is off": {namespace: "default", uid: uid, fail: sharing.ErrUnavailable},
	} {
		ask := sharing.ContainerRequest{Ref: sharing.ContainerRef{Namespace: tc.namespace, Container: "main"},
			Requests: []sharing.ResourceRequest{sharing.ClaimRequest(tc.uid, "gpu")}}
		pod := sharing.Pod{UID: "uid", Strong: tc.strong}
		if tc.unknown {
			pod = sharing.Pod{}
		}
		b := Baseline{Namespaces: strongNamespaces{tc.fail}, Permitted: func(asks []sharing.ResourceRequest) bool {
			return asks[0].ClaimUID() == permitted
		}}
		err := b.check(t.Context(), pod, ask, time.Minute)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// adminNamespaces allow admin access in the namespace "default".
type adminNamespaces struct{ label string }

func (a adminNamespaces) NamespaceLabels(context.Context, string) (map[string]string, error) {
	return map[string]string{"resource.kubernetes.io/admin-access": a.label}, nil
}

// TestAdminAccess: a container that names GPUs is created if its pod has a claim in a namespace with admin access.
func TestAdminAccess(t *testing.T) {
	for name, tc := range map[string]struct {
		label  string
		claims []sharing.PodClaim
		known  bool
		want   string
	}{
		"admin access":   {"true", []sharing.PodClaim{{Name: "gpus", Claim: "one"}}, true, ""},
		"no label":       {"false", []sharing.PodClaim{{Name: "gpus", Claim: "one"}}, true, "without a claim"},
		"no claim":       {"true", nil, true, "without a claim"},
		"an unknown pod": {"true", nil, false, "is not known"},
	} {
		pod := sharing.Pod{}
		if tc.known {
			pod = sharing.Pod{UID: "uid", Claims: tc.claims}
		}
		err := Baseline{Namespaces: adminNamespaces{tc.label}}.checkAdmin(t.Context(), pod, sandbox{}, "main",
			time.Minute)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	c := newContainerd(t).start()
	b := plug(t, c.socket(), &fakeNode{}, func(o *Options) { o.Baseline.Namespaces = adminNamespaces{"true"} })
	b.serving(t)
	spec := specOf("monitor")
	spec.Claims = []sharing.PodClaim{{Name: "gpus", Claim: "one"}}
	b.know(spec)
	if _, err := c.create(podOf("monitor"), containerOf("main", sharing.CDIGPU+"=GPU-a")); err != nil ||
		len(b.node.asked) != 0 {
		t.Errorf("%v, injected %v", err, b.node.asked)
	}
}

// TestPrivilegedClaimIsRejected goes through the container runtime's code: the grant is not used.
func TestPrivilegedClaimIsRejected(t *testing.T) {
	c := newContainerd(t).start()
	b := plug(t, c.socket(), &fakeNode{}, func(o *Options) { o.Baseline.Namespaces = strongNamespaces{} }).serving(t)
	spec := specOf("train")
	spec.Strong = []string{`privileged container "main"`}
	b.know(spec)
	one := sharing.ClaimRequest("11111111-0000-4000-8000-000000000000", "one")
	_, err := c.create(podOf("train"), containerOf("main", sharing.HookDevice, one.Device()))
	if err == nil || !strings.Contains(err.Error(), `privileged container`) || len(b.node.asked) != 0 {
		t.Errorf("%v, injected %v", err, b.node.asked)
	}
	if _, err := c.create(podOf("train"), containerOf("other", guarded()...)); err != nil {
		t.Errorf("a container with limits, which admission checks: %v", err)
	}
}
