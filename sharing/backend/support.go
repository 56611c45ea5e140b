// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"errors"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/choice"
)

// Answer is what a probe found.
type Answer = choice.Answer

// The answers.
const (
	NoAnswer     = choice.NoAnswer
	Supported    = choice.Supported
	NotSupported = choice.NotSupported
)

// Support is a probe's answer for people.
type Support = choice.Support

// Unknown is the support where a probe failed: what it did when err came.
func Unknown(what string, err error) Support {
	s := Support{Answer: NoAnswer, Reason: what + ": " + err.Error(), Remedy: "look at the reason and try again"}
	switch {
	case errors.Is(err, sharing.ErrDenied):
		s.Remedy = "run as root"
	case errors.Is(err, sharing.ErrLost):
		s.Remedy = "reset the GPU or reboot"
	}
	return s
}
