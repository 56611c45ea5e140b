// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/exec"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
)

// cutDriver is a driver with one instance. The calls that a test names fail.
type cutDriver struct {
	exec.Driver
	table   *mig.Table
	fail    error
	current bool
	there   []exec.Instance
}

func (d *cutDriver) SetMode(context.Context, sharing.GPUID, bool) (bool, error) {
	return d.current, d.fail
}
func (d *cutDriver) Table(context.Context, sharing.GPUID) (*mig.Table, error) { return d.table, d.fail }
func (d *cutDriver) Instances(context.Context, sharing.GPUID) ([]exec.Instance, error) {
	return d.there, d.fail
}

func (d *cutDriver) CreateGI(_ context.Context, _ sharing.GPUID, at mig.Place) (int, error) {
	if d.fail == nil {
		d.there = append(d.there, exec.Instance{Place: at, GI: 3})
	}
	return 3, d.fail
}

func (d *cutDriver) DestroyGI(context.Context, sharing.GPUID, int) error {
	d.there = nil
	return d.fail
}

func (d *cutDriver) CreateCI(context.Context, sharing.GPUID, int) (exec.Compute, error) {
	return exec.Compute{CI: 1, UUID: "MIG-x"}, d.fail
}
func (d *cutDriver) DestroyCI(context.Context, sharing.GPUID, int, int) error { return d.fail }

// Each change of MIG modes and instances is in the audit log, with its instance and its error.
func TestMIGStepsAreAudited(t *testing.T) {
	table, err := mig.NewTable([]mig.Profile{{ID: 19, Name: "1g.10gb", Compute: 1, Memory: 9 * sharing.GiB,
		MaxInstances: 1,
		Size:         1, Starts: []int{0, 6}}})
	if err != nil {
		t.Fatal(err)
	}
	var log []string
	driver := &cutDriver{table: table, current: true}
	if d := audited(driver, nil); d != exec.Driver(driver) {
		t.Error("without a log there is something in between")
	}
	d := &auditedMIG{driver, func(e audit.Entry) {
		if e.Type != audit.MIGStep || e.By == "" || e.Time.IsZero() || len(e.Shares) != 1 {
			t.Errorf("%+v", e)
		}
		log = append(log, fmt.Sprintf("%s %q %s %s", e.Shares[0].GPU, e.Shares[0].MIG, e.Reason, e.Error))
	}}
	all := func() {
		ctx := t.Context()
		_, _ = d.SetMode(ctx, "GPU-a", true)
		_, _ = d.CreateGI(ctx, "GPU-a", mig.Place{Profile: 19, Start: 6})
		_, _ = d.CreateCI(ctx, "GPU-a", 3)
		_ = d.DestroyCI(ctx, "GPU-a", 3, 1)
		_ = d.DestroyGI(ctx, "GPU-a", 3)
		_, _ = d.SetMode(ctx, "GPU-a", false)
	}
	all()
	driver.current = false
	_, _ = d.SetMode(t.Context(), "GPU-a", true)
	driver.fail = errors.New("in use")
	all()
	want := []string{
		`GPU-a "" MIG mode is set to on `,
		`GPU-a "1g.10gb" an instance is made at unit 6: GPU instance 3 `,
		`GPU-a "" GPU instance 3 gets a compute instance: MIG-x `,
		`GPU-a "" compute instance 1 of GPU instance 3 is destroyed `,
		`GPU-a "1g.10gb" GPU instance 3 at unit 6 is destroyed `,
		`GPU-a "" MIG mode is set to off `,
		`GPU-a "" MIG mode is set to on, and becomes so with the GPU's next reset `,
		`GPU-a "" MIG mode is set to on in use`,
		`GPU-a "" an instance is made at unit 6 in use`,
		`GPU-a "" GPU instance 3 gets a compute instance in use`,
		`GPU-a "" compute instance 1 of GPU instance 3 is destroyed in use`,
		`GPU-a "" GPU instance 3 is destroyed in use`,
		`GPU-a "" MIG mode is set to off in use`,
	}
	if d := cmp.Diff(want, log); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
