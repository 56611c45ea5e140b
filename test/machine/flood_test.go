// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

const (
	// floodStranger is a user who is in no group, and floodMember one who may use the node socket.
	floodStranger, floodMember = 54321, 54322
	// floodFiles is how many files the agent may have open. It is too few for all that its listeners take by default.
	floodFiles = 1024
	// floodGrowth is by how many MiB memory may grow.
	floodGrowth = 20
)

// TestFloodOfIdleConnections opens 20,000 connections over TCP. To the sockets it does in a long run, and opens 4,000
// in a short one.
func TestFloodOfIdleConnections(t *testing.T) {
	f := newFlooded(t)
	for _, c := range []struct {
		name  string
		user  uint32
		kind  string
		where string
	}{
		{"TCP, silent", floodStranger, "silent", "tcp:" + f.web},
		{"TCP, one request each", floodStranger, "asked", "tcp:" + f.web},
		{"node socket, silent", floodMember, "silent", "unix:" + f.dir + "/kerf.sock"},
		{"node socket, HTTP/2 without a call", floodMember, "preface", "unix:" + f.dir + "/kerf.sock"},
		{"HTTP socket, silent", floodMember, "silent", "unix:" + f.dir + "/http.sock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := 20_000
			if c.user == floodMember {
				n = many(n, 4000)
			}
			g := f
			g.machine = f.in(t)
			g.during(func() {
				opened, rejected := g.begin(c.user, c.kind, c.where, n)
				if opened+rejected != n || opened < n*9/10 {
					t.Errorf("%d connections were opened and %d rejected, want %d", opened, rejected, n)
				}
			})
		})
	}
}

// TestFloodOfSlowReaders has 100 peers ask for the metrics, and 100 for pictures of the node, and read nothing.
func TestFloodOfSlowReaders(t *testing.T) {
	f := newFlooded(t)
	f.during(func() {
		f.begin(floodStranger, "slow", "tcp:"+f.web, 100)
		f.begin(floodMember, "slow", "unix:"+f.dir+"/http.sock", 100)
		f.begin(floodMember, "streams", "unix:"+f.dir+"/kerf.sock", 100)
	})
}

// TestFloodOfStreams opens 1,200 watches of the node. Few are taken, and pictures are made for all at once.
func TestFloodOfStreams(t *testing.T) {
	f := newFlooded(t)
	f.during(func() {
		opened, rejected := f.begin(floodMember, "streams", "unix:"+f.dir+"/kerf.sock", 1200)
		if opened == 0 || opened > 16 || opened+rejected != 1200 {
			t.Errorf("%d streams were opened and %d rejected, want at most 16 opened", opened, rejected)
		}
	})
}

// TestFloodOfNames grants under 1,000,000 distinct names in a long run, and under 100,000 in a short one.
func TestFloodOfNames(t *testing.T) {
	f := newFlooded(t)
	f.during(func() {
		n := many(1_000_000, 100_000)
		held, rejected := f.begin(floodMember, "names", "unix:"+f.dir+"/kerf.sock", n)
		if held == 0 || held+rejected != n {
			t.Errorf("%d grants were held and %d rejected", held, rejected)
		}
		t.Logf("%d grants were held", held)
	})
	if series := strings.Count(f.kerf("metrics").out, "name-"); series != 0 {
		t.Errorf("%d metrics have names of grants that ended", series)
	}
}

// TestFloodOfTheMonitor opens 20,000 connections to each of its sockets in a long run, and 4,000 in a short one. It
// goes on taking samples, within the 80 MiB that it may have.
func TestFloodOfTheMonitor(t *testing.T) {
	f := newFlooded(t)
	o := f.monitor()
	eventually(t, "first sample", func() error {
		if code := f.healthz(o.address); code != http.StatusOK {
			return fmt.Errorf("/healthz: %d", code)
		}
		return nil
	})
	for _, c := range []struct{ kind, where string }{
		{"asked", "tcp:" + o.address}, {"silent", "unix:" + f.dir + "/pods/telemetry.sock"},
		{"asked", "unix:" + f.dir + "/pods/telemetry.sock"},
	} {
		pid := o.p.pid()
		n := many(20_000, 4000)
		if opened, rejected := f.begin(floodStranger, c.kind, c.where, n); opened < n*9/10 {
			t.Errorf("%s, %s: %d connections were opened and %d rejected", c.where, c.kind, opened, rejected)
		}
		if code := f.healthz(o.address); code != http.StatusOK {
			t.Errorf("/healthz of the monitor after %s, %s: %d", c.where, c.kind, code)
		}
		if _, peak := f.memoryOf(pid); peak >= 80*mib {
			t.Errorf("%s, %s: the monitor had %.1f MiB", c.where, c.kind, float64(peak)/float64(mib))
		}
	}
}
