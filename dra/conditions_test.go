// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kerf-gpu/kerf/dra/resourceclaim"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

const migDevice = "gpu-aaaaaaaa-0000-4000-8000-000000000000-mig-1g-10gb-6"

// bindable is a claim with a MIG instance that has binding conditions, and a device of another driver.
func bindable() *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "team", UID: uid},
		Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
			AllocationTimestamp: new(metav1.Unix(1000, 0)),
			Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{
				{Request: "nic", Driver: "nic.example", Pool: "node-1", Device: "nic-0",
					BindingConditions: []string{"nic.example/attached"}},
				{Request: "gpu", Driver: dra.Driver, Pool: "node-1", Device: migDevice,
					BindingConditions:        []string{dra.ConditionCreated},
					BindingFailureConditions: []string{dra.ConditionFailed}},
				{Request: "share", Driver: dra.Driver, Pool: "node-1", Device: "gpu-b-share"}}}}}}
}

// TestAllocationOf: an allocation has only the devices of Kerf with its binding condition.
func TestAllocationOf(t *testing.T) {
	a := resourceclaim.AllocationOf(bindable())
	if a.UID != uid || a.String() != "claim team/one" || a.Node != "node-1" || a.At != "1970-01-01T00:16:40Z" ||
		!slices.Equal(a.Devices, []string{migDevice}) {
		t.Errorf("%+v", a)
	}
	later, none := bindable(), bindable()
	later.Status.Allocation.AllocationTimestamp = new(metav1.Unix(1001, 0))
	none.Status.Allocation = nil
	if resourceclaim.AllocationOf(later).Key() == a.Key() || len(resourceclaim.AllocationOf(none).Devices) != 0 {
		t.Error("two allocations are the same")
	}
}

// conditionsOf are the conditions of the claim's MIG instance in the API server.
func conditionsOf(t *testing.T, client *fake.Clientset) []metav1.Condition {
	t.Helper()
	c, err := client.ResourceV1().ResourceClaims("team").Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range c.Status.Devices {
		if d.Device == migDevice {
			return d.Conditions
		}
	}
	return nil
}

// TestReport: the first outcome of an allocation stays. What else the status says of the device leaves it, and it
// leaves that. A claim that is allocated again has no outcome.
func TestReport(t *testing.T) {
	for name, failure := range map[string]error{dra.ConditionCreated: nil,
		dra.ConditionFailed: errors.New("no memory")} {
		client := fake.NewClientset(bindable())
		b := &Conditions{Client: client, Node: "node-1", Now: func() time.Time { return time.Unix(2000, 0) }}
		a := resourceclaim.AllocationOf(bindable())
		if is, err := b.Outcome(t.Context(), a); is != dra.OutcomeNone || err != nil {
			t.Fatalf("%s: at first %d, %v", name, is, err)
		}
		for _, outcome := range []error{failure, errors.New("another one"), nil} {
			if err := b.Report(t.Context(), a, outcome); err != nil {
				t.Fatal(err)
			}
		}
		p := plugin(&preparer{})
		p.opt.Client = client
		p.statuses.prepared([]dra.Claim{resourceclaim.Of(bindable())}, nil)
		p.writeStatus(t.Context())
		got := conditionsOf(t, client)
		found := meta.FindStatusCondition(got, name)
		if len(got) != 2 || found == nil || found.Status != metav1.ConditionTrue ||
			failure != nil && found.Message != "no memory." || !meta.IsStatusConditionTrue(got, dra.ConditionReady) {
			t.Errorf("%s: conditions %+v", name, got)
		}
		want := map[bool]dra.Outcome{true: dra.OutcomeReady, false: dra.OutcomeOver}[failure == nil]
		if is, err := b.Outcome(t.Context(), a); is != want || err != nil {
			t.Errorf("%s: outcome %d, %v", name, is, err)
		}
		a.At = "another time"
		if is, err := b.Outcome(t.Context(), a); is != dra.OutcomeOver || err != nil {
			t.Errorf("%s, another allocation: %d, %v", name, is, err)
		}
		a.Name = "gone"
		if is, err := b.Outcome(t.Context(), a); is != dra.OutcomeOver || err != nil {
			t.Errorf("%s, a claim that is gone: %d, %v", name, is, err)
		}
	}
}

// TestReportOfVersion: the API server rejects an outcome for a claim that has changed since it was read.
func TestReportOfVersion(t *testing.T) {
	c := bindable()
	c.ResourceVersion = "7"
	client := fake.NewClientset(c)
	b := &Conditions{Client: client, Node: "node-1", Now: time.Now}
	if err := b.Report(t.Context(), resourceclaim.AllocationOf(bindable()), nil); err != nil {
		t.Fatal(err)
	}
	patches := 0
	for _, action := range client.Actions() {
		if p, is := action.(interface{ GetPatch() []byte }); is {
			patches++
			var applied resourceapi.ResourceClaim
			if err := json.Unmarshal(p.GetPatch(), &applied); err != nil || applied.UID != uid ||
				applied.ResourceVersion != "7" {
				t.Errorf("%v: the patch is of no version of the claim: %s", err, p.GetPatch())
			}
		}
	}
	if patches != 1 {
		t.Errorf("%d patches", patches)
	}
}

// TestKeptOff: a taint counts once the newest pool is complete.
func TestKeptOff(t *testing.T) {
	slice := func(generation, count int64, devices ...resourceapi.Device) resourceapi.ResourceSlice {
		return resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{Devices: devices,
			Pool: resourceapi.ResourcePool{Generation: generation, ResourceSliceCount: count}}}
	}
	clean := resourceapi.Device{Name: "a"}
	tainted := resourceapi.Device{Name: "a", Taints: []resourceapi.DeviceTaint{{Key: dra.TaintMIGUnavailable}}}
	other := resourceapi.Device{Name: "b"}
	for name, tc := range map[string]struct {
		all  []resourceapi.ResourceSlice
		want bool
	}{
		"nothing":               {nil, false},
		"no taint":              {[]resourceapi.ResourceSlice{slice(1, 1, clean)}, false},
		"a taint":               {[]resourceapi.ResourceSlice{slice(1, 1, other, tainted)}, true},
		"not published":         {[]resourceapi.ResourceSlice{slice(1, 1, other)}, true},
		"incomplete":            {[]resourceapi.ResourceSlice{slice(1, 2, tainted)}, false},
		"complete":              {[]resourceapi.ResourceSlice{slice(1, 2, other), slice(1, 2, tainted)}, true},
		"a newer one without":   {[]resourceapi.ResourceSlice{slice(2, 1, clean), slice(1, 1, tainted)}, false},
		"a newer one with it":   {[]resourceapi.ResourceSlice{slice(1, 1, clean), slice(2, 1, tainted)}, true},
		"a newer one in part":   {[]resourceapi.ResourceSlice{slice(1, 1, tainted), slice(2, 2, other)}, false},
		"an older one after it": {[]resourceapi.ResourceSlice{slice(2, 1, tainted), slice(1, 1, clean)}, true},
	} {
		if got := keptOff(tc.all, "a"); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestBindingConditions: only MIG instances of a pool that wants it have binding conditions.
func TestBindingConditions(t *testing.T) {
	for _, before := range []bool{true, false} {
		d := deviceOf(dra.Device{Name: "a", Kind: dra.KindMIG, GPU: sharing.GPUID("GPU-a"), BeforeBinding: before})
		if (d.BindsToNode != nil && *d.BindsToNode) != before || (len(d.BindingConditions) == 1) != before ||
			(len(d.BindingFailureConditions) == 1) != before {
			t.Errorf("%t: %+v", before, d)
		}
	}
}
