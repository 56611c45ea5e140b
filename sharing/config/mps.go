// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import "github.com/kerf-gpu/kerf/sharing"

// MPSSharing is who shares a control daemon of MPS, and so who can disturb whom: its members can give it any command,
// and a fault of one ends all.
type MPSSharing uint8

// The ways.
const (
	// MPSSharingDomain: the pods of one namespace, and the processes of one user (the default).
	MPSSharingDomain MPSSharing = iota
	// MPSSharingPool: all pods of the pool, and all its processes.
	MPSSharingPool
)

// MPSComputeMode says what Kerf does with the compute mode of GPUs on which MPS enforces shares.
type MPSComputeMode uint8

// The rules for it.
const (
	// MPSComputeModeManage: EXCLUSIVE_PROCESS while one domain uses the GPU, DEFAULT while several do, and afterwards what it
	// was before (the default).
	MPSComputeModeManage MPSComputeMode = iota
	// MPSComputeModeKeep: Kerf leaves it as it is. Other programs can then use the GPU beside MPS.
	MPSComputeModeKeep
)

// String returns "manage" or "keep".
func (m MPSComputeMode) String() string {
	switch m {
	case MPSComputeModeKeep:
		return "keep"
	case MPSComputeModeManage:
	}
	return "manage"
}

// ParseMPSComputeMode reads "manage" or "keep"; field names the input for the error, a *sharing.FieldError.
func ParseMPSComputeMode(field, s string) (MPSComputeMode, error) {
	for _, v := range []MPSComputeMode{MPSComputeModeManage, MPSComputeModeKeep} {
		if v.String() == s {
			return v, nil
		}
	}
	return MPSComputeModeManage, sharing.Invalid(field, s, "write manage or keep", "is not a rule for the compute mode under MPS")
}

// String returns "domain" or "pool".
func (m MPSSharing) String() string {
	switch m {
	case MPSSharingPool:
		return "pool"
	case MPSSharingDomain:
	}
	return "domain"
}

// ParseMPSSharing reads "domain" or "pool"; field names the input for the error, a *sharing.FieldError.
func ParseMPSSharing(field, s string) (MPSSharing, error) {
	for _, v := range []MPSSharing{MPSSharingDomain, MPSSharingPool} {
		if v.String() == s {
			return v, nil
		}
	}
	return MPSSharingDomain, sharing.Invalid(field, s, "write domain or pool", "is not a way to share MPS")
}
