// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"
	"testing"
)

// TestExplainMIGClaims: devices of MIG instances are no whole GPUs, and an allocated instance excludes those that
// overlap it.
func TestExplainMIGClaims(t *testing.T) {
	lists := explained()
	instance := func(profile string, start int, slices ...string) string {
		return fmt.Sprintf(`{"name":"gpu-c-%s-%d","attributes":{"uuid":{"string":"GPU-C"},"type":{"string":"mig"},
			"profile":{"string":%q}},"consumesCounters":[{"counterSet":"gpu-c","counters":{%s}}]}`,
			profile, start, profile, strings.Join(slices, ","))
	}
	const first, second = `"memory-slice-0":{"value":"1"}`, `"memory-slice-1":{"value":"1"}`
	pool := `"driver":"gpu.kerf.dev","nodeName":"gpu-1","pool":{"name":"gpu-1","generation":1,"resourceSliceCount":2}`
	lists["/apis/resource.k8s.io/v1/resourceslices"] = []string{
		fmt.Sprintf(`{"spec":{%s,"sharedCounters":[{"name":"gpu-c","counters":{%s,%s}}]}}`, pool, first, second),
		fmt.Sprintf(`{"spec":{%s,"devices":[%s,%s,%s,{"name":"odd","attributes":{"type":{"string":"other"}}}]}}`, pool,
			instance("1g", 0, first), instance("1g", 1, second), instance("2g", 0, first, second))}
	claims := map[string]string{"taken": `"status":{"allocation":{"devices":{"results":[{"request":"gpu",
		"driver":"gpu.kerf.dev","pool":"gpu-1","device":"gpu-c-1g-0"}]}}}`}
	for name, class := range map[string]string{"taken": "mig-1g.kerf.dev", "small": "mig-1g.kerf.dev",
		"large": "mig-2g.kerf.dev", "any": "mig.kerf.dev", "whole": "whole.kerf.dev"} {
		status := claims[name]
		if status == "" {
			status = `"status":{}`
		}
		lists["/apis/resource.k8s.io/v1/resourceclaims"] = append(lists["/apis/resource.k8s.io/v1/resourceclaims"],
			fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"team"},"spec":{"devices":{"requests":[{"name":"gpu",
			"exactly":{"deviceClassName":%q}}]}},%s}`, name, class, status))
		lists["/api/v1/pods"] = append(lists["/api/v1/pods"], fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"team",
			"uid":"uid-%s"},"spec":{"resourceClaims":[{"name":"gpu","resourceClaimName":%q}],
			"containers":[{"name":"main"}]},"status":{"phase":"Pending"}}`, name, name, name))
	}
	call := describer(t, lists)
	for name, want := range map[string]string{
		"small": "a node has the devices of its claims now",
		"any":   "a node has the devices of its claims now",
		"large": "no GPU for a MIG instance 2g (claim large, request gpu): other claims use 1 of its instances",
		"whole": "no GPU for a whole GPU (claim whole, request gpu)",
	} {
		if out, errOut, _ := call(name); !strings.Contains(out, want) {
			t.Errorf("%s: no %q in:\n%s%s", name, want, out, errOut)
		}
	}
}
