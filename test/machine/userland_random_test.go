// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
)

// randomCheckpoints are those of userland/random.cu: before the first allocation, after each 1,000, and after the last
// free.
const randomCheckpoints = 12

// drawn is what random.cu has at a checkpoint, by its own account.
type drawn struct {
	Allocations uint64 `json:"allocations"`
	Rejections  uint64 `json:"rejections"`
	Blocks      uint64 `json:"blocks"` // without pools and managed memory
	Pool        uint64 `json:"pool"`
	Managed     uint64 `json:"managed"`
	Free        uint64 `json:"free"`
	Total       uint64 `json:"total"`
}

// TestUserlandRandom makes 10,000 random allocations through NVIDIA's CUDA runtime under libkerf. At each checkpoint,
// the counts of Kerf, of the driver and of the program are equal.
func TestUserlandRandom(t *testing.T) {
	if *userlandDir == "" {
		t.Skip("runs by make userland")
	}
	u := readUserland(t, *userlandDir)
	for _, p := range runtimePackages {
		if u.version[p] == "" {
			t.Skipf("%s: not available", p)
		}
	}
	u.build(t)
	m := newPreloading(t, ", onOverCap: kill")
	m.measured()
	for _, kind := range []string{"shared", "static"} {
		t.Run(kind, func(t *testing.T) { m.in(t).drawsRandomly(u, filepath.Join(u.built, "random-"+kind)) })
	}
}

// drawsRandomly runs the program in a grant and compares at each checkpoint.
func (m *machine) drawsRandomly(u *userland, program string) {
	goOn, next, err := os.Pipe()
	if err != nil {
		m.t.Fatal(err)
	}
	defer goOn.Close()
	defer next.Close()
	env := u.environment(m, guest{}, true, "libkerf")
	r := m.run(flags("--memory 2GiB --min-enforcement userspace --gpu-uuid "+m.uuid(0)), []string{program},
		withInput(goOn), func(c *exec.Cmd) { c.Env = env })
	account := func(lines int) drawn { return decode[drawn](m.t, r.lines(lines)[lines-1]) }
	tell := func(what byte) {
		if _, err := next.Write([]byte{what}); err != nil {
			m.t.Fatal(err)
		}
	}
	var base uint64 // what the context and the code take
	for i := range randomCheckpoints {
		d := account(2*i + 1)
		if i == 0 {
			base = m.listed()
		}
		eventually(m.t, fmt.Sprintf("equal counts after %d allocations", d.Allocations), func() error {
			return m.sameCounts(r.granted().ID, base, d)
		})
		tell('?') // the agent has looked meanwhile
		if d = account(2*i + 2); d.Total != userlandCap || d.Total-d.Free != base+d.Blocks+d.Pool+d.Managed {
			m.t.Errorf("the program sees %+v, with %d bytes of its context and code", d, base)
		}
		tell('.')
	}
	last := account(2 * randomCheckpoints)
	if last.Allocations != 10_000 || last.Rejections != 100 || last.Blocks+last.Pool+last.Managed != 0 {
		m.t.Errorf("the program ends with %+v", last)
	}
	if end := r.wait(); end.code != 0 {
		m.t.Errorf("the program: %v", end)
	}
	m.noGrants()
}

// sameCounts compares what the program, the driver and Kerf count of a grant.
func (m *machine) sameCounts(grant string, base uint64, d drawn) error {
	driver, want := m.listed(), base+d.Blocks+d.Pool
	region, err := libkerf.Open(libkerf.UsageFileDir(m.folderOf(grant)))
	if err != nil {
		return err
	}
	defer region.Close()
	gpu := sharing.GPURef{UUID: sharing.GPUID(m.uuid(0))}
	var usage libkerf.Usage
	for _, u := range region.Usage() {
		if u.GPU == gpu {
			usage = u
		}
	}
	var held, managed uint64
	for _, c := range region.Counts() {
		held, managed = held+uint64(c.Used[gpu]), managed+uint64(c.Managed[gpu])
	}
	var status uint64
	if g := m.grant(grant); g.Used == nil {
		err = errors.New("kerf status does not know what is used")
	} else {
		status = *g.Used
	}
	counted := uint64(usage.Used + usage.Overhead)
	same := func(what string, got, want uint64) {
		if got != want {
			err = errors.Join(err, fmt.Errorf("%s: %d, want %d (%+d)", what, got, want, int64(got-want)))
		}
	}
	same("driver and program", driver, want)
	same("usage file and program", counted, want+d.Managed)
	same("processes in the usage file and their sum", held, uint64(usage.Used))
	same("managed memory in the usage file and program", managed, d.Managed)
	same("kerf status and program", status, want)
	return err
}

// listed is what NVML lists with the processes of GPU 0, as nvidia-smi prints it. All of it is in whole MiB.
func (m *machine) listed() (sum uint64) {
	m.t.Helper()
	r := call(m.t, m.env, filepath.Join(m.sim, "bin", "nvidia-smi"), "-i", "0", "--query-compute-apps=used_memory",
		"--format=csv,noheader,nounits")
	if r.code != 0 {
		m.t.Fatalf("nvidia-smi: %v", r)
	}
	for line := range strings.FieldsSeq(r.out) {
		n, err := strconv.ParseUint(line, 10, 64)
		if err != nil {
			m.t.Fatalf("nvidia-smi: %v", r)
		}
		sum += n * mib
	}
	return sum
}
