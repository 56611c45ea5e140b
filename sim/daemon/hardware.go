// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// Where the simulated NVSwitch stands, and the version of its links.
const (
	switchBus     = 0x07
	linkVersion   = 4
	remoteUnknown = 0
	remoteSwitch  = 2
)

func (c *device) info() (wire.Response, error) {
	hw, err := c.d.model.Hardware(c.minor)
	if err != nil {
		return wire.Response{}, err
	}
	numa := wire.Unknown
	if hw.NUMA >= 0 {
		numa = uint64(hw.NUMA)
	}
	minor, m, uuid := uint64(c.minor), hw.Model, c.d.uuids[c.minor] // #nosec G115 -- an index
	return wire.Response{
		Vals: []uint64{
			minor, minor, uint64(m.Memory), uint64(m.Reserved), m.CCMajor, m.CCMinor, m.SMs, m.Architecture, m.Brand,
			uint64(hw.PCI.Domain), uint64(hw.PCI.Bus), uint64(hw.PCI.Device), m.PCIDevice, m.PCISubsys, numa,
			// #nosec G115 -- checked not to be negative
			uint64(m.Context), uint64(m.NVLinks), uint64(m.MaxMIG), m.ThreadsPerSM, uint64(m.BAR1),
			uint64(c.d.model.Costs(c.minor).Stream), uint64(flag(c.d.model.Sliced(c.minor))), // #nosec G115 -- 0 or 1
		},
		Text: strings.Join([]string{uuid, m.Name, machine.Serial(uuid), hw.PCI.String()}, "\n"),
	}, nil
}

func (c *device) nvlink(link uint64) (wire.Response, error) {
	hw, err := c.d.model.Hardware(c.minor)
	switch {
	case err != nil:
		return wire.Response{}, err
	case link >= uint64(hw.Model.NVLinks): // #nosec G115 -- checked not to be negative
		return wire.Response{}, wire.Invalid
	case !c.d.opts.Machine.NVSwitch:
		return vals(nil, 0, remoteUnknown, 0, 0, 0, linkVersion)
	}
	if down, err := c.d.model.LinksDown(c.minor); err != nil || link < uint64(down) { // #nosec G115 -- not negative
		return vals(err, 0, remoteSwitch, 0, switchBus, 0, linkVersion)
	}
	return vals(nil, 1, remoteSwitch, 0, switchBus, 0, linkVersion)
}

// mig returns a GPU that can do MIG.
func (c *device) mig() (machine.GPU, error) {
	hw, err := c.d.model.Hardware(c.minor)
	if err == nil && hw.Model.MaxMIG == 0 {
		err = wire.NotSupported
	}
	return hw, err
}

// systemMemory is 1 for a GPU that uses the machine's memory, which NVML and DCGM do not report.
func (c *device) systemMemory() sharing.Bytes {
	hw, err := c.d.model.Hardware(c.minor)
	if err == nil && hw.Model.SystemMemory {
		return 1
	}
	return 0
}

// flag is 1 for true.
func flag(on bool) int {
	if on {
		return 1
	}
	return 0
}

func (c *device) migProfile(index uint64) (wire.Response, error) {
	hw, err := c.mig()
	if err != nil {
		return wire.Response{}, err
	}
	for _, p := range hw.Model.Profiles {
		if p.Index != index {
			continue
		}
		out := []uint64{
			// #nosec G115 -- checked
			p.ID, uint64(p.Memory), uint64(p.Slices), p.SMs, uint64(p.Max), p.CopyEngines, p.Decoders, p.Encoders,
			p.JPEGs, p.OFAs,
			uint64(hw.Remaining(p)), // #nosec G115 -- not negative
		}
		for _, start := range p.Starts {
			out = append(out, uint64(start), uint64(p.Size)) // #nosec G115 -- checked
		}
		return wire.Response{Vals: out, Text: p.Name}, nil
	}
	return wire.Response{}, wire.NotSupported
}
