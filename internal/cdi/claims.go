// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kerf-gpu/kerf/sharing"
)

// Claims writes the spec of kerf.dev/claim with a device for each request of a ResourceClaim, and no other; without
// requests, there is no spec. A device brings the hook with the request. It does not bring a GPU: as for the device
// plugin, the NRI plugin adds that for the container that has the grant. Errors are those of Install, and
// sharing.ErrInvalid for what is no request of a ResourceClaim. Reconcile restores what Claims wrote last.
func (k *Manager) Claims(asks []sharing.ResourceRequest) error {
	var f File
	if len(asks) > 0 {
		var err error
		if f, err = claimsFile(asks, k.hook); err != nil {
			return err
		}
	}
	k.claims = &f
	_, err := k.keepClaims()
	return err
}

// keepClaims makes the spec as Claims wrote it last. Until its first call, the spec of an earlier process stays.
func (k *Manager) keepClaims() (written []string, err error) {
	defer func() { k.claimsLook = looks(k.claimsPath()) }()
	switch {
	case k.claims == nil:
		return nil, nil
	case k.claims.Name != "":
		return Install(k.own, []File{*k.claims})
	}
	switch err := os.Remove(k.claimsPath()); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("remove cdi spec: %w (%w)", err, sharing.ErrUnavailable)
	}
	return []string{fileName(sharing.CDIClaim)}, nil
}

// claimsPath is the spec of the ResourceClaims.
func (k *Manager) claimsPath() string { return filepath.Join(k.own, fileName(sharing.CDIClaim)) }

// claimsFile makes the spec. It is pure.
func claimsFile(asks []sharing.ResourceRequest, h Hook) (File, error) {
	if err := h.check(); err != nil {
		return File{}, err
	}
	spec := &specs.Spec{Kind: sharing.CDIClaim}
	for _, a := range asks {
		_, name, _ := strings.Cut(a.Device(), "=")
		if a.Claim == "" {
			return File{}, fmt.Errorf("request %q is of no ResourceClaim: %w", a, sharing.ErrInvalid)
		}
		if slices.ContainsFunc(spec.Devices, func(d specs.Device) bool { return d.Name == name }) {
			continue
		}
		spec.Devices = append(spec.Devices, specs.Device{Name: name, ContainerEdits: specs.ContainerEdits{
			Hooks: []*specs.Hook{h.edit(sharing.HookRequest, a.String())}}})
	}
	slices.SortFunc(spec.Devices, func(a, b specs.Device) int { return strings.Compare(a.Name, b.Name) })
	return newFile(spec)
}
