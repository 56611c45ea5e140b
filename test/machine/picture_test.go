// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cgroup"
)

// status is what kerf status -o json prints, as far as scripts may rely on it.
type status struct {
	Ready    bool     `json:"ready"`
	NotReady []string `json:"notReady"`
	Driver   string   `json:"driverVersion"`
	Config   struct {
		Source   string   `json:"source"`
		SHA256   string   `json:"sha256"`
		Errors   []string `json:"errors"`
		Profiles []string `json:"profiles"`
		Waiting  []struct {
			Index int      `json:"index"`
			What  []string `json:"settings"`
			For   []string `json:"blockedBy"`
		} `json:"pending"`
	} `json:"config"`
	Warnings []string `json:"warnings"`
	GPUs     []gpu    `json:"gpus"`
	Grants   []grant  `json:"grants"`
}

type gpu struct {
	UUID     string   `json:"uuid"`
	Index    int      `json:"index"`
	Model    string   `json:"model"`
	Memory   uint64   `json:"capacityBytes"`
	Reserved uint64   `json:"reservedBytes"`
	Used     *uint64  `json:"usedBytes"`
	Granted  uint64   `json:"grantedBytes"`
	Burst    uint64   `json:"burstBytes"`
	Percent  uint32   `json:"grantedPercent"`
	Health   string   `json:"health"`
	Reason   string   `json:"healthReason"`
	Levels   []string `json:"levels"`
	MIG      bool     `json:"mig"`
}

type grant struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	State       string     `json:"state"`
	Recovered   bool       `json:"recovered"`
	GPUs        []string   `json:"gpus"`
	Shares      []fragment `json:"shares"`
	Memory      uint64     `json:"memoryBytes"`
	Percent     uint32     `json:"percent"`
	Used        *uint64    `json:"usedBytes"`
	Level       string     `json:"level"`
	LevelReason string     `json:"levelReason"`
	Cgroup      string     `json:"cgroup"`
	PIDs        []int      `json:"pids"`
	UID         uint32     `json:"userID"`
	Health      string     `json:"health"`
	Whole       bool       `json:"whole"`
	Backend     string     `json:"backend"`
	Compute     struct {
		By  string `json:"by"`
		Why string `json:"reason"`
	} `json:"compute"`
}

func (g grant) label() string {
	if g.Name != "" {
		return g.Name
	}
	return g.ID
}

type fragment struct {
	GPU     string  `json:"gpu"`
	Memory  uint64  `json:"memoryBytes"`
	Burst   uint64  `json:"burstBytes"`
	Percent uint32  `json:"percent"`
	Whole   bool    `json:"whole"`
	MIG     string  `json:"migProfile"`
	Used    *uint64 `json:"usedBytes"`
	Time    *struct {
		Used     *int    `json:"usedPercent"`
		Launches uint64  `json:"launches"`
		Past     uint64  `json:"launchesOverBudget"`
		Waited   float64 `json:"throttledSeconds"`
	} `json:"time"`
}

// simProcess and simLimit are the driver's own truth.
type simProcess struct {
	PID    int    `json:"pid"`
	Cgroup string `json:"cgroup"`
	GPU    string `json:"gpu"`
	Bytes  uint64 `json:"bytes"`
}

type simLimit struct {
	Cgroup string  `json:"cgroup"`
	GPU    string  `json:"gpu"`
	Soft   uint64  `json:"soft_bytes"`
	Hard   *uint64 `json:"hard_bytes"` // null: none
	Used   uint64  `json:"used_bytes"`
}

// picture is everything that can be seen of a machine, read one after the other.
type picture struct {
	status    status
	processes []simProcess
	limits    []simLimit
	cgroups   []string             // absolute, below the parent
	caps      map[[2]string]uint64 // kerf_grant_memory_cap_bytes by grant and GPU
}

// grant returns the grant of that id or name.
func (s status) grant(label string) (grant, bool) {
	for _, g := range s.Grants {
		if g.ID == label || g.Name == label {
			return g, true
		}
	}
	return grant{}, false
}

func (m *machine) grant(label string) grant {
	m.t.Helper()
	g, ok := m.state().grant(label)
	if !ok {
		m.t.Fatalf("no grant %q", label)
	}
	return g
}

// uuid is the UUID of the GPU with that index.
func (m *machine) uuid(index int) string {
	m.t.Helper()
	return m.gpu(index).UUID
}

func (m *machine) gpu(index int) gpu {
	m.t.Helper()
	for _, g := range m.state().GPUs {
		if g.Index == index {
			return g
		}
	}
	m.t.Fatalf("no GPU %d", index)
	return gpu{}
}

func (m *machine) processes() []simProcess {
	m.t.Helper()
	r := m.gpusim("processes", "-o", "json")
	if r.code != 0 {
		m.t.Fatalf("gpusim processes: %v", r)
	}
	return decode[[]simProcess](m.t, r.out)
}

func (m *machine) limits() []simLimit {
	m.t.Helper()
	r := m.gpusim("limits", "-o", "json")
	if r.code != 0 {
		m.t.Fatalf("gpusim limits: %v", r)
	}
	return decode[[]simLimit](m.t, r.out)
}

func (m *machine) look() picture {
	m.t.Helper()
	p := picture{status: m.state(), processes: m.processes(), limits: m.limits()}
	if m.parent != "" {
		for _, c := range children(m.parent) {
			p.cgroups = append(p.cgroups, filepath.Join(m.parent, c))
		}
	}
	p.caps = m.capsByMetrics()
	return p
}

var capSeries = regexp.MustCompile(`^kerf_grant_memory_cap_bytes\{(.*)\} (\S+)$`)

// capsByMetrics reads kerf_grant_memory_cap_bytes.
func (m *machine) capsByMetrics() map[[2]string]uint64 {
	m.t.Helper()
	caps := map[[2]string]uint64{}
	for line := range strings.Lines(m.metrics()) {
		found := capSeries.FindStringSubmatch(strings.TrimSpace(line))
		if found == nil {
			continue
		}
		v, err := strconv.ParseFloat(found[2], 64)
		if err != nil {
			m.t.Fatalf("metric %q: %v", line, err)
		}
		caps[[2]string{labelOf(found[1], "grant"), labelOf(found[1], "gpu_uuid")}] = uint64(v)
	}
	return caps
}

// labelOf finds a label whose value has no comma or quote, as ids and UUIDs have none.
func labelOf(labels, name string) string {
	for l := range strings.SplitSeq(labels, ",") {
		if k, v, _ := strings.Cut(l, "="); k == name {
			return strings.Trim(v, `"`)
		}
	}
	return ""
}

// unified is where cgroup v2 is mounted.
func unified(t *testing.T) string {
	t.Helper()
	h, err := cgroup.Default()
	if err != nil {
		t.Fatal(err)
	}
	return h.Mount
}

// mounts counts the mounts that this process sees in a directory.
func mounts(t *testing.T, dir string) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(data), " "+dir)
}

// descriptors counts a process's open files.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
