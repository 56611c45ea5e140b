// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/sharing"
)

// MIGLayout is the MIG layout of some of a pool's GPUs. Of several that name one GPU, the last one counts.
type MIGLayout struct {
	// PCI are the products, each "0x" and eight hexadecimal digits: device, then vendor. With a board's own id after a
	// colon, in the same form, it is that board alone. None means every product.
	PCI []string `yaml:"deviceFilter"`
	// GPUs are NVML indexes; none means all.
	GPUs []int `yaml:"index"`
	// Enabled is MIG mode.
	Enabled bool `yaml:"migEnabled"`
	// Instances are what the GPU has, all of it; only where Enabled is true.
	Instances []MIGCount `yaml:"instances"`
	// Shared says that each instance is shared by memory, like a GPU, and not given whole; only with Instances.
	Shared bool `yaml:"shared"`
}

// MIGCount is a number of instances of one profile.
type MIGCount struct {
	// Profile is a name as mig.ParseWish reads it.
	Profile string
	Count   int
}

// AutoMIGMode says whether the MIG mode of a pool's idle GPUs follows demand.
type AutoMIGMode uint8

// The choices.
const (
	// AutoMIGModeDefault is AutoMIGModeOn where the pool's mode is ModeAuto, and no otherwise.
	AutoMIGModeDefault AutoMIGMode = iota
	AutoMIGModeOn
	AutoMIGModeOff
)

// FollowsDemand reports whether demand may switch the MIG mode of the pool's idle GPUs. No other rule sets their mode.
func (p Pool) FollowsDemand() bool { return p.Mode == ModeAuto && p.AutoMIGMode != AutoMIGModeOff }

// onDemand checks that it says something about the mode.
func (c *checker) onDemand(path string, p Pool) {
	switch {
	case p.AutoMIGMode > AutoMIGModeOff:
		c.bad(path, "", "use an AutoMIGMode of this package", "does not say whether GPUs change with demand")
	case p.AutoMIGMode != AutoMIGModeDefault && p.Mode != ModeAuto:
		c.bad(path, strconv.FormatBool(p.AutoMIGMode == AutoMIGModeOn), "leave it out, or set mode to auto",
			"is for mode auto alone, and the mode is %s", p.Mode)
	}
}

// autoMIGField is true, false, or left out.
func autoMIGField(to *AutoMIGMode) field {
	f := flag(new(bool),
		"Lets Kerf switch the MIG mode of idle GPUs on demand, if no layout names them. It needs mode auto.").def(
		"true in mode auto").rename("migOnDemand")
	f.read = func(r *reader, path string, n *yaml.Node) {
		if *to = AutoMIGModeOff; r.flag(path, n) {
			*to = AutoMIGModeOn
		}
	}
	f.to = to
	f.write = func() any {
		if *to == AutoMIGModeDefault {
			return nil
		}
		return new(*to == AutoMIGModeOn)
	}
	return f
}

// DefaultMIGIdleTTL is how long an instance stays after its grant where the pool does not say it.
const DefaultMIGIdleTTL = 5 * time.Minute

// IdleTTL is the pool's MIGIdleTTL, or the default.
func (p Pool) IdleTTL() time.Duration { return cmp.Or(p.MIGIdleTTL, DefaultMIGIdleTTL) }

// The bounds of MIGIdleTTL, and how it is to be written.
const (
	leastWarm  = time.Second
	mostWarm   = 24 * time.Hour
	warmRemedy = "write a time from 1s to 24h, such as 5m"
)

// SharesMIG reports whether some GPUs of the pool may have instances that are shared.
func (p Pool) SharesMIG() bool {
	return slices.ContainsFunc(p.MIGLayouts, func(l MIGLayout) bool { return l.Shared })
}

func parseWarm(field, s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < leastWarm || d > mostWarm {
		return 0, sharing.Invalid(field, s, warmRemedy, "is not a time to keep an idle instance")
	}
	return d, nil
}

func (c *checker) migWarm(path string, d time.Duration) {
	if d != 0 && (d < leastWarm || d > mostWarm) {
		c.bad(path, d.String(), warmRemedy, "is not a time to keep an idle instance")
	}
}

// Bounds: past any GPU and any node, and what indexes can be.
const (
	maxMIGCount = 32
	maxGPUIndex = 1023
)

var pciID = regexp.MustCompile(`^0[xX][0-9a-fA-F]{8}(:0[xX][0-9a-fA-F]{8})?$`)

// PCIName is how a product, or a board, is written in MIGLayout.PCI.
func PCIName(id uint32) string { return fmt.Sprintf("0x%08X", id) }

func (l MIGLayout) clone() MIGLayout {
	l.PCI, l.GPUs, l.Instances = slices.Clone(l.PCI), slices.Clone(l.GPUs), slices.Clone(l.Instances)
	return l
}

func cloneLayouts(list []MIGLayout) []MIGLayout {
	var out []MIGLayout
	for _, l := range list {
		out = append(out, l.clone())
	}
	return out
}

// mig checks a pool's layouts. Whether a GPU has the profiles, and room for them, is seen where the GPU is.
func (c *checker) mig(path string, list []MIGLayout) {
	for i, l := range list {
		here := at(path, i)
		for k, id := range l.PCI {
			if !pciID.MatchString(id) {
				c.bad(at(here+".deviceFilter", k), id,
					"write device and vendor, such as 0x233010DE, or with the board 0x233010DE:0x16C110DE",
					"is not a PCI id")
			}
		}
		for k, index := range l.GPUs {
			if index < 0 || index > maxGPUIndex || slices.Index(l.GPUs, index) < k {
				c.bad(at(here+".index", k), strconv.Itoa(index), "write each GPU's index once, from 0",
					"is not an index, or stands twice")
			}
		}
		if !l.Enabled && len(l.Instances) > 0 {
			c.bad(here+".instances", "", "leave it out, or set migEnabled to true",
				"has instances where migEnabled is false")
		}
		if l.Shared && !slices.ContainsFunc(l.Instances, func(n MIGCount) bool { return n.Count > 0 }) {
			c.bad(here+".shared", "true", "name the instances, or leave shared out",
				"is true of a layout without instances")
		}
		for k, n := range l.Instances {
			where := here + ".instances"
			if _, err := mig.ParseWish(where, n.Profile); err != nil {
				c.all(err)
			}
			if n.Count < 0 || n.Count > maxMIGCount {
				c.bad(where, fmt.Sprintf("%s: %d", n.Profile, n.Count), fmt.Sprintf("write 0 to %d", maxMIGCount),
					"is not a number of instances")
			}
			if slices.IndexFunc(l.Instances, func(m MIGCount) bool { return m.Profile == n.Profile }) < k {
				c.bad(where, n.Profile, "name each profile once", "is named twice")
			}
		}
	}
}

func (l *MIGLayout) fields() fields {
	return named(l, fields{
		texts(&l.PCI, "PCI IDs of the products: device and vendor, or also the board's ID after a colon.").like(
			"0x233010DE").def("every product").rename("pci").inline(),
		indexes(&l.GPUs, "NVML indexes of the GPUs.").def("all").rename("gpus"),
		flag(&l.Enabled, "Whether the GPUs are in MIG mode.").must().rename("enabled"),
		l.instances(),
		flag(&l.Shared,
			"Whether pods share each instance by memory. Otherwise each instance is granted as a unit.").def("false"),
	})
}

// instances keeps the order of the profiles.
func (l *MIGLayout) instances() field {
	of := Type{Kind: KindWhole, Min: "0", Max: strconv.Itoa(maxMIGCount)}
	return field{
		Field: Field{Doc: "The number of instances of each MIG profile on a GPU. It needs `migEnabled: true`.",
			Type: Type{Kind: KindMap, Of: &of, Example: "{1g.10gb: 7}"}},
		to: &l.Instances,
		read: func(r *reader, path string, n *yaml.Node) {
			r.pairs(path, n, func(path, name string, _, value *yaml.Node) {
				l.Instances = append(l.Instances, MIGCount{name, counted(r, path, value, parseCount)})
			})
		},
		write: func() any {
			all := &yaml.Node{Kind: yaml.MappingNode}
			for _, n := range l.Instances {
				all.Content = append(all.Content, nameNode(n.Profile), nodeOf(n.Count))
			}
			return all
		},
	}
}

// layoutsField is the list of a pool's layouts. A missing part of a GPU's mode is a separate error.
func layoutsField(to *[]MIGLayout) field {
	f := objects(to, (*MIGLayout).fields,
		"Fixed MIG layouts of the nodes' GPUs. If several entries match a GPU, the last one applies.")
	f.read = func(r *reader, path string, n *yaml.Node) {
		r.list(path, n, func(path string, n *yaml.Node) {
			var l MIGLayout
			r.mapping(path, n, l.fields())
			if _, said := r.lines[path+".migEnabled"]; !said && !r.hides(path) {
				l.Enabled = true // else what follows from the default would be said, too
				r.bad(path+".migEnabled", n, "", "write true or false: whether the GPUs are in MIG mode", "is missing")
			}
			*to = append(*to, l)
		})
	}
	return f.rename("mig")
}

func parseCount(field, s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > maxGPUIndex {
		return 0, sharing.Invalid(field, s, fmt.Sprintf("write 0 to %d", maxGPUIndex), "is out of range")
	}
	return n, nil
}

// flag reads true or false; anything else counts as true, so that it is the only error that is reported.
func (r *reader) flag(path string, n *yaml.Node) bool {
	if !r.is(path, n, yaml.ScalarNode, "true or false") {
		return true
	}
	if n.Value != "true" && n.Value != "false" || n.ShortTag() != "!!bool" {
		r.bad(path, n, n.Value, "write true or false, without quotes", "is not true or false")
	}
	return n.Value != "false"
}
