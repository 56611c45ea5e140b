// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// What the device plugin admitted gets no GPU of the DRA front end. A claim and a process get one.
func TestFrontEnds(t *testing.T) {
	n, _ := newNode()
	for i := range 2 {
		n.Settings[id(i)] = config.GPUSettings{FrontEnd: sharing.FrontEndDRA}
	}
	plugin := sharing.ContainerRequest{Requests: []sharing.ResourceRequest{{Resource: "gpu", Count: 1}}}
	request := sharing.ClaimRequest("11111111-0000-4000-8000-000000000000", "gpu")
	claim := sharing.ContainerRequest{Requests: []sharing.ResourceRequest{request}}
	for name, tt := range map[string]struct {
		ask  sharing.ContainerRequest
		req  sharing.Request
		want []int
	}{
		"a share":       {plugin, gib(10), []int{2}},
		"a whole GPU":   {plugin, whole(1), []int{2}},
		"two":           {plugin, whole(2), nil},
		"by claim":      {claim, whole(3), []int{0, 1, 2}},
		"of no request": {sharing.ContainerRequest{}, whole(3), []int{0, 1, 2}},
	} {
		p, err := n.Container(tt.ask, tt.req)
		if got := indexes(p.Placement); !slices.Equal(got, tt.want) || (err != nil) != (tt.want == nil) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if tt.want == nil && !strings.Contains(err.Error(), "given only by ResourceClaim") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
