// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestCounts(t *testing.T) {
	r, _ := region(t, 100)
	r.usage.slot[3].owner, r.usage.slot[3].begun, r.usage.slot[3].ended = owner(5, 9), 7, 7
	r.usage.slot[3].held[1], r.usage.slot[3].waiting[1] = 40, 30
	r.usage.managed[3][0], r.usage.managed[3][1] = 60, 25 // of GPU 0 more than it holds
	r.usage.slot[4].owner, r.usage.slot[4].making = owner(7, 3), 1
	r.usage.slot[900].owner, r.usage.slot[900].begun, r.usage.slot[900].ended = owner(6, 1<<40), 2, 1
	r.usage.slot[900].space = 77
	none := map[sharing.GPURef]sharing.Bytes{gpu0: 0, gpu1: 0}
	want := []Count{
		{
			Process{PID: 5, Start: 9}, 7, true,
			map[sharing.GPURef]sharing.Bytes{gpu0: 0, gpu1: 40}, map[sharing.GPURef]sharing.Bytes{gpu0: 0, gpu1: 25},
			map[sharing.GPURef]sharing.Bytes{gpu0: 0, gpu1: 30},
		},
		{Process{PID: 7, Start: 3}, 0, false, none, none, none},
		{Process{PID: 6, Start: 1 << 40, Space: 77}, 2, false, none, none, none},
	}
	if d := cmp.Diff(want, r.Counts()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A tenant can do to the usage file what it likes; the agent finds it out and lives.
func TestCheck(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"cut":     func(path string) error { return os.Truncate(path, 0) },
		"filled":  func(path string) error { return os.Truncate(path, 64<<20) },
		"removed": os.Remove,
		"emptied": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"zeroed": func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.Write(make([]byte, unsafe.Sizeof(usagePage{})))
			return errors.Join(err, f.Close())
		},
		"replaced": func(path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, make([]byte, 1<<18), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, files := region(t, 100)
			dir := filepath.Dir(files[0])
			if err := r.Check(dir); err != nil {
				t.Fatal(err)
			}
			if err := spoil(files[1]); err != nil {
				t.Fatal(err)
			}
			if name == "cut" {
				if err := Guarded(func() error { r.Counts(); return nil }); !errors.Is(err, sharing.ErrStale) {
					t.Errorf("reading what is cut: %v", err)
				}
			}
			if err := r.Check(dir); !errors.Is(err, sharing.ErrStale) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestGuardedLeavesOtherPanicsAlone(t *testing.T) {
	defer func() {
		if cause := recover(); cause != "mine" {
			t.Errorf("recovered %v", cause)
		}
	}()
	want := errors.New("as it is")
	if err := Guarded(func() error { return want }); err != want { //nolint:errorlint // the very same
		t.Errorf("%v", err)
	}
	_ = Guarded(func() error { panic("mine") })
}
