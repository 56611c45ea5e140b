// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// A cordoned GPU takes nothing new, over inventories; what has it keeps it, and its container starts again.
func TestCordons(t *testing.T) {
	t.Parallel()
	l := testLedger(t, testGrant("x"))
	why := map[sharing.GPUID]string{"a": "fan", "later": "new"}
	l.SetCordons(why)
	why["b"] = "scribbled"
	look := func(id sharing.GPURef) View {
		t.Helper()
		v, ok := l.GPU(id)
		if !ok {
			t.Fatalf("no GPU %q", id)
		}
		return v
	}
	for _, when := range []string{"at once", "after an inventory"} {
		if a, b := look(sharing.GPURef{UUID: "a"}), look(sharing.GPURef{UUID: "b"}); a.FreeMemory != 0 ||
			a.GPU.Cordoned != "fan" || b.FreeMemory == 0 || b.GPU.Cordoned != "" {
			t.Errorf("%s: %+v, %+v", when, a, b)
		}
		c := testGrant("y")
		c.Request.Percent, c.Placement[0].Percent = 0, 0
		if err := l.Reserve(c); !errors.Is(err, sharing.ErrUnavailable) ||
			!strings.Contains(err.Error(), "cordoned: fan") {
			t.Errorf("%s: a new grant: %v", when, err)
		}
		if err := l.SetInventory([]sharing.GPU{testGPU(sharing.GPURef{UUID: "a"}), testGPU(sharing.GPURef{UUID: "b"}),
			testGPU(sharing.GPURef{UUID: "later"})}); err != nil {
			t.Fatal(err)
		}
	}
	if look(sharing.GPURef{UUID: "later"}).FreeMemory != 0 {
		t.Error("a GPU that came later is not cordoned")
	}
	if err := activate(l, "x", Attachment{Cgroup: "/x", Inode: 1}); err != nil {
		t.Errorf("what has the GPU starts: %v", err)
	}
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	l.SetCordons(nil)
	if v := look(sharing.GPURef{UUID: "a"}); v.FreeMemory != 70*sharing.GiB || v.GPU.Cordoned != "" {
		t.Errorf("handed back: %+v", v)
	}
}
