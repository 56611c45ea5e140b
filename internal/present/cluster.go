// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
)

// Cluster is what the agents of a cluster tell of their nodes. Its JSON is for scripts: fields keep their names and
// meanings, and more may be added.
type Cluster struct {
	Nodes []ClusterNode `json:"nodes"`
	// Left has a sentence for each thing that could not be read.
	Left []string `json:"unknown"`
}

// ClusterNode is one node's report.
type ClusterNode struct {
	Name string `json:"name"`
	// LastSeen is when its agent was heard from last, nil where that is not known; Stale is true once that is too long
	// ago.
	LastSeen *time.Time `json:"lastSeen"`
	Stale    bool       `json:"stale"`
	gpunode.Status
	// Claims are the ResourceClaims of grants, by the grant's ID, as CLAIM/REQUEST.
	Claims map[string][]string `json:"claims,omitempty"`
}

// Filter returns the cluster with the grants of some pods only. Grants of processes have no pod.
func (c Cluster) Filter(keep func(namespace, pod string) bool) Cluster {
	out := Cluster{Left: c.Left}
	for _, n := range c.Nodes {
		n.Grants = slices.DeleteFunc(slices.Clone(n.Grants),
			func(g gpunode.Grant) bool { return !keep(g.Namespace, g.Pod) })
		out.Nodes = append(out.Nodes, n)
	}
	return out
}

// Names returns the GPUNode objects of the cluster, as kubectl names them.
func (c Cluster) Names() []string {
	var out []string
	for _, n := range c.Nodes {
		out = append(out, "gpunode."+gpunode.Group+"/"+n.Name)
	}
	return out
}

// ClusterTable renders nodes, GPUs and grants, one in a line.
func ClusterTable(c Cluster, o Options) string {
	var b strings.Builder
	b.WriteString(nodeTable(c, o))
	b.WriteString("\n" + clusterGPUs(c, o))
	b.WriteString("\n" + clusterGrants(c, o))
	b.WriteString(configLines(c))
	for _, n := range c.Nodes {
		for _, u := range n.PendingPods {
			fmt.Fprintf(&b, "%s: pod %s/%s is pending: %s\n", clean(n.Name), or(u.Namespace), or(u.Pod),
				clean(u.Reason))
		}
	}
	for _, l := range c.Left {
		b.WriteString("not read: " + clean(l) + "\n")
	}
	return b.String()
}

// notReady says why containers with a GPU cannot start; empty if they can.
func (n ClusterNode) notReady() string {
	if n.Ready() {
		return ""
	}
	return n.Condition(gpunode.ConditionReady).Message
}

// state is how a node is in a word, with the style of it.
func (n ClusterNode) state() (string, style) {
	switch {
	case n.Stale:
		return "stale", red
	case !n.Ready():
		return "not ready", red
	case n.Summary.Unhealthy > 0:
		return "degraded", yellow
	}
	return "ready", green
}

func nodeTable(c Cluster, o Options) string {
	head := []string{"NODE", "STATE", "GPUS", "FREE", "LARGEST-FREE", "GRANTS", "ENFORCEMENT", "CONFIG"}
	if o.Wide {
		head = append(head, "POOL", "DRIVER", "AGENT", "LAST-SEEN", "REASON")
	}
	rows, styles := [][]string{head}, []style{bold}
	for _, n := range c.Nodes {
		word, st := n.state()
		row := []string{clean(n.Name), word, strconv.Itoa(n.Summary.GPUs), or(n.Summary.Free),
			or(n.Summary.LargestFree), strconv.Itoa(n.Summary.Grants), or(n.Summary.Levels), or(n.Summary.Config)}
		if o.Wide {
			heard := ""
			if n.LastSeen != nil {
				heard = n.LastSeen.UTC().Format(time.RFC3339)
			}
			row = append(row, or(n.Pool), or(n.DriverVersion), or(n.AgentVersion), or(heard),
				or(strings.ReplaceAll(n.notReady(), "\n", "; ")))
		}
		rows, styles = append(rows, row), append(styles, st)
	}
	if len(rows) == 1 {
		return "No node reports of GPUs: is the agent deployed, and does its node have the label " +
			"kerf.dev/deploy-agent=true?\n"
	}
	return painted(rows, styles, o)
}

// configLines describe the applied configs. They name nodes that have another config than the rest, why a node rejected
// a newer one, and which settings of GPUs are pending.
func configLines(c Cluster) string {
	var b strings.Builder
	have := map[string][]string{}
	for _, n := range c.Nodes {
		hash := ""
		if n.Config != nil {
			hash = n.Config.SHA256
		}
		have[hash] = append(have[hash], clean(n.Name))
	}
	if len(have) > 1 {
		b.WriteString("The nodes have applied different configs:\n")
		for _, hash := range slices.Sorted(maps.Keys(have)) {
			fmt.Fprintf(&b, "  %s on %s\n", cmp.Or(clean(hash), "the built-in default, or none,"),
				strings.Join(have[hash], ", "))
		}
	}
	for _, n := range c.Nodes {
		if n.Config == nil {
			continue
		}
		for _, m := range n.Config.Errors {
			fmt.Fprintf(&b, "%s: new config rejected: %s\n", clean(n.Name), clean(m))
		}
		for _, w := range n.Config.Pending {
			name := clean(n.Name) + "/" + clean(w.GPU)
			if i := slices.IndexFunc(n.GPUs, func(g gpunode.GPU) bool { return g.UUID == w.GPU }); i >= 0 {
				name = GPUName(n.Name, n.GPUs[i])
			}
			fmt.Fprintf(&b, "%s: waits for %s: %s\n", name, clean(strings.Join(w.BlockedBy, ", ")),
				clean(strings.Join(w.Settings, ", ")))
		}
	}
	return b.String()
}

func clusterGPUs(c Cluster, o Options) string {
	head := []string{"NODE/GPU", "STATE", "GRANTED", "FREE", "ALLOCATABLE", "PERCENT", "ENFORCEMENT", "MODEL"}
	if o.Wide {
		head = append(head, "UUID", "PCI", "NUMA", "REASON")
	}
	rows, styles := [][]string{head}, []style{bold}
	for _, n := range c.Nodes {
		for _, g := range n.GPUs {
			word, why, st := gpuState(g)
			over := gpunode.Overcommit{}
			if g.Overcommit != nil {
				over = *g.Overcommit
			}
			granted, free, allocatable := withLent(unsigned(g.GrantedBytes), unsigned(g.BurstBytes)),
				memory(g.FreeBytes), times(memory(g.AllocatableBytes), over.MemoryPercent)
			if g.SystemMemory {
				granted, free, allocatable = unknown, unknown, unknown
			}
			row := []string{
				GPUName(n.Name, g), word, granted, free, allocatable,
				ofPercent(g.GrantedPercent, over.ComputePercent), or(strings.Join(g.Levels, ",")), or(g.Model),
			}
			if o.Wide {
				numa := ""
				if g.NUMANode != nil {
					numa = strconv.Itoa(*g.NUMANode)
				}
				row = append(row, or(g.UUID), or(g.PCI), or(numa), or(why))
			}
			rows, styles = append(rows, row), append(styles, st)
		}
	}
	return painted(rows, styles, o)
}

// gpuState is how a GPU is in a word, and why.
func gpuState(g gpunode.GPU) (word, why string, st style) {
	switch {
	case g.Health != "healthy":
		return or(g.Health), g.HealthReason, red
	case g.Cordoned != "":
		return "cordoned", g.Cordoned, yellow
	case g.Whole:
		return "whole", "", plainStyle
	case g.MIG:
		return "mig", "", plainStyle
	}
	return "healthy", "", plainStyle
}

// GPUName is how people name one GPU of a cluster: its node's name and its index.
func GPUName(node string, g gpunode.GPU) string { return clean(node) + "/" + strconv.Itoa(g.Index) }

func clusterGrants(c Cluster, o Options) string {
	head := []string{"GRANT", "NODE/GPU", "STATE", "MEMORY", "PERCENT", "LEVEL"}
	if o.Wide {
		head = append(head, "BACKEND", "PROFILE", "ID", "CLAIM")
	}
	rows, styles := [][]string{head}, []style{bold}
	for _, n := range c.Nodes {
		name := map[string]string{}
		for _, g := range n.GPUs {
			name[g.UUID] = GPUName(n.Name, g)
		}
		for _, grant := range n.Grants {
			for _, f := range grant.Shares {
				on := name[f.GPU]
				if on == "" {
					on = clean(n.Name) + "/" + clean(f.GPU)
				}
				st := plainStyle
				if grant.State == gpunode.StateReserved {
					st = dim
				}
				row := []string{grantName(grant), on, or(grant.State), guaranteed(unsigned(f.MemoryBytes), 0, f.Whole),
					share(f), or(grant.Level)}
				if o.Wide {
					row = append(row, or(grant.Backend), or(grant.Profile), or(grant.ID),
						or(strings.Join(n.Claims[grant.ID], ",")))
				}
				rows, styles = append(rows, row), append(styles, st)
			}
		}
	}
	return painted(rows, styles, o)
}

// share is the part of a GPU's compute, or the kind of the share.
func share(f gpunode.Share) string {
	switch {
	case f.Whole:
		return "whole"
	case f.MIGProfile != "":
		return clean(f.MIGProfile) + "@" + strconv.Itoa(f.MIGStart)
	}
	return percent(uint32(max(0, f.Percent))) //nolint:gosec // not below 0
}

// grantName names the container or process that has a grant.
func grantName(c gpunode.Grant) string {
	if c.Pod == "" {
		return clean(c.ID)
	}
	return clean(c.Namespace + "/" + c.Pod + "/" + c.Container)
}

// unsigned reads an amount of memory of a report; a negative one is 0.
func unsigned(n int64) uint64 { return uint64(max(0, n)) }

func memory(n int64) string { return size(unsigned(n)) }

// painted lays rows out in columns and gives each line its style where colours are allowed.
func painted(rows [][]string, styles []style, o Options) string {
	lines := strings.Split(strings.TrimSuffix(aligned(rows), "\n"), "\n")
	var b strings.Builder
	for i, l := range lines {
		b.WriteString(line{{styles[i], l}}.render(0, o.Color) + "\n")
	}
	return b.String()
}

// ClusterSlices draws the MIG instances of a cluster's GPUs that support MIG.
func ClusterSlices(c Cluster, o Options) string {
	var b strings.Builder
	for _, n := range c.Nodes {
		for _, g := range n.GPUs {
			m := fromReport(g)
			if m == nil {
				continue
			}
			fmt.Fprintf(&b, "%s  %s\n", GPUName(n.Name, g), or(g.Model))
			for _, l := range m.lines(o.Wide) {
				b.WriteString(l + "\n")
			}
		}
	}
	if b.Len() == 0 {
		return "No GPU of this cluster supports MIG.\n"
	}
	return b.String()
}

// fromReport is nil for a GPU without MIG support, or if nothing is known.
func fromReport(g gpunode.GPU) *MIG {
	if g.MIGState == nil {
		return nil
	}
	s := g.MIGState
	m := &MIG{
		Enabled: g.MIG, LayoutFromPool: s.LayoutFromPool, MemorySlices: int32(s.MemorySlices), //nolint:gosec // at most 8
		Profiles: list(s.Profiles), Error: s.Error, PendingReason: s.PendingReason, SwitchableTo: g.SwitchableTo,
		Instances: []MIGInstance{},
	}
	for _, p := range s.Instances {
		m.Instances = append(m.Instances, MIGInstance{
			Profile: p.Profile, Start: int32(p.Start), MemorySlices: int32(p.MemorySlices), //nolint:gosec // at most 8
			Managed: p.Managed, Ready: p.Ready, Grant: p.Grant, RequestedBy: p.RequestedBy,
		})
	}
	return m
}
