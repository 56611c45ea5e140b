// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package members

import (
	"time"

	"github.com/kerf-gpu/kerf/internal/process"
)

// Node is the Kernel of the machine that this program runs on. It must see the machine's processes.
type Node struct{}

// Start implements Kernel, as do the others.
func (Node) Start(pid int) (uint64, error) { return process.StartOf(pid) }

// InnerPID is read from /proc.
func (Node) InnerPID(pid int) (int, error) { return process.InnermostPID(pid) }

// PIDSpace is read from /proc.
func (Node) PIDSpace(pid int) (uint64, error) { return process.PIDSpace(pid) }

// BootOffset is read from /proc.
func (Node) BootOffset(pid int) (time.Duration, error) { return process.BootOffset(pid) }
