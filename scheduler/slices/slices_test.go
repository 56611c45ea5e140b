// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package slices_test has the API server's validation and kube-scheduler's allocator judge what nodes publish for
// ResourceClaims. It is in this module because only this one has the code of Kubernetes.
package slices_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	internal "k8s.io/kubernetes/pkg/apis/resource"
	conversion "k8s.io/kubernetes/pkg/apis/resource/v1"
	"k8s.io/kubernetes/pkg/apis/resource/validation"

	plugin "github.com/kerf-gpu/kerf/dra"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

const (
	nodeName = "node-1"
	root     = "../../deploy/"
)

// gpus are n H100 of which all are linked. The last has room for 1 GiB only, and is faulty.
func gpus(n int) []dra.GPU {
	var all []dra.GPU
	for i := range n {
		id := sharing.GPUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", i))
		g := sharing.GPU{UUID: id, Index: i, Model: "NVIDIA H100 80GB HBM3", Memory: 80 * sharing.GiB,
			Reserved: 900 * sharing.MiB, Health: sharing.HealthOK, MIGCapable: true}
		for k := range n {
			if k != i {
				g.NVLinks = append(g.NVLinks, sharing.GPUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", k)))
			}
		}
		all = append(all, dra.GPU{GPU: g, Share: true, Whole: true,
			Levels: []sharing.Level{sharing.LevelExclusive, sharing.LevelDriver}})
	}
	last := &all[n-1]
	last.Memory, last.Reserved, last.Health, last.MaxShares = sharing.GiB, 0, sharing.HealthUnhealthy, 1
	last.Overcommit.Compute = 200
	return all
}

// published are the ResourceSlices of a node with these GPUs, as the API server would have them.
func published(gpus []dra.GPU) []*resourceapi.ResourceSlice {
	node := dra.Node{DriverVersion: "615.10", CUDAVersion: "13.3"}
	devices := append(dra.Devices(node, gpus), dra.Instances(node, gpus)...)
	pool := plugin.Resources(nodeName, devices).Pools[nodeName]
	var out []*resourceapi.ResourceSlice
	for i, s := range pool.Slices {
		name := nodeName
		out = append(out, &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%02d-slice", i)},
			Spec: resourceapi.ResourceSliceSpec{Driver: dra.Driver, NodeName: &name,
				Pool: resourceapi.ResourcePool{Name: nodeName, Generation: 1,
					ResourceSliceCount: int64(len(pool.Slices))},
				Devices: s.Devices, SharedCounters: s.SharedCounters}})
	}
	return out
}

// TestAccepted: the API server accepts the ResourceSlices of a node with one GPU, of one with many, and of none.
func TestAccepted(t *testing.T) {
	for _, n := range []int{1, 8, 64} {
		for _, s := range append(published(gpus(n)), published(partitioned(t, gpus(n)))...) {
			var in internal.ResourceSlice
			if err := conversion.Convert_v1_ResourceSlice_To_resource_ResourceSlice(s, &in, nil); err != nil {
				t.Fatal(err)
			}
			if errs := validation.ValidateResourceSlice(&in); len(errs) > 0 {
				t.Errorf("%d GPUs: %v", n, errs.ToAggregate())
			}
		}
	}
}

// cluster is a node, with the state of its devices as kube-scheduler has it.
type cluster struct {
	*testing.T
	classes map[string]*resourceapi.DeviceClass
	slices  []*resourceapi.ResourceSlice
	state   structured.AllocatedState
	claims  int
	// binding is the feature of binding conditions.
	binding bool
}

// Get implements structured.DeviceClassLister.
func (c *cluster) Get(name string) (*resourceapi.DeviceClass, error) {
	if found, is := c.classes[name]; is {
		return found, nil
	}
	return nil, fmt.Errorf("no class %q", name)
}

// List implements structured.DeviceClassLister.
func (c *cluster) List() (out []*resourceapi.DeviceClass, _ error) {
	for _, class := range c.classes {
		out = append(out, class)
	}
	return out, nil
}

func newCluster(t *testing.T, gpus []dra.GPU) *cluster {
	c := &cluster{T: t, classes: map[string]*resourceapi.DeviceClass{}, slices: published(gpus),
		state: structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID](),
			AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
			AggregatedCapacity:       structured.NewConsumedCapacityCollection()}}
	for _, class := range decoded[resourceapi.DeviceClass](t, "variants/dra.yaml", "DeviceClass") {
		c.classes[class.Name] = class
	}
	return c
}

// decoded are the objects of one kind in a file of deploy.
func decoded[T any](t *testing.T, file, kind string) (out []*T) {
	t.Helper()
	f, err := os.Open(root + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var raw struct {
			metav1.TypeMeta `json:",inline"`
		}
		var text yamlText
		if err := r.Decode(&text); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, &raw); err != nil {
			t.Fatal(err)
		}
		if raw.Kind == kind {
			one := new(T)
			if err := yaml.UnmarshalStrict(text, one); err != nil {
				t.Fatal(err)
			}
			out = append(out, one)
		}
	}
}

// yamlText keeps an object as it is.
type yamlText []byte

// UnmarshalJSON implements json.Unmarshaler.
func (y *yamlText) UnmarshalJSON(text []byte) error { *y = slices.Clone(text); return nil }

// allocate is what kube-scheduler allocates to a claim; none if it does not fit. It stays allocated.
func (c *cluster) allocate(devices resourceapi.DeviceClaim) []resourceapi.DeviceRequestAllocationResult {
	c.Helper()
	for i := range devices.Requests { // as the API server sets it
		if e := devices.Requests[i].Exactly; e != nil {
			e.AllocationMode, e.Count = resourceapi.DeviceAllocationModeExactCount, max(e.Count, 1)
		}
		for k := range devices.Requests[i].FirstAvailable {
			sub := &devices.Requests[i].FirstAvailable[k]
			sub.AllocationMode, sub.Count = resourceapi.DeviceAllocationModeExactCount, max(sub.Count, 1)
		}
	}
	c.claims++
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("claim-%d", c.claims),
		Namespace: "team", UID: types.UID(fmt.Sprintf("00000000-0000-4000-9000-%012d", c.claims))},
		Spec: resourceapi.ResourceClaimSpec{Devices: devices}}
	a, err := structured.NewAllocator(c.Context(), structured.Features{AdminAccess: true, ConsumableCapacity: true,
		DeviceTaints: true, PartitionableDevices: true, PrioritizedList: true, FractionalCapacityRange: true,
		DeviceBindingAndStatus: c.binding},
		c.state, c,
		c.slices, cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}))
	if err != nil {
		c.Fatal(err)
	}
	got, err := a.Allocate(c.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}},
		[]*resourceapi.ResourceClaim{claim})
	if err != nil {
		c.Fatal(err)
	}
	if len(got) == 0 {
		return nil
	}
	for _, r := range got[0].Devices.Results {
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		if r.AdminAccess != nil && *r.AdminAccess {
			continue // it takes nothing
		}
		if r.ShareID == nil {
			c.state.AllocatedDevices.Insert(id)
			continue
		}
		c.state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
		c.state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
	}
	return got[0].Devices.Results
}

// template is the claim of a template of deploy/dra.
func (c *cluster) template(name string) resourceapi.DeviceClaim {
	c.Helper()
	for _, file := range []string{"dra/share.yaml", "dra/templates.yaml", "dra/monitoring.yaml"} {
		for _, o := range decoded[resourceapi.ResourceClaimTemplate](c.T, file, "ResourceClaimTemplate") {
			if o.Name == name {
				return o.Spec.Spec.Devices
			}
		}
	}
	c.Fatalf("no template %q", name)
	return resourceapi.DeviceClaim{}
}

// share is a claim of memory.
func (c *cluster) share(memory string) resourceapi.DeviceClaim {
	d := c.template("gpu-10gib")
	quantity := d.Requests[0].Exactly.Capacity.Requests[dra.CapacityMemory]
	if err := quantity.UnmarshalJSON([]byte(`"` + memory + `"`)); err != nil {
		c.Fatal(err)
	}
	d.Requests[0].Exactly.Capacity.Requests[dra.CapacityMemory] = quantity
	return d
}

// TestShares: two claims of 30 GiB fit on one GPU of 80 GB, and a third does not. While shares are allocated, the whole
// GPU is not, and the other way round.
func TestShares(t *testing.T) {
	c := newCluster(t, gpus(2)) // the second one is faulty
	for i := range 3 {
		got := c.allocate(c.share("30Gi"))
		if (len(got) == 1) != (i < 2) {
			t.Fatalf("claim %d: %+v", i, got)
		}
		if i < 2 && (!strings.HasSuffix(got[0].Device, "-share") || got[0].ShareID == nil) {
			t.Errorf("claim %d: %+v", i, got)
		}
	}
	got := c.allocate(c.share("10500Mi"))
	if memory := got[0].ConsumedCapacity[dra.CapacityMemory]; memory.String() != "11Gi" {
		t.Errorf("10500 MiB are rounded to %s", memory.String())
	}
	whole := resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "gpu",
		Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "whole.kerf.dev"}}}}
	if got := c.allocate(whole); got != nil {
		t.Errorf("a GPU with shares is allocated whole: %+v", got)
	}
	c = newCluster(t, gpus(2))
	if got := c.allocate(whole); len(got) != 1 || strings.HasSuffix(got[0].Device, "-share") {
		t.Fatalf("a whole GPU: %+v", got)
	}
	if got := c.allocate(c.share("1Gi")); got != nil {
		t.Errorf("a share of a whole GPU: %+v", got)
	}
}

// TestMonitoring: the device for admin access is given while claims have GPUs, again and again, and takes nothing.
func TestMonitoring(t *testing.T) {
	c := newCluster(t, gpus(2)) // the second one is faulty
	if got := c.allocate(c.share("30Gi")); len(got) != 1 {
		t.Fatalf("a share: %+v", got)
	}
	for range 2 { // the next one sees the same
		got := c.allocate(c.template("gpu-admin"))
		if len(got) != 1 || got[0].AdminAccess == nil || !*got[0].AdminAccess || got[0].Device != dra.MonitorDevice {
			t.Fatalf("%+v", got)
		}
	}
	if got := c.allocate(c.share("40Gi")); len(got) != 1 {
		t.Errorf("the rest of the GPU: %+v", got)
	}
}

// TestTemplates: each template of deploy/dra fits on a node of H100.
func TestTemplates(t *testing.T) {
	for name, want := range map[string]int{"gpu-10gib": 1, "gpu-10gib-25percent": 1, "gpu-half": 1, "gpu-two-nvlink": 2,
		"gpu-driver-or-whole": 1, "gpu-notebook": 1, "gpu-inference": 1, "gpu-mig": 1, "gpu-mig-or-share": 1} {
		c := newCluster(t, partitioned(t, gpus(3)))
		if got := c.allocate(c.template(name)); len(got) != want {
			t.Errorf("template %s: %+v", name, got)
		}
	}
}
