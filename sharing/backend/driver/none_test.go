// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
)

// A driver says in one of three ways that there is no limit. Each is read as that, and nothing is cleared then: r615
// would make a limit of it that keeps those further up from counting.
func TestNoLimit(t *testing.T) {
	a := sharing.GPURef{UUID: "A"}
	for name, says := range map[string]func(*fakeNVML){
		"NOT_FOUND": func(d *fakeNVML) {
			d.none = fmt.Errorf("says: %w",
				sharing.ErrNotFound)
		},
		"NOT_SUPPORTED": func(d *fakeNVML) {
			d.none = fmt.Errorf("says: %w",
				sharing.ErrUnsupported)
		},
		"no soft limit and the largest hard one": func(d *fakeNVML) {
			d.limits["A"+dir] = nvml.Limit{Hard: nvml.NoLimit}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFakeNVML()
			says(d)
			b := New(d, &tree{})
			if _, _, err := b.Read(t.Context(), dir, a); !errors.Is(err, sharing.ErrNotFound) {
				t.Errorf("read: %v", err)
			}
			if err := b.Clear(t.Context(), dir, refs("A")); err != nil || len(d.calls) != 0 {
				t.Errorf("clear: %v, %q", err, d.calls)
			}
		})
	}
	d := newFakeNVML()
	d.limits["A"+dir] = nvml.Limit{Soft: 5, Hard: nvml.NoLimit} // a soft limit is one
	b := New(d, &tree{})
	if _, _, err := b.Read(t.Context(), dir, a); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("a soft limit alone is no cap: %v", err)
	}
	if err := b.Clear(t.Context(), dir, refs("A")); err != nil || len(d.limits) != 0 {
		t.Errorf("clear a soft limit: %v, %v", err, d.limits)
	}
}

// A cgroup that is removed while its caps are read or set has no caps: sharing.ErrNotFound, which no caller takes for a
// lost cap. A driver that says so of a cgroup that exists has lost it.
func TestCgroupThatIsRemovedMeanwhile(t *testing.T) {
	cannotOpen := fmt.Errorf("the cgroup cannot be opened: %w", sharing.ErrUnavailable)
	for _, gone := range []bool{true, false} {
		for what, do := range map[string]func(b *Driver) error{
			"read": func(b *Driver) error {
				_, _, err := b.Read(t.Context(), dir, sharing.GPURef{UUID: "A"})
				return err
			},
			"renew": func(b *Driver) error { return b.Renew(t.Context(), dir, three()[:1], nil) },
			"apply": func(b *Driver) error { return b.Apply(t.Context(), dir, three()[:1], nil) },
		} {
			d, tr := newFakeNVML(), &tree{}
			fails := func() error {
				tr.gone = gone
				return cannotOpen
			}
			d.getErr = func(sharing.GPUID) error { return fails() }
			d.setErr = func(sharing.GPUID, sharing.Bytes) error { return fails() }
			if err := do(New(d, tr)); errors.Is(err, sharing.ErrNotFound) != gone ||
				!errors.Is(err, sharing.ErrUnavailable) {
				t.Errorf("%s, gone %v: %v", what, gone, err)
			}
		}
	}
	d := newFakeNVML()
	d.getErr = func(sharing.GPUID) error { return fmt.Errorf("no limit: %w", sharing.ErrNotFound) }
	if err := New(d, &tree{}).Renew(t.Context(), dir, three(), nil); errors.Is(err, sharing.ErrNotFound) ||
		!errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("set without effect: %v", err)
	}
}
