// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package dcgm is the only adapter to NVIDIA's Data Center GPU Manager. A host engine, within this process or
// another's, watches fields of all GPUs and MIG instances, and has their newest values.
//
// Promises:
//   - A library that is missing, or lacks a function that is called, is an error before anything of it runs.
//   - A value which DCGM has not (its blanks, and values with an error) is absent and never zero.
//   - Profiling fields are watched only if DCGM says that it can.
//
// It does not promise to survive the library: a fault in it ends the process. That is why one program alone imports
// this package, which nothing depends on. Calls may hang as the driver may; the caller has a goroutine for them.
//
// A process has one host engine, because go-dcgm keeps it in a package variable. It binds to one copy of the library
// for its life. The program itself needs no function of the library, so it starts without DCGM and with LD_BIND_NOW
// set.
package dcgm

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// firstProfiling is the first of the fields that are read from performance counters.
	firstProfiling = 1001
	// fieldUUID is the GPU's UUID, by which its other values are known.
	fieldUUID = 54
	// slowness is how many times as seldom the slow fields are read.
	slowness = 5
)

// Options say what is watched.
type Options struct {
	// Fields are DCGM's numbers of the fields, and Every how often DCGM reads them. Slow are more fields, which it
	// reads five times as seldom.
	Fields, Slow []uint16
	// Whole are profiling fields that are read for whole GPUs only.
	Whole []uint16
	Every time.Duration
	// Remote is where another process's host engine answers, HOST:PORT or, from DCGM 4.5 on, unix://PATH; empty for one
	// within this process.
	Remote string
	Log    *slog.Logger
}

// Values are the newest values of a GPU, or of a MIG instance, by field; unknown ones are absent.
type Values map[uint16]float64

// Reading is what all tell.
type Reading struct {
	GPUs      map[sharing.GPUID]Values
	Instances map[Instance]Values
}

// Engine is a host engine, or a connection to one. It is not safe for concurrent use.
type Engine struct {
	stop      func()
	log       *slog.Logger
	groups    []*fieldGroup
	uuid      map[uint]sharing.GPUID
	last      map[sharing.GPUID]Values
	instances instances
}

// fieldGroup is a group of fields that are watched together.
type fieldGroup struct {
	name   string
	handle dcgm.FieldHandle
	of     dcgm.GroupHandle
	// every is how often its values change, next when it is read again, and since what was read of it.
	every time.Duration
	next  time.Time
	since time.Time
}

// Open starts the engine and watches the fields; profiling fields only those that the first GPU supports. The error is
// sharing.ErrUnavailable when there is no DCGM, or it does not start.
func Open(o Options) (*Engine, error) {
	if err := bind(o.Remote != ""); err != nil {
		return nil, fmt.Errorf("open dcgm: %w", err)
	}
	stop, err := start(o.Remote)
	if err != nil {
		return nil, fmt.Errorf("open dcgm: %w (%w)", err, sharing.ErrUnavailable)
	}
	e := &Engine{stop: stop, log: o.Log, uuid: map[uint]sharing.GPUID{}, last: map[sharing.GPUID]Values{},
		instances: instances{every: o.Every}}
	plain, profiling := split(o.Fields)
	slow, more := split(o.Slow)
	// Read the UUIDs first: without a UUID, the values belong to no known GPU.
	if err := e.watch("kerf-slow", dcgm.GroupAllGPUs(), append(slow, fieldUUID), slowness*o.Every); err != nil {
		stop()
		return nil, fmt.Errorf("open dcgm: %w", err)
	}
	if err := e.watchAll(plain, append(profiling, more...), o); err != nil {
		stop()
		return nil, fmt.Errorf("open dcgm: %w", err)
	}
	return e, nil
}

// watchAll watches the supported profiling fields together with the others, since each group that is read has its
// price. If they cannot be watched, it leaves them out.
func (e *Engine) watchAll(plain, profiling []dcgm.Short, o Options) error {
	supported, err := e.supported(profiling)
	if err == nil {
		err = e.watch("kerf", dcgm.GroupAllGPUs(), slices.Concat(plain, supported), o.Every)
	}
	if err == nil {
		e.instances.fields = slices.DeleteFunc(supported,
			func(f dcgm.Short) bool { return slices.Contains(o.Whole, uint16(f)) })
		return nil
	}
	o.Log.Info("failed to enable profiling fields", "reason", err.Error())
	return e.watch("kerf", dcgm.GroupAllGPUs(), plain, o.Every)
}

// start starts the engine, or connects to one, and returns how it is ended.
func start(remote string) (stop func(), err error) {
	if remote == "" {
		return dcgm.Init(dcgm.Embedded)
	}
	return dcgm.Init(dcgm.Standalone, remote, "0")
}

// split parts the fields that need performance counters from the others.
func split(fields []uint16) (plain, profiling []dcgm.Short) {
	for _, f := range fields {
		if f >= firstProfiling {
			profiling = append(profiling, dcgm.Short(f))
		} else {
			plain = append(plain, dcgm.Short(f))
		}
	}
	return plain, profiling
}

// supported are those of the fields that the first GPU can be profiled for.
func (e *Engine) supported(fields []dcgm.Short) ([]dcgm.Short, error) {
	groups, err := dcgm.GetSupportedMetricGroups(0)
	if err != nil {
		return nil, fmt.Errorf("ask which fields can be profiled: %w (%w)", err, sharing.ErrUnsupported)
	}
	var out []dcgm.Short
	for _, f := range fields {
		if slices.ContainsFunc(groups, func(g dcgm.MetricGroup) bool { return slices.Contains(g.FieldIds, uint(f)) }) {
			out = append(out, f)
		}
	}
	return out, nil
}

// watch watches fields, if there are any.
func (e *Engine) watch(name string, of dcgm.GroupHandle, fields []dcgm.Short, every time.Duration) error {
	if len(fields) == 0 {
		return nil
	}
	group, err := dcgm.FieldGroupCreate(name, fields)
	if err != nil {
		return fmt.Errorf("make field group %q: %w (%w)", name, err, sharing.ErrUnavailable)
	}
	// One sample is kept: older ones were read already.
	if err := dcgm.WatchFieldsWithGroupEx(group, of, every.Microseconds(), 0, 1); err != nil {
		err = errors.Join(err, dcgm.FieldGroupDestroy(group)) // the name is free again
		return fmt.Errorf("watch field group %q: %w (%w)", name, err, sharing.ErrUnavailable)
	}
	e.groups = append(e.groups, &fieldGroup{name: name, handle: group, of: of, every: every, since: time.UnixMicro(0)})
	return nil
}

// Read returns the newest values of every GPU and MIG instance. A value without an update stays; a blank one is
// removed.
func (e *Engine) Read() (Reading, error) {
	now := time.Now()
	if err := e.follow(now); err != nil {
		return Reading{}, err
	}
	for _, g := range e.groups {
		// A GPU is identified by its UUID, which is slow. Until every UUID is known, all are read.
		if now.Before(g.next) && len(e.uuid) > 0 {
			continue
		}
		values, next, err := dcgm.GetValuesSince(g.of, g.handle, g.since)
		if err != nil {
			return Reading{}, fmt.Errorf("read field group %q: %w (%w)", g.name, err, sharing.ErrUnavailable)
		}
		// a read that is a little early is the one that was waited for
		g.since, g.next = next, now.Add(g.every-g.every/8)
		e.take(values)
	}
	return Reading{copied(e.last), copied(e.instances.last)}, nil
}

func copied[K comparable](all map[K]Values) map[K]Values {
	out := make(map[K]Values, len(all))
	for k, v := range all {
		out[k] = maps.Clone(v)
	}
	return out
}

// take puts values in their places, oldest first; those of one call come in no order. A value has four KiB, so that
// none is moved.
func (e *Engine) take(values []dcgm.FieldValue_v2) {
	order := make([]*dcgm.FieldValue_v2, len(values))
	for i := range values {
		order[i] = &values[i]
	}
	slices.SortStableFunc(order, func(a, b *dcgm.FieldValue_v2) int { return cmp.Compare(a.TS, b.TS) })
	for _, v := range order {
		if v.FieldID == fieldUUID && v.Status == 0 && v.StringValue != nil && !blankText(*v.StringValue) {
			e.uuid[v.EntityID] = sharing.GPUID(*v.StringValue)
		}
	}
	for _, v := range order {
		switch {
		case v.FieldID == fieldUUID:
		case v.EntityGroupId == dcgm.FE_GPU:
			if id, ok := e.uuid[v.EntityID]; ok {
				keep(e.last, id, v)
			}
		case v.EntityGroupId == dcgm.FE_GPU_I:
			if at, ok := e.instances.known[v.EntityID]; ok {
				keep(e.instances.last, at, v)
			}
		}
	}
}

// keep puts one value in its place, or takes it away where it is blank.
func keep[K comparable](all map[K]Values, at K, v *dcgm.FieldValue_v2) {
	n, known := numberOf(v)
	if !known {
		delete(all[at], uint16(v.FieldID))
		return
	}
	if all[at] == nil {
		all[at] = Values{}
	}
	all[at][uint16(v.FieldID)] = n
}

// Close ends the engine.
func (e *Engine) Close() error {
	var errs []error
	for _, g := range e.groups {
		errs = append(errs, g.end())
	}
	errs = append(errs, e.instances.end())
	e.stop()
	return errors.Join(errs...)
}

// end ends the watch.
func (g *fieldGroup) end() error {
	if err := errors.Join(dcgm.UnwatchFields(g.handle, g.of), dcgm.FieldGroupDestroy(g.handle)); err != nil {
		return fmt.Errorf("close field group %q: %w (%w)", g.name, err, sharing.ErrUnavailable)
	}
	return nil
}

// DCGM's marks for "no value" (dcgm_structs.h): each kind of number has a blank, and from it on why there is none.
const (
	blankInt32 = 0x7ffffff0
	blankInt64 = 0x7ffffffffffffff0
	blankFloat = 140737488355328.0
)

// numberOf returns a value as a number; known is false for a blank value, an error, or text.
func numberOf(v *dcgm.FieldValue_v2) (n float64, known bool) {
	if v.Status != 0 {
		return 0, false
	}
	switch v.FieldType {
	case dcgm.DCGM_FT_DOUBLE:
		n = v.Float64()
		return n, n < blankFloat && !math.IsNaN(n) && !math.IsInf(n, 0)
	case dcgm.DCGM_FT_INT64:
		i := v.Int64()
		// Some fields are 32 bits wide within.
		narrow := i >= blankInt32 && i <= blankInt32+15
		return float64(i), i < blankInt64 && !narrow
	}
	return 0, false
}

func blankText(s string) bool { return s == "" || strings.HasPrefix(s, "<<<") }
