// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package slices_test

import (
	"slices"
	"testing"

	internal "k8s.io/kubernetes/pkg/apis/resource"
	conversion "k8s.io/kubernetes/pkg/apis/resource/v1"
	"k8s.io/kubernetes/pkg/apis/resource/validation"

	"github.com/kerf-gpu/kerf/sharing/dra"
)

// beforeBinding has the GPUs publish their MIG instances with binding conditions.
func beforeBinding(gpus []dra.GPU) []dra.GPU {
	for i := range gpus {
		gpus[i].Partition.BeforeBinding = true
	}
	return gpus
}

// TestBindingConditionsAreAccepted: the API server accepts MIG instances with binding conditions.
func TestBindingConditionsAreAccepted(t *testing.T) {
	for _, n := range []int{1, 64} {
		conditions := 0
		for _, s := range published(beforeBinding(partitioned(t, gpus(n)))) {
			for _, d := range s.Spec.Devices {
				conditions += len(d.BindingConditions)
			}
			var in internal.ResourceSlice
			if err := conversion.Convert_v1_ResourceSlice_To_resource_ResourceSlice(s, &in, nil); err != nil {
				t.Fatal(err)
			}
			if errs := validation.ValidateResourceSlice(&in); len(errs) > 0 {
				t.Errorf("%d GPUs: %v", n, errs.ToAggregate())
			}
		}
		if conditions < 7*n {
			t.Errorf("%d GPUs have %d binding conditions", n, conditions)
		}
	}
}

// TestBindingConditionsAreAllocated: an allocated MIG instance has its binding conditions, and a share has none.
func TestBindingConditionsAreAllocated(t *testing.T) {
	c := newCluster(t, beforeBinding(partitioned(t, gpus(2))))
	c.binding = true
	got := c.allocate(c.template("gpu-mig"))
	if len(got) != 1 || !slices.Equal(got[0].BindingConditions, []string{dra.ConditionCreated}) ||
		!slices.Equal(got[0].BindingFailureConditions, []string{dra.ConditionFailed}) {
		t.Errorf("an instance: %+v", got)
	}
	c = newCluster(t, beforeBinding(partitioned(t, gpus(2))))
	if got := c.allocate(c.share("1Gi")); len(got) != 1 || len(got[0].BindingConditions) != 0 {
		t.Errorf("a share: %+v", got)
	}
	c = newCluster(t, beforeBinding(partitioned(t, gpus(2))))
	if got := c.allocate(c.template("gpu-mig")); len(got) != 0 {
		t.Errorf("without the feature: %+v", got)
	}
}
