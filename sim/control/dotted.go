// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/model"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// parseDotted reads keys of two parts: what to set, and of which call, counter or process.
func (s *Set) parseDotted(key, value string) error {
	what, of, _ := strings.Cut(key, ".")
	c := &s.Change
	switch what {
	case "latency", "error":
		op, ok := wire.Calls()[of]
		if !ok {
			return sharing.Invalid(key, value, "write one of "+strings.Join(wire.CallNames(), ", ")+" after the dot",
				"names no call")
		}
		if what == "error" {
			return s.parseError(key, value, op)
		}
		d, err := parseLatency(key, value)
		if err != nil {
			return err
		}
		if c.CallLatency == nil {
			c.CallLatency = map[wire.Op]time.Duration{}
		}
		c.CallLatency[op] = d
		return nil
	case "ecc":
		return s.parseECC(key, of, value)
	case "list":
		return s.parseList(key, of, value)
	case "fault":
		return s.parseFault(key, of, value)
	case "remap":
		return s.parseRemap(key, of, value)
	case "links":
		return s.parseLinks(key, of, value)
	case "samples":
		return s.parseSamples(key, of, value)
	case "cost":
		return s.parseCost(key, of, value)
	default:
		return sharing.Invalid(key, value, "write "+keyList, "is not a key that can be set")
	}
}

func (s *Set) parseCost(key, of, value string) error {
	c := &s.Change.Costs
	times := map[string]**time.Duration{"context": &c.Context, "list": &c.List, "exit": &c.Exit}
	sizes := map[string]**sharing.Bytes{"stream": &c.Stream, "unlisted": &c.Unlisted}
	if at := times[of]; at != nil {
		d, err := time.ParseDuration(value)
		if err != nil || d < 0 || d > model.MaxCostTime {
			return sharing.Invalid(key, value, "write a time up to "+model.MaxCostTime.String()+", such as 130ms",
				"is not such a time")
		}
		*at = &d
		return nil
	}
	at := sizes[of]
	if at == nil {
		return sharing.Invalid(key, value, "write cost.context, cost.list, cost.exit, cost.stream or cost.unlisted",
			"is not a key that can be set")
	}
	n, err := sharing.ParseBytes(key, value)
	if err != nil || n > model.MaxCost {
		return sharing.Invalid(key, value, "write a size up to "+model.MaxCost.String()+", such as 8MiB",
			"is not such a size")
	}
	*at = &n
	return nil
}

func (s *Set) parseError(key, value string, op wire.Op) error {
	all := wire.Failures()
	status, ok := all[value]
	if !ok && value != "none" {
		return sharing.Invalid(key, value, "write none, or one of "+strings.Join(slices.Sorted(maps.Keys(all)), ", "),
			"is not a status")
	}
	if s.Change.CallStatus == nil {
		s.Change.CallStatus = map[wire.Op]wire.Status{}
	}
	s.Change.CallStatus[op] = status // none: the zero, which is OK
	return nil
}

func (s *Set) parseECC(key, of, value string) error {
	n, err := strconv.ParseUint(value, 10, 63)
	switch {
	case err != nil:
		return sharing.Invalid(key, value, "write a whole number", "is not a count of errors")
	case of == "corrected":
		s.Change.ECCCorrected = &n
	case of == "uncorrected":
		s.Change.ECCUncorrected = &n
	default:
		return sharing.Invalid(key, value, "write ecc.corrected or ecc.uncorrected", "names no counter")
	}
	return nil
}

func (s *Set) parseRemap(key, of, value string) error {
	if value != "true" && value != "false" {
		return sharing.Invalid(key, value, "write true or false", "is neither of the two values")
	}
	is := value == "true"
	switch of {
	case "pending":
		s.Change.RemapPending = &is
	case "failed":
		s.Change.RemapFailed = &is
	default:
		return sharing.Invalid(key, value, "write remap.pending or remap.failed", "is nothing that is said of rows")
	}
	return nil
}

func (s *Set) parseLinks(key, of, value string) error {
	n, err := strconv.ParseUint(value, 10, 8)
	if err != nil || of != "down" {
		return sharing.Invalid(key, value, "write links.down=N", "is not a number of links that are down")
	}
	down := int(n) // 8 bits
	s.Change.LinksDown = &down
	return nil
}

func (s *Set) parseSlowed(key, value string) error {
	reason, ok := map[string]model.Slowed{"none": model.SlowedNot, "heat": model.SlowedByHeat,
		"power": model.SlowedByPower}[value]
	if !ok {
		return sharing.Invalid(key, value, "write none, heat or power", "is no reason to be slowed down")
	}
	s.Change.Slowed = &reason
	return nil
}

func (s *Set) parseList(key, of, value string) error {
	lists := map[string]wire.List{"compute": wire.ListCompute, "graphics": wire.ListGraphics, "mps": wire.ListMPS}
	list, ok := lists[value]
	pid, err := strconv.ParseUint(of, 10, 31)
	if !ok || err != nil || pid == 0 {
		return sharing.Invalid(key, value, "write list.PID=compute, graphics or mps", "is not a process and a list")
	}
	if s.Change.Lists == nil {
		s.Change.Lists = map[int]wire.List{}
	}
	s.Change.Lists[int(pid)] = list
	return nil
}

func (s *Set) parseFault(key, of, value string) error {
	pid, err := strconv.ParseUint(of, 10, 31)
	xid, err2 := strconv.ParseUint(value, 10, 32)
	if err != nil || err2 != nil || pid == 0 {
		return sharing.Invalid(key, value, "write fault.PID=13, 31 or 43", "is not a process and an XID")
	}
	if s.Change.Faults == nil {
		s.Change.Faults = map[int]uint64{}
	}
	s.Change.Faults[int(pid)] = xid
	return nil
}

// parseSamples reads what is wrong with answers about processes; what is left out is right.
func (s *Set) parseSamples(key, of, value string) error {
	n, err := strconv.ParseUint(value, 10, 63)
	if s.Change.Samples == nil {
		s.Change.Samples = &model.SampleNoise{}
	}
	noise := s.Change.Samples
	kinds := map[string]*int{"stale": &noise.Stale, "missing": &noise.Missing, "dead": &noise.Dead,
		"garbage": &noise.Garbage}
	switch kind := kinds[of]; {
	case of == "seed" && err == nil:
		noise.Seed = n
	case of == "seed":
		return sharing.Invalid(key, value, "write a whole number", "is not a seed")
	case kind == nil:
		return sharing.Invalid(key, value,
			"write samples.stale, samples.missing, samples.dead, samples.garbage or samples.seed",
			"names nothing that can be wrong")
	case err != nil || n > 100:
		return sharing.Invalid(key, value, "write 0 to 100", "is not a percentage")
	default:
		*kind = int(n)
	}
	return nil
}
