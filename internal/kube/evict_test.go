// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/sharing"
)

// A pod is deleted by its UID: never another one that has its name by now.
func TestEvict(t *testing.T) {
	of := func(n int) sharing.ContainerRef {
		return sharing.ContainerRef{PodUID: uid(n), Namespace: "team", Pod: "p", Container: "main"}
	}
	static := of(1)
	static.PodUID = "0123456789abcdef0123456789abcdef"
	for name, tc := range map[string]struct {
		ref    sharing.ContainerRef
		denied bool
		none   bool
		want   error
		text   string
		left   bool
	}{
		"it goes":              {ref: of(1)},
		"it is gone":           {ref: of(1), none: true},
		"another has its name": {ref: of(2), left: true},
		"there is no right to it": {ref: of(1), denied: true, want: sharing.ErrDenied, text: "evict-over-cap.yaml",
			left: true},
		"a static pod": {ref: static, want: sharing.ErrUnsupported, text: "file", left: true},
		"of no pod":    {ref: sharing.ContainerRef{}, want: sharing.ErrInvalid, left: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			if a.denied = tc.denied; !tc.none {
				a.put(pod(uid(1), "p", corev1.PodRunning))
			}
			c := a.client(t, false)
			err := c.Evict(context.Background(), tc.ref)
			if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) || err != nil &&
				!strings.Contains(err.Error(), tc.text) {
				t.Errorf("%v, want %v with %q", err, tc.want, tc.text)
			}
			if left := a.pods["team/p"] != nil; left != tc.left {
				t.Errorf("the pod is there: %t, want %t", left, tc.left)
			}
		})
	}
}
