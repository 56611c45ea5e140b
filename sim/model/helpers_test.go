// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

const (
	mib = sharing.MiB
	gib = sharing.GiB
	sec = time.Second
)

// testMachine loads a built-in machine with the r615 driver.
func testMachine(t *testing.T, name string, acct machine.Memacct) *Model {
	t.Helper()
	mach, err := machine.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	mach.Memacct = acct
	mach, _ = mach.Shared(machine.SharingFIFO)
	return New(mach, testDriver(t, "r615"))
}

func testDriver(t *testing.T, name string) machine.Driver {
	t.Helper()
	d, err := machine.FindDriver(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The tree of groups: a above b above c, and d next to a.
var (
	inA = Chain{{ID: 1, Dir: "/a"}}
	inB = Chain{{ID: 2, Dir: "/a/b"}, {ID: 1, Dir: "/a"}}
	inC = Chain{{ID: 3, Dir: "/a/b/c"}, {ID: 2, Dir: "/a/b"}, {ID: 1, Dir: "/a"}}
	inD = Chain{{ID: 4, Dir: "/d"}}
)

// process opens GPU 0 and makes a context.
type process struct {
	t   *testing.T
	m   *Model
	id  ClientID
	ctx uint64
}

func open(t *testing.T, m *Model, gpu, pid int, chain Chain) process {
	t.Helper()
	id, err := m.Open(gpu, pid)
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := m.CreateContext(id, 0, chain)
	if err != nil {
		t.Fatal(err)
	}
	return process{t: t, m: m, id: id, ctx: ctx}
}

// alloc wants an outcome; nil is success.
func (p process) alloc(bytes sharing.Bytes, chain Chain, want error) uint64 {
	p.t.Helper()
	at, err := p.m.Alloc(p.id, bytes, p.ctx, wire.KindLinear, chain)
	wantErr(p.t, err, want)
	return at
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func setLimit(t *testing.T, m *Model, chain Chain, hard sharing.Bytes) {
	t.Helper()
	wantErr(t, m.SetLimit(0, true, chain, 0, hard), nil)
}

func set[T any](v T) *T { return &v }

// Launch is Run of a kernel that waits for nothing.
func (m *Model) Launch(id ClientID, context, blocks, threads uint64, asked, now time.Duration) (time.Duration, error) {
	return m.Run(id, Kernel{Context: context, Blocks: blocks, Threads: threads, Asked: asked}, now)
}
