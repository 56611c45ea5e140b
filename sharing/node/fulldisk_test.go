// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/sharing"
)

// onSmallDisk puts the bench's record on a disk that fill and empty make full and free again.
func (b *bench) onSmallDisk() (fill, empty func()) {
	b.t.Helper()
	dir := filepath.Join(b.dir, "disk")
	if err := os.Mkdir(dir, 0o700); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := mountns.Unmount(dir); err != nil {
			b.t.Error(err)
		}
	})
	if err := (mountns.Volume{Size: sharing.MiB, Inodes: 16}).Mount(dir); err != nil {
		b.t.Fatal(err)
	}
	b.opt.RecordPath = filepath.Join(dir, "record.json")
	others := filepath.Join(dir, "others")
	fill = func() {
		b.t.Helper()
		if err := os.WriteFile(others, make([]byte, 2*sharing.MiB), 0o600); err == nil {
			b.t.Fatal("the disk takes more than its size")
		}
	}
	empty = func() {
		b.t.Helper()
		if err := os.Remove(others); err != nil {
			b.t.Fatal(err)
		}
	}
	return fill, empty
}

// An agent starts on a full disk. It has the earlier grants, and serves the hooks of containers that it has activated.
// It rejects new grants with the reason, and goes on by itself once there is free space.
func TestAStartOnAFullDisk(t *testing.T) {
	b := newPodBench(t)
	fill, empty := b.onSmallDisk()
	stop := b.started()
	c := b.run(b.app("p", "gpu-memory-gib:10"))
	fill()
	for range 3 {
		stop()
		stop = b.started()
		if why := strings.Join(b.NotReady(), "; "); !strings.Contains(why, "no space left") {
			t.Fatalf("not ready: %q", why)
		}
		if why := strings.Join(b.PodsNotReady(), "; "); !strings.Contains(why, "no space left") {
			t.Errorf("pods: %q", why)
		}
		b.active(c.ask, c)
		if err := c.hooks(); err != nil {
			t.Errorf("the hook of a container that is activated: %v", err)
		}
		p := b.tenant()
		if _, err := b.Reserve(t.Context(), p.Peer, "", gib(1)); !errors.Is(err, sharing.ErrUnavailable) ||
			!strings.Contains(err.Error(), "no space left") {
			t.Errorf("a new grant: %v", err)
		}
	}
	empty()
	b.eventually("the agent is ready", func() bool { return len(b.NotReady()) == 0 })
	p := b.tenant()
	b.activate(p, "", gib(1))
	p.end()
	b.eventually("the grant of the process has ended", func() bool { return len(b.State(t.Context()).Grants) == 1 })
	c.remove()
	b.gone("p")
}

// A grant that ended while the disk was full is not on record any more once there is room.
func TestWhatEndsOnAFullDisk(t *testing.T) {
	b := newBench(t)
	fill, empty := b.onSmallDisk()
	stop := b.started()
	p := b.tenant()
	b.activate(p, "", gib(1))
	fill()
	stop()
	p.end()
	b.started()
	b.eventually("the grant has ended", func() bool { return len(b.State(t.Context()).Grants) == 0 })
	empty()
	b.eventually("the agent is ready", func() bool { return len(b.NotReady()) == 0 })
	if got := b.recorded(); len(got) != 0 {
		t.Errorf("on record: %+v", got)
	}
}
