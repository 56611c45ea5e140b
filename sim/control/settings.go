// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/model"
)

const keyList = "gpu=N|all, lost=true|false, reset=true, reboot=true, passthrough=true|false, xid=N, xid=N@INSTANCE, " +
	"util=N|auto, latency=5ms, ramp=5s, latency.CALL=5ms, " +
	"error.CALL=STATUS|none, ecc.corrected=N, ecc.uncorrected=N, remap.pending=true|false, remap.failed=true|false, " +
	"slowed=none|heat|power, " +
	"links.down=N, peak=now, list.PID=compute|graphics|mps, fault.PID=13|31|43, " +
	"samples.stale|missing|dead|garbage=PERCENT, " +
	"samples.seed=N, cost.context|list|exit=5ms, cost.stream|unlisted=8MiB"

// ParseSettings reads KEY=VALUE words as `gpusim set` takes them. It returns all errors joined; each is a
// sharing.FieldError. The daemon checks whether the GPUs exist.
func ParseSettings(words []string) (Set, error) {
	var s Set
	var errs []error
	seen := map[string]bool{}
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		if !ok {
			errs = append(errs, sharing.Invalid(w, "", "write "+keyList, "has no ="))
			continue
		}
		if seen[key] {
			errs = append(errs, sharing.Invalid(key, value, "give each key once", "is given twice"))
			continue
		}
		seen[key] = true
		if err := s.parse(key, value); err != nil {
			errs = append(errs, err)
		}
	}
	switch {
	case !seen["gpu"]:
		errs = append(errs, sharing.Invalid("gpu", "", "write gpu=0, gpu=0,1 or gpu=all", "is missing"))
	case len(seen) == 1 && len(errs) == 0:
		errs = append(errs, sharing.Invalid("gpu", "", "add what to set: "+keyList, "is all that is given"))
	}
	return s, errors.Join(errs...)
}

func (s *Set) parse(key, value string) error {
	c := &s.Change
	switch key {
	case "gpu":
		return s.parseGPUs(value)
	case "lost", "passthrough":
		b, err := strconv.ParseBool(value)
		if err != nil || (value != "true" && value != "false") {
			return sharing.Invalid(key, value, "write true or false", "is neither of the two values")
		}
		if key == "lost" {
			c.Lost = &b
		} else {
			c.Passthrough = &b
		}
	case "reset":
		if value != "true" {
			return sharing.Invalid(key, value, "write reset=true, or leave it out", "is not true")
		}
		c.Reset = true
	case "reboot":
		if value != "true" {
			return sharing.Invalid(key, value, "write reboot=true, or leave it out", "is not true")
		}
		c.Reboot = true
	case "peak":
		if value != "now" {
			return sharing.Invalid(key, value, "write peak=now, or leave it out", "is not now")
		}
		c.CountPeak = true
	case "xid":
		value, on, named := strings.Cut(value, "@")
		n, err := strconv.ParseUint(value, 10, 32)
		if gi, bad := strconv.ParseUint(on, 10, 16); named {
			c.XIDInstance, err = &gi, errors.Join(err, bad)
		}
		if err != nil || n < 1 || n > model.MaxXID {
			return sharing.Invalid(key, value, fmt.Sprintf("write a number from 1 to %d", model.MaxXID),
				"is not an XID")
		}
		c.XID = &n
	case "util":
		n := model.AutoUtil
		if value != "auto" {
			u, err := strconv.ParseUint(value, 10, 32)
			if err != nil || u > 100 {
				return sharing.Invalid(key, value, "write 0 to 100, or auto", "is not a percentage")
			}
			n = int(u)
		}
		c.Util = &n
	case "slowed":
		return s.parseSlowed(key, value)
	case "latency", "ramp":
		d, err := parseLatency(key, value)
		if err != nil {
			return err
		}
		if key == "latency" {
			c.Latency = &d
		} else {
			c.Ramp = d
		}
	default:
		return s.parseDotted(key, value)
	}
	return nil
}

func parseLatency(key, value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 || d > model.MaxLatency {
		return 0, sharing.Invalid(key, value, "write a time with a unit up to "+model.MaxLatency.String()+
			", such as 5ms; 0s for none", "is not a latency")
	}
	return d, nil
}

func (s *Set) parseGPUs(value string) error {
	if value == "all" {
		s.All = true
		return nil
	}
	seen := map[uint64]bool{}
	for part := range strings.SplitSeq(value, ",") {
		n, err := strconv.ParseUint(part, 10, 31)
		if err != nil || n >= machine.MaxGPUs || seen[n] {
			return sharing.Invalid("gpu", value, "write one GPU's index, several with commas between, or all",
				"does not name GPUs")
		}
		seen[n] = true
		s.GPUs = append(s.GPUs, int(n))
	}
	return nil
}
