// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestStatus(t *testing.T) {
	c := claim(uid1, "one", share("gpu", gpuA, 10, 25), share("other", gpuB, 5, 0))
	caps := sharing.Placement{{GPU: sharing.GPURef{UUID: gpuA}, Memory: 10 * sharing.GiB, Percent: 25}}
	ask := []sharing.ResourceRequest{sharing.ClaimRequest(uid1, "gpu")}
	reserved := Granted{Requests: ask, Caps: caps, Level: sharing.LevelUserspace,
		Reason: "the driver is older than r615"}
	active := reserved
	active.Active = true
	got := Status(c, []Granted{reserved, active}, gpus(), nil)
	want := DeviceStatus{Pool: "node-1", Device: DeviceName(gpuA, KindShare), ShareID: "s", Ready: true,
		Reason: ReasonActive, Level: "userspace", Cap: 10 * sharing.GiB, Percent: 25, GPU: gpuA, Active: true,
		Message: "10GiB of GPU " + string(gpuA) + " at level userspace: the driver is older than r615."}
	if len(got) != 2 || got[0] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got[1].Reason != ReasonReserved || got[1].Level != "" || got[1].GPU != gpuB {
		t.Errorf("without a container: %+v", got[1])
	}
	if got := Status(c, []Granted{reserved}, gpus(), nil); got[0].Reason != ReasonReserved || got[0].Active {
		t.Errorf("reserved: %+v", got[0])
	}
	long := sharing.Invalid("memory", "", "", "%s", strings.Repeat("x", 5000))
	got = Status(c, nil, gpus(), long)
	if got[0].Ready || got[0].Reason != ReasonRejected || len(got[0].Message) > 1100 {
		t.Errorf("rejected: %+v", got[0])
	}
}
