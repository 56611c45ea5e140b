// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/internal/dcgm"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// dcgmRetry is how long to wait before DCGM is looked for again after it ended with an error.
	dcgmRetry = 10 * time.Second
	// dcgmStale is from which age on DCGM's values count as not told: its engine hangs.
	dcgmStale = 5 * time.Second
)

// dcgmSource is NVML with what DCGM tells laid over it. Processes and their use are NVML's: DCGM has no list of them.
type dcgmSource struct {
	*nvmlSource
	every time.Duration
	log   *slog.Logger

	mu     sync.Mutex
	values map[sharing.GPUID]dcgm.Values
	at     time.Time
}

func newDCGMSource(below *nvmlSource, every time.Duration, log *slog.Logger) *dcgmSource {
	return &dcgmSource{nvmlSource: below, every: every, log: log}
}

// Name implements collect.Source: it says what the newest values came from.
func (s *dcgmSource) Name() string {
	if _, fresh := s.of(""); fresh {
		return "dcgm"
	}
	return s.nvmlSource.Name()
}

// Read implements collect.Source.
func (s *dcgmSource) Read(ctx context.Context, gpu collect.Info, since time.Time) collect.Reading {
	r := s.nvmlSource.Read(ctx, gpu, since)
	if r.Err != nil {
		return r
	}
	told, _ := s.of(gpu.UUID)
	for field, v := range told {
		r.Fields[collect.Field(field)] = v
	}
	return r
}

// of returns a GPU's values while they are fresh.
func (s *dcgmSource) of(id sharing.GPUID) (v dcgm.Values, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || time.Since(s.at) > dcgmStale {
		return nil, false
	}
	return s.values[id], true
}

func (s *dcgmSource) set(values map[sharing.GPUID]dcgm.Values) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values, s.at = values, time.Now()
}

// stream reads DCGM until ctx ends. A library that hangs delays nobody but the end of the program.
func (s *dcgmSource) stream(ctx context.Context) error {
	said := ""
	for {
		err := s.use(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the monitor is stopping; the error is only of that
		}
		if text := err.Error(); text != said {
			s.log.Info("no DCGM in use; NVML alone tells", "reason", text)
			said = text
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(dcgmRetry):
		}
	}
}

func (s *dcgmSource) use(ctx context.Context) (err error) {
	var quick, slow []uint16
	for _, f := range collect.Fields() {
		if seldom(f.Field) {
			slow = append(slow, uint16(f.Field))
		} else {
			quick = append(quick, uint16(f.Field))
		}
	}
	e, err := dcgm.Open(dcgm.Options{Fields: quick, Slow: slow, Every: s.every, Log: s.log})
	if err != nil {
		return err
	}
	defer func() {
		if cerr := e.Close(); cerr != nil {
			s.log.Warn("dcgm did not close", "error", cerr.Error())
		}
	}()
	s.log.Info("dcgm in use")
	t := time.NewTicker(s.every)
	defer t.Stop()
	for {
		values, err := e.Read()
		if err != nil {
			return err
		}
		s.set(values)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}

// seldom reports whether a field changes so slowly that reading it less often loses nothing.
func seldom(f collect.Field) bool {
	switch f { //nolint:exhaustive // the others change all the time
	case collect.FieldPowerLimit, collect.FieldMemoryTotal, collect.FieldMemoryReserved, collect.FieldTemperature, collect.FieldMemoryTemperature,
		collect.FieldSMClock, collect.FieldMemoryClock, collect.FieldPCIeReplays, collect.FieldECCCorrected, collect.FieldECCUncorrected,
		collect.FieldRemappedCorrected, collect.FieldRemappedUncorrected, collect.FieldRemapFailed:
		return true
	}
	return false
}
