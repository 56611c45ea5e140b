// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/kerf-gpu/kerf/dra/resourceclaim"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

const (
	gpu = sharing.GPUID("GPU-aaaaaaaa-0000-4000-8000-000000000000")
	uid = "11111111-0000-4000-8000-000000000000"
)

func devices(health sharing.Health, n int) []dra.Device {
	var all []dra.GPU
	for i := range n {
		g := dra.GPU{GPU: sharing.GPU{UUID: gpu[:len(gpu)-1] + sharing.GPUID(rune('a'+i)), Memory: 80 * sharing.GiB,
			Health: health}, Share: true, Whole: true}
		all = append(all, g)
	}
	return dra.Devices(dra.Node{DriverVersion: "615.10"}, all)
}

// TestResources: both devices of a GPU consume its one counter, and a share has amounts with steps.
func TestResources(t *testing.T) {
	pool := Resources("node-1", devices(sharing.HealthUnhealthy, 9)).Pools["node-1"]
	if len(pool.Slices) != 4 || len(pool.Slices[0].SharedCounters) != 8 || len(pool.Slices[1].SharedCounters) != 1 ||
		len(pool.Slices[2].Devices) != 18 {
		t.Fatalf("%+v", pool)
	}
	if m := pool.Slices[3].Devices; len(m) != 1 || m[0].Name != "monitor" || len(m[0].ConsumesCounters) != 0 ||
		*m[0].Attributes["type"].StringValue != "monitor" {
		t.Errorf("the device for admin access is %+v", m)
	}
	for _, s := range pool.Slices {
		if len(s.SharedCounters) > 0 && len(s.Devices) > 0 {
			t.Error("a slice has counters and devices, which the API rejects")
		}
	}
	share, whole := pool.Slices[2].Devices[0], pool.Slices[2].Devices[1]
	if share.AllowMultipleAllocations == nil || !*share.AllowMultipleAllocations ||
		whole.AllowMultipleAllocations != nil || len(whole.Capacity) != 0 {
		t.Errorf("share %+v, whole %+v", share, whole)
	}
	for _, d := range []resourceapi.Device{share, whole} {
		c := d.ConsumesCounters
		if len(c) != 1 || c[0].CounterSet != pool.Slices[0].SharedCounters[0].Name || len(c[0].Counters) != 1 ||
			len(d.Taints) != 1 || d.Taints[0].Effect != resourceapi.DeviceTaintEffectNoSchedule {
			t.Errorf("%+v", d)
		}
	}
	memory := share.Capacity["memory"]
	if memory.Value.String() != "80Gi" || memory.RequestPolicy.ValidRange.Step.String() != "1Gi" ||
		memory.RequestPolicy.Default.String() != "80Gi" {
		t.Errorf("memory %+v", memory)
	}
	if a := share.Attributes["driverVersion"]; a.StringValue == nil || *a.StringValue != "615.10" {
		t.Errorf("attributes %+v", share.Attributes)
	}
	if empty := Resources("node-1", nil).Pools["node-1"]; len(empty.Slices) != 1 ||
		len(empty.Slices[0].Devices) != 0 {
		t.Errorf("without devices: %+v", empty)
	}
}

// claim has a share of 10 GiB and 25% for its request, and a device of another driver.
func claim() *resourceapi.ResourceClaim {
	amounts := map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("10Gi"),
		"percent": resource.MustParse("25")}
	share := types.UID("share-1")
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: "team", Name: "one"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
			{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{
				Capacity: &resourceapi.CapacityRequirements{Requests: amounts}}},
			{Name: "either", FirstAvailable: []resourceapi.DeviceSubRequest{{Name: "small",
				Capacity: &resourceapi.CapacityRequirements{Requests: amounts}}, {Name: "any"}}},
		}}},
		Status: resourceapi.ResourceClaimStatus{
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "uid-p"},
				{APIGroup: "x", Resource: "pods", UID: "uid-x"}},
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
				Results: []resourceapi.DeviceRequestAllocationResult{
					{Request: "gpu", Driver: dra.Driver, Pool: "node-1", Device: dra.DeviceName(gpu, dra.KindShare),
						ShareID: &share, ConsumedCapacity: amounts},
					{Request: "either/small", Driver: dra.Driver, Pool: "node-1", Device: "second",
						ConsumedCapacity: amounts},
					{Request: "either/any", Driver: dra.Driver, Pool: "node-1", Device: "third",
						AdminAccess: new(true)},
					{Request: "nic", Driver: "nic.example.com", Pool: "node-1", Device: "eth0"},
				},
				Config: []resourceapi.DeviceAllocationConfiguration{{Source: resourceapi.AllocationConfigSourceClass,
					Requests: []string{"gpu"}, DeviceConfiguration: resourceapi.DeviceConfiguration{
						Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: dra.Driver,
							Parameters: runtime.RawExtension{Raw: []byte("{}")}}}}},
			}},
		},
	}
}

// preparer answers with an error, or takes the claims.
type preparer struct {
	err      error
	prepared []dra.Claim
	ended    []string
	refs     []dra.ClaimRef
}

func (p *preparer) Prepare(_ context.Context, claims []dra.Claim) error {
	p.prepared = claims
	return p.err
}
func (p *preparer) Prepared(context.Context) ([]dra.ClaimRef, error) { return p.refs, p.err }
func (p *preparer) Unprepare(uids []string) error                    { p.ended = uids; return p.err }

func plugin(p *preparer) *Plugin {
	return New(Options{Log: slog.New(slog.DiscardHandler), Node: "node-1", Preparer: p, Now: time.Now,
		Devices: func() ([]dra.Device, bool) { return devices(sharing.HealthOK, 1), true },
		Changed: func() <-chan struct{} { return nil },
		Grants:  func() ([]dra.Granted, []sharing.GPUID) { return nil, []sharing.GPUID{gpu} }})
}

// TestStatus: a claim's status has one entry per device of Kerf, and is written once for each change.
func TestStatus(t *testing.T) {
	c := claim()
	client := fake.NewClientset(c)
	p := plugin(&preparer{err: sharing.ErrExhausted})
	p.opt.Client = client
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p.opt.Now = func() time.Time { return now }
	writes := func() (n int) {
		for _, a := range client.Actions() {
			if a.GetVerb() == "patch" && a.GetSubresource() == "status" {
				n++
			}
		}
		return n
	}
	read := func() []resourceapi.AllocatedDeviceStatus {
		got, err := client.ResourceV1().ResourceClaims("team").Get(t.Context(), "one", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Status.Devices
	}
	for range 2 {
		if _, err := p.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{c}); err != nil {
			t.Fatal(err)
		}
		p.writeStatus(t.Context())
	}
	if got := read(); writes() != 1 || len(got) != 3 || got[0].Conditions[0].Reason != dra.ReasonRejected ||
		got[0].Conditions[0].Status != metav1.ConditionFalse {
		t.Fatalf("%d writes: %+v", writes(), got)
	}
	p.opt.Preparer = &preparer{}
	p.opt.Grants = func() ([]dra.Granted, []sharing.GPUID) {
		return []dra.Granted{{Requests: resourceclaim.Of(c).ResourceRequests(), Level: sharing.LevelDriver,
				Active: true, Caps: sharing.Placement{{GPU: sharing.GPURef{UUID: gpu}, Memory: 10 * sharing.GiB,
					Percent: 25}}}},
			[]sharing.GPUID{gpu}
	}
	now = now.Add(time.Minute)
	if _, err := p.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{c}); err != nil {
		t.Fatal(err)
	}
	p.writeStatus(t.Context())
	first := read()[0]
	want := `{"active":true,"cap":"10GiB","gpu":"` + string(gpu) + `","level":"driver","percent":25}`
	if first.Conditions[0].Reason != dra.ReasonActive || string(first.Data.Raw) != want ||
		!first.Conditions[0].LastTransitionTime.Time.Equal(now) {
		t.Errorf("%+v, data %s", first, first.Data.Raw)
	}
	if _, err := p.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{{UID: uid}}); err != nil {
		t.Fatal(err)
	}
	p.writeStatus(t.Context())
	if writes() != 2 {
		t.Errorf("%d writes", writes())
	}
}

// TestStatusAfterRestart: a new process writes the status of the claims that an earlier one prepared. The time of the
// condition stays. Of a claim that was made again under the same name, it writes nothing.
func TestStatusAfterRestart(t *testing.T) {
	c := claim()
	share := string(*c.Status.Allocation.Devices.Results[0].ShareID)
	then := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: dra.Driver, Pool: "node-1",
		Device: dra.DeviceName(gpu, dra.KindShare), ShareID: &share, Conditions: []metav1.Condition{{
			Type: dra.ConditionReady, Status: metav1.ConditionTrue, Reason: dra.ReasonReserved,
			LastTransitionTime: metav1.NewTime(then)}}}}
	for uids, want := range map[string]bool{uid: true, "another": false} {
		client := fake.NewClientset(c)
		prep := &preparer{err: sharing.ErrUnavailable, refs: []dra.ClaimRef{
			{Namespace: "team", Name: "one", UIDs: []string{uids}}, {Namespace: "team", Name: "gone"}}}
		p := plugin(prep)
		p.opt.Client, p.opt.Now = client, func() time.Time { return then.Add(time.Hour) }
		p.restore(t.Context())
		prep.err = nil // it is tried again
		p.restore(t.Context())
		if !p.statuses.restored {
			t.Error("it does not know the claims")
		}
		p.writeStatus(t.Context())
		got, err := client.ResourceV1().ResourceClaims("team").Get(t.Context(), "one", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if wrote := len(got.Status.Devices) == 3; wrote != want {
			t.Errorf("claim of %s: %+v", uids, got.Status.Devices)
		}
		if at := got.Status.Devices[0].Conditions[0].LastTransitionTime.Time; !at.Equal(then) {
			t.Errorf("the condition is of %s", at)
		}
	}
}

// TestPrepare: a claim gives its containers the hook device and its request device, and no GPU.
func TestPrepare(t *testing.T) {
	p := &preparer{}
	timed := plugin(p)
	answers := 0
	timed.opt.Answered = func(took time.Duration) { answers++ }
	got, err := timed.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{claim()})
	if err != nil || got[uid].Err != nil || len(got[uid].Devices) != 3 || len(p.prepared) != 1 || answers != 1 {
		t.Fatalf("%+v, %v, %d timed", got, err, answers)
	}
	d := got[uid].Devices[0]
	if !slices.Equal(d.CDIDeviceIDs, []string{"kerf.dev/guard=armed", "kerf.dev/claim=" + uid + ".gpu"}) ||
		*d.ShareID != "share-1" || d.PoolName != "node-1" || !slices.Equal(d.Requests, []string{"gpu"}) {
		t.Errorf("%+v", d)
	}
	if ids := got[uid].Devices[1].CDIDeviceIDs; ids[1] != "kerf.dev/claim="+uid+".either" {
		t.Errorf("a subrequest has %q", ids)
	}
	admin := claim()
	result := &admin.Status.Allocation.Devices.Results[2]
	result.Device, result.AdminAccess = dra.DeviceName(gpu, dra.KindWhole), new(true)
	seeing := plugin(p)
	seeing.opt.Grants = func() ([]dra.Granted, []sharing.GPUID) { return nil, []sharing.GPUID{gpu} }
	got, err = seeing.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{admin})
	want := []string{"kerf.dev/gpu=" + string(gpu)}
	if ids := got[uid].Devices[2].CDIDeviceIDs; err != nil || !slices.Equal(ids, want) {
		t.Errorf("admin access: %q, %v", ids, err)
	}
	p.err = sharing.ErrExhausted
	got, err = plugin(p).PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{claim()})
	if err != nil || !errors.Is(got[uid].Err, sharing.ErrExhausted) || got[uid].Devices != nil {
		t.Errorf("rejected: %+v, %v", got, err)
	}
	ended, err := plugin(p).UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{{UID: uid}})
	if err != nil || !errors.Is(ended[uid], sharing.ErrExhausted) || !slices.Equal(p.ended, []string{uid}) {
		t.Errorf("unprepared: %v, %v", ended, err)
	}
}

func TestHealth(t *testing.T) {
	for health, want := range map[sharing.Health]kubeletplugin.HealthStatus{
		sharing.HealthOK: kubeletplugin.HealthStatusHealthy, sharing.HealthLost: kubeletplugin.HealthStatusUnhealthy,
		sharing.HealthUnknown: kubeletplugin.HealthStatusUnknown} {
		r := healthOf("node-1", devices(health, 1), time.Now())
		if len(r.Devices) != 2 || r.Devices[0].Health != want || r.Devices[0].PoolName != "node-1" {
			t.Errorf("%s: %+v", health, r)
		}
		message := ""
		if health != sharing.HealthOK {
			message = "GPU is " + health.String()
		}
		if r.Devices[0].Message != message {
			t.Errorf("%s: message %q, want %q", health, r.Devices[0].Message, message)
		}
	}
	synctest.Test(t, func(t *testing.T) { // it is reported again before kubelet forgets it, until the end
		ctx, cancel := context.WithCancel(t.Context())
		reports, done := make(chan kubeletplugin.DeviceHealthReport), make(chan error)
		go func() { done <- plugin(&preparer{}).WatchHealthStatus(ctx, reports) }()
		<-reports
		began := time.Now()
		<-reports
		if took := time.Since(began); took != healthEvery {
			t.Errorf("reported again after %s", took)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
