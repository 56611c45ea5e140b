// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package startcheck reads the driver's memory limits of a container back at its start: once before its program runs,
// once 250 ms later. Another hook of the container, or another NRI plugin, may change a limit after kerf-hook has set
// it and read it back.
//
// It promises that Checker.Starting returns nil only if each limit was read and is as granted. A limit that another
// program raised is set again within 250 ms plus one call of the driver.
//
// It does not promise anything about memory that a program took between the two readings.
package startcheck

import (
	"errors"
	"fmt"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Limit is the limit of one GPU on a container's cgroup.
type Limit struct {
	GPU sharing.GPURef
	// Desired is the cap of the grant. For a GPU that is not part of the grant it is the least limit that Kerf sets.
	Desired sharing.Bytes
	// Slack is how far the driver may round Desired down.
	Slack sharing.Bytes
	// Other is true for a GPU that is not part of the grant. A lower limit is right there, and a lost GPU needs none.
	Other bool
	// Have is the driver's limit. It counts only if Err is nil.
	Have sharing.Bytes
	// Err is why there is no Have: sharing.ErrNotFound if no limit is set, any other if the driver did not answer.
	Err error
}

// Verdict says what is wrong with the limits of one container. It is the zero value if nothing is.
type Verdict struct {
	// Raised names each limit that is above the grant, or gone.
	Raised []string
	// Lowered names each limit that is below the grant.
	Lowered []string
	// Unread names each limit that the driver did not answer for.
	Unread []string
}

// Evaluate compares what the driver has with what is granted. It is pure.
func Evaluate(limits []Limit) Verdict {
	var v Verdict
	for _, l := range limits {
		switch {
		case errors.Is(l.Err, sharing.ErrNotFound):
			v.Raised = append(v.Raised, fmt.Sprintf("GPU %s has no limit (%s)", l.GPU, l.wanted()))
		case l.Other && errors.Is(l.Err, sharing.ErrLost):
		case l.Err != nil:
			v.Unread = append(v.Unread, fmt.Sprintf("GPU %s: %v", l.GPU, l.Err))
		case l.Have > l.Desired:
			v.Raised = append(v.Raised, fmt.Sprintf("GPU %s has limit %s (%s)", l.GPU, amount(l.Have), l.wanted()))
		case !l.Other && l.Desired-l.Have > l.Slack:
			v.Lowered = append(v.Lowered, fmt.Sprintf("GPU %s has limit %s (%s)", l.GPU, amount(l.Have), l.wanted()))
		}
	}
	return v
}

// Refuse returns nil if the container may start. A limit that differs is sharing.ErrConflict, one that was not read
// sharing.ErrUnavailable.
func (v Verdict) Refuse() error {
	const remedy = "; remove the hook or NRI plugin of this node that sets GPU memory limits"
	switch {
	case len(v.Raised)+len(v.Lowered) > 0:
		return fmt.Errorf("the driver's limits are not as Kerf set them: %s%s: %w",
			strings.Join(append(v.Raised, v.Lowered...), ", "), remedy, sharing.ErrConflict)
	case len(v.Unread) > 0:
		return fmt.Errorf("the driver's limits could not be read back: %s: %w", strings.Join(v.Unread, ", "),
			sharing.ErrUnavailable)
	}
	return nil
}

func (l Limit) wanted() string {
	if l.Other {
		return "not part of the grant"
	}
	return "cap " + l.Desired.String()
}

// amount is a limit for people. Above 1 EiB it stands for no limit at all.
func amount(b sharing.Bytes) string {
	if b >= 1<<60 {
		return "none"
	}
	return b.String()
}
