// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// Idle is what becomes of pods that leave all their GPUs idle; the zero value is nothing.
type Idle struct {
	// After is how long no GPU time was used; 0 for never.
	After time.Duration `yaml:"after"`
	Do    IdleDo        `yaml:"do"`
	// Except are namespaces that are left alone.
	Except []string `yaml:"except"`
}

// MinIdle and MaxIdle bound Idle.After.
const (
	MinIdle = time.Minute
	MaxIdle = 365 * 24 * time.Hour
)

// IdleDo is what happens to those who are idle.
type IdleDo uint8

// The policies for idle grants.
const (
	// IdleReport: status and audit log say so (the default).
	IdleReport IdleDo = iota
	// IdleNotify: the pod gets an event, too.
	IdleNotify
	// IdleEvict: the pod is evicted, too. A process of no pod is never ended for being idle.
	IdleEvict
)

// String returns "report", "notify" or "evict".
func (d IdleDo) String() string {
	switch d {
	case IdleNotify:
		return "notify"
	case IdleEvict:
		return "evict"
	case IdleReport:
	}
	return "report"
}

// ParseIdleDo reads "report", "notify" or "evict"; field names the input for the error, a *sharing.FieldError.
func ParseIdleDo(field, s string) (IdleDo, error) {
	for _, d := range []IdleDo{IdleReport, IdleNotify, IdleEvict} {
		if d.String() == s {
			return d, nil
		}
	}
	return IdleReport, sharing.Invalid(field, s, "write report, notify or evict", "is not a policy for idle grants")
}

func idleTime(field, s string, d time.Duration, err error) (time.Duration, error) {
	if err != nil || d < MinIdle || d > MaxIdle {
		return 0, sharing.Invalid(field, s, "write a time with a unit from "+MinIdle.String()+" to "+MaxIdle.String()+", such as 30m", "is not a time to be idle")
	}
	return d, nil
}

func parseIdleTime(field, s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	return idleTime(field, s, d, err)
}

func (i *Idle) fields() fields {
	return named(i, fields{
		span(&i.After, parseIdleTime, MinIdle, MaxIdle, "How long a pod may use no GPU time."),
		word(&i.Do, ParseIdleDo, "What happens then. `report` shows it in status and audit log, `notify` also sends an event, `evict` also evicts the pod.", IdleReport, IdleNotify, IdleEvict).def("report"),
		texts(&i.Except, "Namespaces that are exempt."),
	})
}

func (c *checker) idle(path string, i Idle) {
	if i.Do > IdleEvict {
		c.bad(path+".do", "", "use an IdleDo of this package", "is not a policy for idle grants")
	}
	switch {
	case i.After != 0:
		if _, err := idleTime(path+".after", i.After.String(), i.After, nil); err != nil {
			c.all(err)
		}
	case i.Do != IdleReport || len(i.Except) > 0:
		c.bad(path+".after", "", "write a time, such as 30m", "is missing")
	}
	for n, name := range i.Except {
		where := at(path+".except", n)
		if err := sharing.ValidateName(where, name); err != nil {
			c.all(err)
		}
		if slices.Index(i.Except, name) < n {
			c.bad(where, name, "name it once", "is named twice")
		}
	}
}
