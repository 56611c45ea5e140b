// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
)

func TestAView(t *testing.T) {
	want := []*api.Mount{{Source: "/run/kerf/pods", Destination: "/run/kerf-pod", Type: "bind",
		Options: []string{"bind", "nosuid", "nodev", "noexec", "ro"}}}
	for at, given := range map[string]bool{
		"/data": true, "/": true, "/run/kerf": true, "/run/kerf-pods": true, "/var/run": true,
		"/run": false, "/run/": false, "/run/kerf-pod": false, "/run/./kerf-pod/x": false,
	} {
		c := containerOf("main")
		c.Mounts = []*api.Mount{{Destination: at}}
		a := &api.ContainerAdjustment{}
		addView(a, c, "/run/kerf/pods")
		if d := cmp.Diff(want, a.GetMounts(), protocmp.Transform()); (d == "") != given {
			t.Errorf("%s: %s", at, d)
		}
	}
	a := &api.ContainerAdjustment{}
	if addView(a, containerOf("main"), ""); len(a.GetMounts()) != 0 {
		t.Errorf("where there is none: %v", a.GetMounts())
	}
}
