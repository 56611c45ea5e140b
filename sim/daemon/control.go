// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/model"
)

// serveControl answers requests, one per line, until the other end closes.
func (d *Daemon) serveControl(ctx context.Context, conn *net.UnixConn) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		<-ctx.Done()
		_ = conn.Close() // a last answer has been written
	})
	defer wg.Wait()
	defer cancel()
	if err := mayControl(conn); err != nil {
		d.log.Warn("control refused", "error", err)
		return
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, control.MaxLine)
	out := json.NewEncoder(conn)
	for lines.Scan() {
		stop, result, err := d.control(lines.Bytes())
		answer := control.Answer{}
		if err == nil {
			answer.Result, err = json.Marshal(result)
		}
		if err != nil {
			answer = control.Refuse(err)
		}
		if out.Encode(answer) != nil {
			return
		}
		if stop {
			d.stop()
			return
		}
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		_ = out.Encode(control.Refuse(sharing.Invalid("request", "", "send a JSON object on one line",
			"cannot be read: %s", err)))
	}
}

// mayControl lets root and the daemon's own user in. The socket's mode says the same; it is set only after
// the socket was made.
func mayControl(conn *net.UnixConn) error {
	cred, err := control.PeerCred(conn)
	if err != nil {
		return err
	}
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("user %d: %w", cred.Uid, sharing.ErrDenied)
	}
	return nil
}

// control does what a line asks for.
func (d *Daemon) control(line []byte) (stop bool, result any, err error) {
	var req control.Request
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		return false, nil, sharing.Invalid("request", "", "send what package control declares", "cannot be read: %s",
			err)
	}
	if (req.Command == control.CmdSet) != (req.Set != nil) {
		return false, nil, sharing.Invalid("set", "", "give it with the command set, and only there",
			"and the command %q do not go together", req.Command)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reap()
	switch req.Command {
	case control.CmdStatus:
		return false, d.status(), nil
	case control.CmdProcesses:
		return false, d.allProcesses(), nil
	case control.CmdLimits:
		d.forgetDead()
		return false, d.limits(), nil
	case control.CmdSet:
		return false, nil, d.set(*req.Set)
	case control.CmdStop:
		return true, nil, nil
	default:
		return false, nil, sharing.Invalid("command", string(req.Command),
			"write status, processes, limits, set or stop", "is not known")
	}
}

// set changes GPUs, all or none. d.mu is held.
func (d *Daemon) set(s control.Set) error {
	gpus := s.GPUs
	switch {
	case s.All && len(gpus) > 0:
		return sharing.Invalid("gpus", "", "give one of the two", "and all are both given")
	case s.All:
		for i := range d.uuids {
			gpus = append(gpus, i)
		}
	case len(gpus) == 0:
		return sharing.Invalid("gpus", "", "name GPUs by index, or all", "is empty")
	}
	if err := d.model.Apply(gpus, s.Change, now()); err != nil {
		return err
	}
	d.log.Info("set", "gpus", gpus, "change", fmt.Sprintf("%+v", describe(s.Change)))
	d.showCaps()
	d.notify()
	return nil
}

// describe makes a change readable: its pointers followed.
func describe(c model.Change) map[string]any {
	m := map[string]any{}
	if c.Lost != nil {
		m["lost"] = *c.Lost
	}
	if c.Reset {
		m["reset"] = true
	}
	if c.Reboot {
		m["reboot"] = true
	}
	if c.XID != nil {
		m["xid"] = *c.XID
	}
	if c.XIDInstance != nil {
		m["xid_instance"] = *c.XIDInstance
	}
	if c.Util != nil {
		m["util"] = *c.Util
	}
	if c.Latency != nil {
		m["latency"], m["ramp"] = *c.Latency, c.Ramp
	}
	if len(c.CallLatency)+len(c.CallStatus) > 0 {
		m["call_latency"], m["call_status"] = c.CallLatency, c.CallStatus
	}
	if c.ECCCorrected != nil {
		m["ecc_corrected"] = *c.ECCCorrected
	}
	if c.ECCUncorrected != nil {
		m["ecc_uncorrected"] = *c.ECCUncorrected
	}
	if c.RemapPending != nil {
		m["remap_pending"] = *c.RemapPending
	}
	if c.RemapFailed != nil {
		m["remap_failed"] = *c.RemapFailed
	}
	if c.Slowed != nil {
		m["slowed"] = *c.Slowed
	}
	if c.LinksDown != nil {
		m["links_down"] = *c.LinksDown
	}
	if c.TimeSlice != nil {
		m["time_slice"] = c.TimeSlice.String()
	}
	if len(c.Lists) > 0 {
		m["lists"] = c.Lists
	}
	return m
}

func (d *Daemon) status() control.Status {
	s := control.Status{
		PID: os.Getpid(), Dir: d.opts.Dir, Machine: d.opts.Machine.Name, Driver: d.opts.Driver.Name,
		DriverVersion: d.opts.Driver.Version, Memacct: string(d.opts.Machine.Memacct), GPUs: []control.GPU{},
	}
	for i, hw := range d.opts.Machine.GPUs {
		st, err := d.model.Status(i)
		if err != nil {
			continue // impossible: every GPU of the machine is in the model
		}
		util := 0
		if !st.Lost {
			util, _, _ = d.model.Utilization(i, now()) // fails only for a lost GPU
		}
		g := control.GPU{
			Index: i, Minor: i, UUID: d.uuids[i], Model: hw.Model.Name, PCI: hw.PCI.String(), NUMA: hw.NUMA,
			PCIDevice: hw.Model.PCIDevice, PCISubsystem: hw.Model.PCISubsys,
			MemoryBytes: st.Memory.Total, ReservedBytes: st.Memory.Reserved, UsedBytes: st.Memory.Used,
			PeakBytes: st.Peak,
			MIG:       st.MIG, Instances: []string{}, Lost: st.Lost, RecoveryAction: st.Recovery.String(),
			Utilization: util, LatencyMS: float64(st.Latency) / float64(time.Millisecond), TimeSlice: st.Slice.String(),
			ComputeMode: uint64(st.Mode), PowerLimitMW: st.PowerLimit,
		}
		instances, _ := d.model.Instances(i) // none on a GPU without MIG, or a lost one
		for _, in := range instances {
			for _, ci := range in.Computes {
				g.Instances = append(g.Instances, migUUID(d.uuids[i], in, ci))
			}
		}
		s.GPUs = append(s.GPUs, g)
	}
	return s
}

func (d *Daemon) limits() []control.Limit {
	all := []control.Limit{}
	for _, l := range d.model.Limits() {
		out := control.Limit{GPU: d.uuids[l.GPU], GPUIndex: l.GPU, Cgroup: l.Group.Dir, SoftBytes: l.Soft,
			UsedBytes: l.Used}
		if l.Hard != model.NoLimit {
			out.HardBytes = &l.Hard
		}
		all = append(all, out)
	}
	return all
}
