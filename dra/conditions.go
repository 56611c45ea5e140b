// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	applyresource "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kerf-gpu/kerf/dra/resourceclaim"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

// bindingManager owns the binding conditions of claims. It is not the manager of the other fields of a device: a write
// of those leaves the binding conditions.
const bindingManager = dra.Driver + "/binding"

// Conditions writes the binding conditions of claims on one node.
type Conditions struct {
	Client kubernetes.Interface
	Node   string
	Now    func() time.Time
}

// Outcome reads what the status of the claim says of an allocation. A claim that is gone is dra.OutcomeOver.
func (b *Conditions) Outcome(ctx context.Context, a dra.Allocation) (dra.Outcome, error) {
	_, outcome, err := b.read(ctx, a)
	return outcome, err
}

func (b *Conditions) read(ctx context.Context, a dra.Allocation) (*resourceapi.ResourceClaim, dra.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	c, err := b.Client.ResourceV1().ResourceClaims(a.Namespace).Get(ctx, a.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, dra.OutcomeOver, nil
	case err != nil:
		return nil, dra.OutcomeNone, fmt.Errorf("read %s: %w", a, err)
	}
	return c, resourceclaim.OutcomeOf(c, a), nil
}

// Report writes the outcome of an allocation: its instances exist if failure is nil. It leaves a claim that has an
// outcome, or another allocation. The API server rejects the write if the claim has changed since it was read.
func (b *Conditions) Report(ctx context.Context, a dra.Allocation, failure error) error {
	c, outcome, err := b.read(ctx, a)
	if err != nil || outcome != dra.OutcomeNone {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	claim := applyresource.ResourceClaim(a.Name, a.Namespace).WithUID(c.UID).WithResourceVersion(c.ResourceVersion).
		WithStatus(b.status(a, failure))
	_, err = b.Client.ResourceV1().ResourceClaims(a.Namespace).ApplyStatus(ctx, claim,
		metav1.ApplyOptions{FieldManager: bindingManager, Force: true})
	if err != nil {
		return fmt.Errorf("apply binding conditions of %s: %w", a, err)
	}
	return nil
}

// status has the condition of each device of an allocation.
func (b *Conditions) status(a dra.Allocation, failure error) *applyresource.ResourceClaimStatusApplyConfiguration {
	kind, reason, message := dra.ConditionCreated, dra.ReasonCreated, "The MIG instance exists."
	if failure != nil {
		kind, reason, message = dra.ConditionFailed, dra.ReasonNotCreated, dra.Sentence(failure)
	}
	status := applyresource.ResourceClaimStatus()
	for _, device := range a.Devices {
		status = status.WithDevices(applyresource.AllocatedDeviceStatus().WithDriver(dra.Driver).WithPool(a.Node).
			WithDevice(device).WithConditions(applymeta.Condition().WithType(kind).WithStatus(metav1.ConditionTrue).
			WithReason(reason).WithMessage(message).WithLastTransitionTime(metav1.NewTime(b.Now()))))
	}
	return status
}

// Tainted reports whether the API server has a taint of a device of the node, or all of its devices without this one.
func (b *Conditions) Tainted(ctx context.Context, device string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	list, err := b.Client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		resourceapi.ResourceSliceSelectorNodeName: b.Node,
		resourceapi.ResourceSliceSelectorDriver:   dra.Driver}.String()})
	if err != nil {
		return false, fmt.Errorf("read ResourceSlices of node %s: %w", b.Node, err)
	}
	return keptOff(list.Items, device), nil
}

// keptOff reports whether the newest pool is complete, and keeps new claims off a device.
func keptOff(all []resourceapi.ResourceSlice, device string) bool {
	newest, count := int64(-1), int64(0)
	tainted, there := false, false
	for _, s := range all {
		pool := s.Spec.Pool
		switch {
		case pool.Generation < newest:
			continue
		case pool.Generation > newest:
			newest, count, tainted, there = pool.Generation, pool.ResourceSliceCount, false, false
		}
		count--
		for _, d := range s.Spec.Devices {
			if d.Name == device {
				there, tainted = true, len(d.Taints) > 0
			}
		}
	}
	return newest >= 0 && count == 0 && (tainted || !there)
}
