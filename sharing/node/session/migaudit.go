// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/exec"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
)

// auditedMIG writes each change of MIG modes and instances into the audit log. This includes layouts, destroyed
// instances, and what is undone after a crash.
type auditedMIG struct {
	exec.Driver
	write func(audit.Entry)
}

// audited is the driver itself where there is no log.
func audited(d exec.Driver, write func(audit.Entry)) exec.Driver {
	if write != nil {
		return &auditedMIG{d, write}
	}
	return d
}

// SetMode implements exec.Driver, as do the others.
func (d *auditedMIG) SetMode(ctx context.Context, gpu sharing.GPUID, on bool) (bool, error) {
	current, err := d.Driver.SetMode(ctx, gpu, on)
	why := "MIG mode is set to off"
	if on {
		why = "MIG mode is set to on"
	}
	if err == nil && !current {
		why += ", and becomes so with the GPU's next reset"
	}
	d.note(gpu, "", why, err)
	return current, err //nolint:wrapcheck // the driver's own, here and below
}

func (d *auditedMIG) CreateGI(ctx context.Context, gpu sharing.GPUID, at mig.Place) (int, error) {
	gi, err := d.Driver.CreateGI(ctx, gpu, at)
	why := fmt.Sprintf("an instance is made at unit %d", at.Start)
	if err == nil {
		why += fmt.Sprintf(": GPU instance %d", gi)
	}
	d.note(gpu, d.name(ctx, gpu, at), why, err)
	return gi, err //nolint:wrapcheck // as above
}

func (d *auditedMIG) DestroyGI(ctx context.Context, gpu sharing.GPUID, gi int) error {
	profile, at := d.of(ctx, gpu, gi)
	err := d.Driver.DestroyGI(ctx, gpu, gi)
	d.note(gpu, profile, fmt.Sprintf("GPU instance %d%s is destroyed", gi, at), err)
	return err //nolint:wrapcheck // as above
}

func (d *auditedMIG) CreateCI(ctx context.Context, gpu sharing.GPUID, gi int) (exec.Compute, error) {
	c, err := d.Driver.CreateCI(ctx, gpu, gi)
	why := fmt.Sprintf("GPU instance %d gets a compute instance", gi)
	if err == nil {
		why += ": " + c.UUID
	}
	d.note(gpu, "", why, err)
	return c, err //nolint:wrapcheck // as above
}

func (d *auditedMIG) DestroyCI(ctx context.Context, gpu sharing.GPUID, gi, ci int) error {
	err := d.Driver.DestroyCI(ctx, gpu, gi, ci)
	d.note(gpu, "", fmt.Sprintf("compute instance %d of GPU instance %d is destroyed", ci, gi), err)
	return err //nolint:wrapcheck // as above
}

func (d *auditedMIG) note(gpu sharing.GPUID, profile, why string, err error) {
	e := audit.Entry{Time: time.Now(), Type: audit.MIGStep, By: "kerf-agent",
		Shares: []audit.Share{{GPU: string(gpu), MIG: profile}}, Reason: why}
	if err != nil {
		e.Error = err.Error()
	}
	d.write(e)
}

// name is the profile's name, empty where the driver does not tell it.
func (d *auditedMIG) name(ctx context.Context, gpu sharing.GPUID, at mig.Place) string {
	table, err := d.Table(ctx, gpu)
	if err != nil {
		return ""
	}
	return table.Name(at.Profile)
}

// of is which instance has the id, as far as the driver tells it.
func (d *auditedMIG) of(ctx context.Context, gpu sharing.GPUID, gi int) (profile, at string) {
	list, err := d.Instances(ctx, gpu)
	if err != nil {
		return "", ""
	}
	for _, in := range list {
		if in.GI == gi {
			return d.name(ctx, gpu, in.Place), fmt.Sprintf(" at unit %d", in.Place.Start)
		}
	}
	return "", ""
}
