// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/internal/dcgm"
	"github.com/kerf-gpu/kerf/internal/quiesce"
	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// dcgmRetry is how long to wait before DCGM is looked for again after it ended with an error.
	dcgmRetry = 10 * time.Second
	// dcgmStale is the age from which DCGM's values count as unknown: its engine hangs.
	dcgmStale = 5 * time.Second
)

// Values of --dcgm-engine, which may also be an address.
const (
	// EngineAuto is the engine at LocalEngine if one runs, else one in this process.
	EngineAuto = "auto"
	// EngineEmbedded is an engine in this process.
	EngineEmbedded = "embedded"
	// LocalEngine is where nv-hostengine listens by default.
	LocalEngine = "127.0.0.1:5555"
)

// DCGM is NVML with what DCGM tells laid over it. Processes and their use are NVML's: DCGM has no list of them.
type DCGM struct {
	*NVML
	every  time.Duration
	engine string
	log    *slog.Logger

	mu     sync.Mutex
	values dcgm.Reading
	at     time.Time
	// read is when each GPU was.
	read map[sharing.GPUID]time.Time
}

// NewDCGM lays an engine's values over another source's. engine is as the flag --dcgm-engine has it.
func NewDCGM(below *NVML, every time.Duration, engine string, log *slog.Logger) *DCGM {
	return &DCGM{NVML: below, every: every, engine: engine, log: log, read: map[sharing.GPUID]time.Time{}}
}

// Name implements collect.Source: it says what the newest values came from.
func (s *DCGM) Name() string {
	if _, fresh := s.newest(); fresh {
		return "dcgm"
	}
	return s.NVML.Name()
}

// Read implements collect.Source.
func (s *DCGM) Read(ctx context.Context, gpu collect.Info) collect.Reading {
	newest, _ := s.newest()
	whole := newest.GPUs[gpu.UUID]
	known, often := elsewhere{map[collect.Field]float64{}, map[collect.Field]float64{}}, s.often(gpu.UUID)
	for field, v := range whole {
		if f := collect.Field(field); often && restless(f) {
			known.rest[f] = v
		} else {
			known.better[f] = v
		}
	}
	r := s.NVML.read(ctx, gpu, known)
	if r.Err != nil {
		return r
	}
	r.Device.Tensor, r.Device.Occupancy = activity(whole, collect.FieldProfTensor),
		activity(whole, collect.FieldProfSMOccupancy)
	for i, in := range r.Device.Instances {
		v := newest.Instances[dcgm.Instance{GPU: gpu.UUID, GI: in.GI}]
		r.Device.Instances[i].SM = activity(v, collect.FieldProfGREngine)
		r.Device.Instances[i].DRAM = activity(v, collect.FieldProfDRAM)
		r.Device.Instances[i].Tensor = activity(v, collect.FieldProfTensor)
		r.Device.Instances[i].Occupancy = activity(v, collect.FieldProfSMOccupancy)
	}
	return r
}

// often reports whether a GPU is read more often than DCGM reads it: what changes all the time is then newer from the
// driver itself.
func (s *DCGM) often(id sharing.GPUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	before, ok := s.read[id]
	s.read[id] = now
	return ok && now.Sub(before) < s.every*3/4
}

// restless reports whether a field changes all the time.
func restless(f collect.Field) bool {
	return f == collect.FieldPower || f == collect.FieldEnergy || f == collect.FieldBusy || f == collect.FieldMemoryBusy
}

// activity is a ratio of time, if known and valid.
func activity(v dcgm.Values, f collect.Field) attribution.Reading[attribution.Ratio] {
	n, ok := v[uint16(f)]
	if !ok || n < 0 || n > 1 {
		return attribution.Reading[attribution.Ratio]{}
	}
	return attribution.Known(attribution.Ratio(n))
}

// newest are the engine's values while they are fresh.
func (s *DCGM) newest() (r dcgm.Reading, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || time.Since(s.at) > dcgmStale+2*s.every {
		return dcgm.Reading{}, false
	}
	return s.values, true
}

// forget takes the values back: their engine has ended.
func (s *DCGM) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = time.Time{}
}

func (s *DCGM) set(values dcgm.Reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values, s.at = values, time.Now()
}

// Stream reads DCGM until ctx ends. A library that hangs delays only the end of the program.
func (s *DCGM) Stream(ctx context.Context) error {
	said := ""
	for {
		err := s.use(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the monitor is stopping; the error is only of that
		}
		if text := err.Error(); text != said {
			s.log.Info("failed to use DCGM, will use NVML only", "reason", text)
			said = text
		}
		wait := dcgmRetry
		if errors.Is(err, errAsked) {
			wait = askedEvery
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

func (s *DCGM) use(ctx context.Context) (err error) {
	var quick, slow []uint16
	for _, f := range collect.Fields() {
		if seldom(f.Field) {
			slow = append(slow, uint16(f.Field))
		} else {
			quick = append(quick, uint16(f.Field))
		}
	}
	// DCGM watches every GPU for as long as it runs, so it runs while the agent asks for none.
	h := newHolds(s.quiet)
	defer h.release()
	if err := h.on(s.uuids()); err != nil {
		return err
	}
	remote := s.remote(ctx)
	e, err := dcgm.Open(dcgm.Options{Fields: quick, Slow: slow, Whole: wholeGPUs(), Every: s.every, Remote: remote,
		Log: s.log})
	if err != nil {
		return err
	}
	defer func() {
		s.forget()
		if cerr := e.Close(); cerr != nil {
			s.log.Warn("failed to close DCGM", "error", cerr.Error())
		}
	}()
	s.log.Info("connected to DCGM", "engine", cmp.Or(remote, EngineEmbedded))
	t, ask := time.NewTicker(s.every), time.NewTicker(askedEvery)
	defer t.Stop()
	defer ask.Stop()
	for {
		values, err := e.Read()
		if err != nil {
			return err
		}
		s.set(values)
		for due := false; !due; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-t.C:
				due = true
			case <-ask.C:
				if err := h.on(s.uuids()); err != nil {
					return err
				}
			}
		}
	}
}

// uuids are those of the GPUs that are known, and the driver's library, which DCGM has open.
func (s *DCGM) uuids() []sharing.GPUID {
	out := []sharing.GPUID{quiesce.Library}
	for _, g := range s.GPUs() {
		out = append(out, g.UUID)
	}
	return out
}

// remote is where the engine is that is to be used, empty for one in this process.
func (s *DCGM) remote(ctx context.Context) string {
	switch s.engine {
	case EngineEmbedded:
		return ""
	case EngineAuto:
		d := net.Dialer{Timeout: time.Second}
		c, err := d.DialContext(ctx, "tcp", LocalEngine)
		if err != nil {
			return ""
		}
		_ = c.Close() // the connection only tests for a listener
		return LocalEngine
	}
	return s.engine
}

// wholeGPUs are profiling fields of GPUs that need no values of MIG instances.
func wholeGPUs() []uint16 {
	return []uint16{uint16(collect.FieldProfSMActive), uint16(collect.FieldProfPCIeSent),
		uint16(collect.FieldProfPCIeReceived)}
}

// seldom reports whether a field changes so slowly that reading it less often loses nothing.
func seldom(f collect.Field) bool {
	switch f { //nolint:exhaustive // the others change all the time
	case collect.FieldPowerLimit, collect.FieldMemoryTotal, collect.FieldMemoryReserved, collect.FieldTemperature,
		collect.FieldMemoryTemperature,
		collect.FieldSMClock, collect.FieldMemoryClock, collect.FieldPCIeReplays, collect.FieldECCCorrected,
		collect.FieldECCUncorrected,
		collect.FieldRemappedCorrected, collect.FieldRemappedUncorrected, collect.FieldRemapFailed,
		collect.FieldRetiredSingle,
		collect.FieldRetiredDouble, collect.FieldRetiredPending, collect.FieldNVLinkBandwidth:
		return true
	}
	return false
}
