// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// Process places the request of a process. The user wrote asked, and req is the complete request. but replaces answers
// of backends. Errors: those of Container, and those of the user's quota and the profile's bounds.
func (n *Node) Process(uid uint32, asked, req sharing.Request, but choice.Without) (Placed, error) {
	req = n.Hardened(req)
	if err := n.withinQuota(uid, req.Memory); err != nil { // before anything is taken from others for it
		return Placed{}, err
	}
	but = but.OnGPUs(req.GPUs)
	try := n.enforced
	if consents(asked) {
		try = n.alone
	}
	p, err := try(req, but)
	if err != nil {
		return Placed{}, err
	}
	memory, _ := p.Placement.Total()
	if err := n.withinQuota(uid, memory); err != nil {
		return Placed{}, err
	}
	return p, n.Config.PermitMemory(req.Profile, memory)
}

// consents reports whether the process accepts a share that no backend enforces. The config must allow it, too.
func consents(asked sharing.Request) bool { return asked.MinLevel == sharing.LevelNone }

// demanding is the request of a process that does not consent, as it is placed.
func demanding(req sharing.Request) sharing.Request {
	if req.Kind == sharing.KindShared {
		req.MinLevel = max(req.MinLevel, sharing.LevelReactive)
	}
	return req
}

// alone places the request of a process.
func (n *Node) alone(req sharing.Request, but choice.Without) (Placed, error) {
	p, err := n.choose(req, sharing.Advice{}, but)
	if err != nil {
		return Placed{}, err
	}
	by, err := n.enforcer(req, p, but)
	return Placed{req, p, by}, err
}

// enforced places the request of a process that does not consent. If only its consent is missing, the error asks for
// it.
func (n *Node) enforced(req sharing.Request, but choice.Without) (Placed, error) {
	p, err := n.alone(demanding(req), but)
	if err == nil {
		p.Request = req
		return p, nil
	}
	weak, less := n.alone(req, but)
	if no, is := errors.AsType[*NoInstance](less); is {
		no.Tries++
	}
	if less != nil {
		return Placed{}, less // it demands no more than the config, and so names the remedy of the admin
	}
	return Placed{},
		fmt.Errorf("no backend enforces %s on %s (level %s: %s); add --min-enforcement none to accept that: %w",
			req, strings.Join(weak.Placement.GPUs(), ", "), weak.Enforced.Level, weak.Enforced.Reason,
			sharing.ErrUnsupported)
}

// Resolved is the request of a process as the config completes it and as it is placed. There is none if it is wrong.
func (n *Node) Resolved(asked sharing.Request) []sharing.Request {
	req, err := n.Config.Resolve(n.Pool, asked)
	if err != nil {
		return nil
	}
	if !consents(asked) {
		req = demanding(req)
	}
	return []sharing.Request{req}
}

// withinQuota returns nil if the pool allows a user one more grant of so much memory. Root has no quota. Grants of
// subordinate UIDs count for their user.
func (n *Node) withinQuota(uid uint32, memory sharing.Bytes) error {
	if uid == 0 || n.Pool.UserQuota == (sharing.UserQuota{}) {
		return nil
	}
	owner := n.OwnerOf(uid)
	var used sharing.UserUse
	for _, g := range n.Grants {
		if !g.Owner.Pod() && n.OwnerOf(g.Owner.UID) == owner {
			granted, _ := g.Placement.Total()
			used = used.With(granted)
		}
	}
	return n.Pool.UserQuota.Check(owner, used, memory)
}

// PermitPod returns nil if the bounds of the profiles allow what the pod's grants give together. Only the profiles of
// the grants that were added are checked.
func PermitPod(c config.Config, grants []ledger.Grant, uid string, added []ledger.GrantID) error {
	totals, check := map[string]sharing.Bytes{}, map[string]bool{}
	counted := map[string]bool{} // devices that several containers have together
	for _, g := range grants {
		key := g.DevicesKey()
		if g.Owner.PodUID != uid || counted[key] {
			continue
		}
		counted[key] = key != ""
		profile := g.Request.Profile
		memory, _ := g.Placement.Total()
		sum, err := totals[profile].Add(memory)
		if err != nil {
			return err
		}
		totals[profile] = sum
		check[profile] = check[profile] || slices.Contains(added, g.ID)
	}
	var errs []error
	for _, profile := range slices.Sorted(maps.Keys(totals)) {
		if check[profile] {
			errs = append(errs, c.PermitMemory(profile, totals[profile]))
		}
	}
	return errors.Join(errs...)
}
