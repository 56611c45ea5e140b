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
	After time.Duration `yaml:"timeout"`
	Do    IdleDo        `yaml:"action"`
	// Except are namespaces that are left alone.
	Except []string `yaml:"exemptNamespaces"`
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
	// IdleWarn: the pod gets an event, too.
	IdleWarn
	// IdleEvict: the pod is evicted, too. A process of no pod is never ended for being idle.
	IdleEvict
)

// String returns "report", "warn" or "evict".
func (d IdleDo) String() string {
	switch d {
	case IdleWarn:
		return "warn"
	case IdleEvict:
		return "evict"
	case IdleReport:
	}
	return "report"
}

// ParseIdleDo reads "report", "warn" or "evict"; field names the input for the error, a *sharing.FieldError.
func ParseIdleDo(field, s string) (IdleDo, error) {
	for _, d := range []IdleDo{IdleReport, IdleWarn, IdleEvict} {
		if d.String() == s {
			return d, nil
		}
	}
	return IdleReport, sharing.Invalid(field, s, "write report, warn or evict", "is not a policy for idle grants")
}

func idleTime(field, s string, d time.Duration, err error) (time.Duration, error) {
	if err != nil || d < MinIdle || d > MaxIdle {
		return 0, sharing.Invalid(field, s, "write a time with a unit from "+MinIdle.String()+" to "+MaxIdle.String()+
			", such as 30m", "is not a time to be idle")
	}
	return d, nil
}

func parseIdleTime(field, s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	return idleTime(field, s, d, err)
}

func (i *Idle) fields() fields {
	return named(i, fields{
		span(&i.After, parseIdleTime, MinIdle, MaxIdle, "How long a pod may use no GPU time.").rename("after"),
		word(&i.Do, ParseIdleDo, "What happens then. `report` shows it in status and audit log, `warn` also sends "+
			"an event, `evict` also evicts the pod.", IdleReport, IdleWarn, IdleEvict).def("report").rename("do",
			"notify=warn"),
		texts(&i.Except, "Namespaces that are exempt.").rename("except"),
	})
}

func (c *checker) idle(path string, i Idle) {
	if i.Do > IdleEvict {
		c.bad(path+".action", "", "use an IdleDo of this package", "is not a policy for idle grants")
	}
	switch {
	case i.After != 0:
		if _, err := idleTime(path+".timeout", i.After.String(), i.After, nil); err != nil {
			c.all(err)
		}
	case i.Do != IdleReport || len(i.Except) > 0:
		c.bad(path+".timeout", "", "write a time, such as 30m", "is missing")
	}
	for n, name := range i.Except {
		where := at(path+".exemptNamespaces", n)
		if err := sharing.ValidateName(where, name); err != nil {
			c.all(err)
		}
		if slices.Index(i.Except, name) < n {
			c.bad(where, name, "name it once", "is named twice")
		}
	}
}
