// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	applyresource "k8s.io/client-go/applyconfigurations/resource/v1"

	"github.com/kerf-gpu/kerf/dra/resourceclaim"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

const (
	// statusTime bounds one write of a claim's status.
	statusTime = 5 * time.Second
)

// statuses remembers the claims of this process and what their status says, so that it writes only changes.
type statuses struct {
	mu     sync.Mutex
	claims map[string]known
	// failing is true while the API server rejects what is written. Only the loop of statuses uses it.
	failing bool
	// restored is true once the claims that were prepared before this process are known. Only that loop uses it.
	restored bool
}

// known is a claim, why it was rejected, and what was written last.
type known struct {
	claim    dra.Claim
	rejected error
	written  []dra.DeviceStatus
	since    []time.Time
}

// prepared notes claims that were prepared, or rejected for a reason.
func (s *statuses) prepared(claims []dra.Claim, rejected error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims == nil {
		s.claims = map[string]known{}
	}
	for _, c := range claims {
		k := s.claims[c.UID]
		k.claim, k.rejected = c, rejected
		s.claims[c.UID] = k
	}
}

// found notes a claim that an earlier process prepared, with the times of its conditions. A claim that kubelet has
// prepared since stays as it is.
func (s *statuses) found(c dra.Claim, written []dra.DeviceStatus, since []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims == nil {
		s.claims = map[string]known{}
	}
	if _, has := s.claims[c.UID]; !has {
		s.claims[c.UID] = known{claim: c, written: written, since: since}
	}
}

// followStatuses writes the statuses of claims until ctx ends. Its loop is separate: the API server may let each
// write wait, and the taints of a faulty GPU must not wait for that.
func (p *Plugin) followStatuses(ctx context.Context) {
	for {
		changed := p.opt.Changed()
		p.restore(ctx)
		p.writeStatus(ctx)
		if !p.await(ctx, changed, p.prepared, 0) {
			return
		}
	}
}

// restore reads the claims of grants that an earlier process reserved. kubelet does not prepare them again. What fails
// is tried again at the next change.
func (p *Plugin) restore(ctx context.Context) {
	if p.statuses.restored {
		return
	}
	refs, err := p.opt.Preparer.Prepared(ctx)
	errs := []error{err}
	for _, ref := range refs {
		get, cancel := context.WithTimeout(ctx, statusTime)
		c, err := p.opt.Client.ResourceV1().ResourceClaims(ref.Namespace).Get(get, ref.Name, metav1.GetOptions{})
		cancel()
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			errs = append(errs, err)
		case slices.Contains(ref.UIDs, string(c.UID)):
			claim := resourceclaim.Of(c)
			written, since := writtenOf(c, claim)
			p.statuses.found(claim, written, since)
		}
	}
	if err := errors.Join(errs...); err != nil {
		p.opt.Log.Warn("failed to read prepared claims, will retry", "error", err)
		return
	}
	p.statuses.restored = true
}

// writtenOf is what the status of a claim says of each device: whether it is ready, and since when.
func writtenOf(c *resourceapi.ResourceClaim, claim dra.Claim) (written []dra.DeviceStatus, since []time.Time) {
	for _, r := range claim.Results {
		one, at := dra.DeviceStatus{}, time.Time{}
		for _, d := range c.Status.Devices {
			share := ""
			if d.ShareID != nil {
				share = *d.ShareID
			}
			if d.Driver != dra.Driver || d.Pool != r.Pool || d.Device != r.Device || share != r.ShareID {
				continue
			}
			if c := meta.FindStatusCondition(d.Conditions, dra.ConditionReady); c != nil {
				one.Ready, at = c.Status == metav1.ConditionTrue, c.LastTransitionTime.Time
			}
		}
		written, since = append(written, one), append(since, at)
	}
	return written, since
}

// ended forgets claims.
func (s *statuses) ended(uids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.claims, func(uid string, _ known) bool { return slices.Contains(uids, uid) })
}

// changed are the claims whose status differs from what was written, with the new status.
func (s *statuses) changed(grants func() ([]dra.Granted, []sharing.GPUID), now time.Time) []known {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.claims) == 0 {
		return nil
	}
	var out []known
	granted, gpus := grants()
	for _, uid := range slices.Sorted(maps.Keys(s.claims)) {
		k := s.claims[uid]
		fresh := dra.Status(k.claim, granted, gpus, k.rejected)
		if reflect.DeepEqual(fresh, k.written) {
			continue
		}
		since := make([]time.Time, len(fresh))
		for i := range fresh {
			since[i] = now
			if i < len(k.written) && k.written[i].Ready == fresh[i].Ready && !k.since[i].IsZero() {
				since[i] = k.since[i]
			}
		}
		k.written, k.since = fresh, since
		out = append(out, k)
	}
	return out
}

// wrote notes that a status is in the API server.
func (s *statuses) wrote(k known) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, ok := s.claims[k.claim.UID]; ok {
		now.written, now.since = k.written, k.since
		s.claims[k.claim.UID] = now
	}
}

// writeStatus writes the device status of each claim that has changed. A failed write is tried again at the next
// change, and logged once. No pod waits for it.
func (p *Plugin) writeStatus(ctx context.Context) {
	failed := false
	for _, k := range p.statuses.changed(p.opt.Grants, p.opt.Now()) {
		err := p.apply(ctx, k)
		if apierrors.IsNotFound(err) {
			err = p.gone(k.claim)
		} else if err == nil {
			p.statuses.wrote(k)
		}
		if err == nil {
			continue
		}
		if !p.statuses.failing && !failed && ctx.Err() == nil {
			p.opt.Log.Warn("failed to write status of claim, will retry", "claim", k.claim.String(), "error", err)
		}
		failed = true
	}
	p.statuses.failing = failed
}

// gone ends the grants of a claim that the API server does not have any more. No pod can use it. kubelet, which ends it
// otherwise, may have lost its own record.
func (p *Plugin) gone(c dra.Claim) error {
	if err := p.opt.Preparer.Unprepare([]string{c.UID}); err != nil {
		return fmt.Errorf("end deleted claim %s: %w", c, err)
	}
	p.opt.Log.Info("ended grants of a deleted claim", "claim", c.String())
	p.statuses.ended([]string{c.UID})
	return nil
}

// data is what a device's status has besides its condition.
type data struct {
	Level   string `json:"level,omitempty"`
	Cap     string `json:"cap,omitempty"`
	Percent uint32 `json:"percent,omitempty"`
	GPU     string `json:"gpu,omitempty"`
	Active  bool   `json:"active"`
}

func (p *Plugin) apply(ctx context.Context, k known) error {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	status := applyresource.ResourceClaimStatus()
	for i, s := range k.written {
		raw, err := json.Marshal(data{s.Level, capOf(s), uint32(s.Percent), string(s.GPU), s.Active})
		if err != nil {
			return fmt.Errorf("encode status of device %q: %w", s.Device, err)
		}
		ready := metav1.ConditionFalse
		if s.Ready {
			ready = metav1.ConditionTrue
		}
		d := applyresource.AllocatedDeviceStatus().WithDriver(dra.Driver).WithPool(s.Pool).WithDevice(s.Device).
			WithData(runtime.RawExtension{Raw: raw}).
			WithConditions(applymeta.Condition().WithType(dra.ConditionReady).WithStatus(ready).WithReason(s.Reason).
				WithMessage(s.Message).WithLastTransitionTime(metav1.NewTime(k.since[i])))
		if s.ShareID != "" {
			d = d.WithShareID(s.ShareID)
		}
		status = status.WithDevices(d)
	}
	// With the UID, the API server rejects the status for a claim that was made again under the same name.
	claim := applyresource.ResourceClaim(k.claim.Name, k.claim.Namespace).WithUID(types.UID(k.claim.UID)).
		WithStatus(status)
	_, err := p.opt.Client.ResourceV1().ResourceClaims(k.claim.Namespace).ApplyStatus(ctx, claim,
		metav1.ApplyOptions{FieldManager: dra.Driver, Force: true})
	if err != nil {
		return fmt.Errorf("apply status of claim %s: %w", k.claim, err)
	}
	return nil
}

// capOf is the cap for people; empty without a grant.
func capOf(s dra.DeviceStatus) string {
	if s.Cap == 0 {
		return ""
	}
	return s.Cap.String()
}
