// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kerf-gpu/kerf/sharing"
)

// Granted is the grant of one container, as far as the status of its claims shows it.
type Granted struct {
	// Requests are the requests of claims that admit the container.
	Requests []sharing.ResourceRequest
	// Caps are what the container may use on each GPU: all that is granted, or the shared cap.
	Caps sharing.Placement
	// Level is the enforcement level, and Reason says why it is not stronger.
	Level  sharing.Level
	Reason string
	// Active is true while a container uses it, with its cap read back.
	Active bool
}

// DeviceStatus is what a claim's status says of one of its devices.
type DeviceStatus struct {
	Pool, Device, ShareID string
	// Ready is true once a grant is reserved; Reason is one word in CamelCase, and Message one sentence.
	Ready           bool
	Reason, Message string
	// Level, Cap, Percent, GPU and Active describe the grant; they are empty without one.
	Level   string
	Cap     sharing.Bytes
	Percent sharing.Percent
	GPU     sharing.GPUID
	Active  bool
}

// The reasons of a device's condition.
const (
	ReasonReserved = "Reserved"
	ReasonActive   = "Active"
	ReasonRejected = "Rejected"
	ReasonAdmin    = "AdminAccess"
)

// Status is the status of the devices of a claim. The error is why it was rejected; nil if it was prepared.
func Status(c Claim, grants []Granted, gpus []sharing.GPUID, rejected error) []DeviceStatus {
	var out []DeviceStatus
	for _, r := range c.Results {
		s := DeviceStatus{Pool: r.Pool, Device: r.Device, ShareID: r.ShareID}
		at, _ := TargetOf(r.Device, gpus)
		gpu := at.GPU
		s.GPU = gpu
		switch g, ok := grantOf(r.ResourceRequest(c.UID), gpu, grants); {
		case rejected != nil:
			s.Reason, s.Message = ReasonRejected, Sentence(rejected)
		case r.Admin:
			s.Ready, s.Reason = true, ReasonAdmin
			s.Message = fmt.Sprintf("%d GPUs are visible, without a grant.", len(r.AdminGPUs(gpus)))
		case ok:
			s.describe(g, gpu)
		default:
			s.Ready, s.Reason = true, ReasonReserved
			s.Message = "No container uses this device."
		}
		out = append(out, s)
	}
	return out
}

// grantOf is the grant by a request that has the GPU; an active one first.
func grantOf(ask sharing.ResourceRequest, gpu sharing.GPUID, grants []Granted) (found Granted, ok bool) {
	for _, g := range grants {
		if _, on := g.Caps.On(sharing.GPURef{UUID: gpu}); on && slices.Contains(g.Requests, ask) && (!ok ||
			!found.Active) {
			found, ok = g, true
		}
	}
	return found, ok
}

func (s *DeviceStatus) describe(g Granted, gpu sharing.GPUID) {
	share, _ := g.Caps.On(sharing.GPURef{UUID: gpu})
	s.Ready, s.Reason, s.Active = true, ReasonReserved, g.Active
	if g.Active {
		s.Reason = ReasonActive
	}
	s.Level, s.Cap, s.Percent = g.Level.String(), share.Memory, share.Percent
	s.Message = fmt.Sprintf("%s of GPU %s at level %s", share.Memory, gpu, g.Level)
	if g.Reason != "" {
		s.Message += ": " + g.Reason
	}
	s.Message += "."
}

// Sentence makes an error the message of a condition, within the limit of the API.
func Sentence(err error) string {
	const most = 1024
	text := cmp.Or(err.Error(), "unknown error")
	return text[:min(len(text), most)] + "."
}
