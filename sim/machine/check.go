// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// checker builds a machine from a machine file and collects every error by its path.
type checker struct {
	models map[string]Model
	errs   []error
}

func (c *checker) bad(field, value, remedy, problem string, args ...any) {
	c.errs = append(c.errs, sharing.Invalid(field, value, remedy, problem, args...))
}

// number refuses v outside least..most; 0 stands for "not given" where least is above it.
func (c *checker) number(field string, v, least, most int) {
	if v < least || v > most {
		c.bad(field, strconv.Itoa(v), fmt.Sprintf("write a number from %d to %d", least, most), "is out of range")
	}
}

func (c *checker) machine(doc machineFile) Machine {
	m := Machine{Name: doc.Name, Description: doc.Description, Memacct: Memacct(doc.Memacct), NVSwitch: doc.NVSwitch}
	if !regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`).MatchString(doc.Name) {
		c.bad("name", doc.Name, "write 1 to 63 of a-z, 0-9, dot, dash and underscore, such as h100x8",
			"is not a machine's name")
	}
	switch m.Memacct {
	case "":
		m.Memacct = Dmem
	case Dmem, Misc:
	default:
		c.bad("memacct", doc.Memacct, "write dmem or misc", "is not a way to account memory")
	}
	if n := len(doc.GPUs); n < 1 || n > MaxGPUs {
		c.bad("gpus", strconv.Itoa(n), fmt.Sprintf("list 1 to %d GPUs", MaxGPUs),
			"is no number of GPUs that a machine can have")
		return m
	}
	at := map[PCI]string{}
	for i, g := range doc.GPUs {
		field := fmt.Sprintf("gpus[%d]", i)
		gpu := c.gpu(field, i, g)
		if other, taken := at[gpu.PCI]; taken {
			c.bad(field+".pci", gpu.PCI.String(), "write another address", "is the address of %s, too", other)
		}
		at[gpu.PCI] = field
		m.GPUs = append(m.GPUs, gpu)
	}
	return m
}

func (c *checker) gpu(field string, i int, doc gpuDoc) GPU {
	g := GPU{NUMA: -1}
	model, known := c.models[doc.Model]
	if !known {
		c.bad(field+".model", doc.Model, "write one of "+strings.Join(slices.Sorted(maps.Keys(c.models)), ", "),
			"is not a known model")
	}
	g.Model = model
	if doc.NUMA != nil {
		c.number(field+".numa", *doc.NUMA, 0, 1023)
		g.NUMA = *doc.NUMA
	}
	g.PCI = PCI{Bus: uint8(0x10 + i)} // #nosec G115 -- fewer than 64 GPUs
	if doc.PCI != "" {
		g.PCI = c.pci(field+".pci", doc.PCI)
	}
	if doc.MIG != nil && known {
		g.MIG = true
		if model.MaxMIG == 0 {
			c.bad(field+".mig", "", "take it out, or name a model that has MIG", "is not possible on %s", doc.Model)
			return g
		}
		c.instances(field+".mig.instances", &g, doc.MIG.Instances)
	}
	return g
}

func (c *checker) pci(field, text string) PCI {
	m := regexp.MustCompile(`^(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([01][0-9a-fA-F])\.0$`).FindStringSubmatch(text)
	if m == nil {
		c.bad(field, text, `write domain:bus:device.0, such as "00000000:1B:00.0"`, "is not a PCI address")
		return PCI{}
	}
	hex := func(s string) uint64 {
		n, _ := strconv.ParseUint(s, 16, 32) // the expression lets only digits through; no domain reads 0
		return n
	}
	// #nosec G115 -- so many digits each
	return PCI{Domain: uint32(hex(m[1])), Bus: uint8(hex(m[2])), Device: uint8(hex(m[3]))}
}

// instances puts MIG instances on the GPU, each on a legal place that no other has.
func (c *checker) instances(field string, g *GPU, docs []instanceDoc) {
	for i, doc := range docs {
		f := fmt.Sprintf("%s[%d]", field, i)
		at := slices.IndexFunc(g.Model.Profiles, func(p Profile) bool { return p.Name == doc.Profile })
		if at < 0 {
			var names []string
			for _, p := range g.Model.Profiles {
				names = append(names, p.Name)
			}
			c.bad(f+".profile", doc.Profile, "write one of "+strings.Join(names, ", "),
				"is not a profile of this model")
			continue
		}
		p := g.Model.Profiles[at]
		if !slices.Contains(p.Starts, doc.Start) {
			c.bad(f+".start", strconv.Itoa(doc.Start), fmt.Sprintf("write one of %v", p.Starts), "is not a place of %s",
				p.Name)
			continue
		}
		same, used, overlap := 0, p.Slices, -1
		for j, in := range g.Instances {
			used += in.Profile.Slices
			if in.Profile.ID == p.ID {
				same++
			}
			if mask(in.Start, in.Profile.Size)&mask(doc.Start, p.Size) != 0 {
				overlap = j
			}
		}
		switch {
		case overlap >= 0:
			c.bad(f+".start", strconv.Itoa(doc.Start), "move one of them", "overlaps instance %s at %d",
				g.Instances[overlap].Profile.Name, g.Instances[overlap].Start)
		case same >= p.Max:
			c.bad(f+".profile", p.Name, "take one out", "is on this GPU more than %d times", p.Max)
		case used > g.Model.ComputeSlices:
			c.bad(f+".profile", p.Name, "take one out", "needs more compute slices than the GPU's %d",
				g.Model.ComputeSlices)
		case len(g.Instances) >= g.Model.MaxMIG:
			c.bad(f, p.Name, "take one out", "is more than the %d instances of this model", g.Model.MaxMIG)
		default:
			g.Instances = append(g.Instances, Instance{Profile: p, Start: doc.Start})
		}
	}
}
