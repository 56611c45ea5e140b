// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/lists"
)

// slowDriver answers for "a" at once, and for "b" when the deadline is over. It counts what it is asked.
type slowDriver struct{ asked int }

func (d *slowDriver) Sample(ctx context.Context, gpu sharing.GPURef) (Reading, error) {
	if gpu.UUID == "b" {
		<-ctx.Done()
		return Reading{}, errors.Join(ctx.Err(), sharing.ErrUnavailable)
	}
	d.asked++
	return Reading{Used: sharing.GiB}, nil
}

func (d *slowDriver) Processes(context.Context, sharing.GPURef) ([]lists.Use, error) { return nil, nil }

// clock is a kernel without processes.
type clock struct{ lists.Kernel }

func (clock) Now() uint64 { return 0 }

// A sample is used again by all callers while it is recent and the node does not change. A GPU that hangs is left out.
func TestSampler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d slowDriver
		var changes uint64
		v := View{Driver: &d, GPUs: []sharing.GPU{{UUID: "a"}}}
		s := &Sampler{
			Lists: lists.New(clock{}), View: func() View { return v }, Changes: func() uint64 { return changes },
			Managed: func([]ledger.Grant) map[sharing.GPURef]sharing.Bytes { return nil },
		}
		left, cancel := context.WithCancel(t.Context())
		cancel()
		expect := func(asked int) Sample {
			t.Helper()
			out := s.Sample(left) // the caller has left already
			if d.asked != asked || out.GPUs[sharing.GPURef{UUID: "a"}].Used != sharing.GiB {
				t.Errorf("asked %d times, want %d: %+v", d.asked, asked, out)
			}
			return out
		}
		changes++
		expect(1)
		expect(1)
		time.Sleep(maxAge)
		expect(2)
		changes++
		expect(3)
		v.GPUs, changes = append(v.GPUs, sharing.GPU{UUID: "b"}), changes+1
		start := time.Now()
		if out := expect(4); len(out.GPUs) != 1 || time.Since(start) != deadline {
			t.Errorf("a GPU that hangs takes %s: %+v", time.Since(start), out)
		}
		v, changes = View{}, changes+1
		if out := s.Sample(left); len(out.GPUs) != 0 || d.asked != 4 {
			t.Errorf("without a driver: %+v", out)
		}
	})
}

// Processes of the daemons of grants, and those whose cgroup is not known, are not unmanaged.
func TestUnmanaged(t *testing.T) {
	s := &Sampler{Daemons: "/kerf/x.mps"}
	got := s.unmanaged(lists.Observation{Lines: []lists.Line{
		line(5, "", "/user", 1), line(4, "", "/kerf/x.mpsother", 1), line(1, "g", "/kerf/x/g", 1),
		line(2, "", "/kerf/x.mps/a", 1), line(3, "", "", 1),
	}})
	if !slices.Equal(got, []int{4, 5}) {
		t.Errorf("unmanaged: %v", got)
	}
}
