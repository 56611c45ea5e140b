// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// knownUpTo is the newest CUDA version whose names the library knows (variant.c). It needs that if the driver
	// answers with other addresses than its exports.
	knownUpTo = 13020
	toCome    = 99000
)

// refusal is a result that the library has no meaning for.
const refusal = 719

// special is what a function is called with instead of any words, and why.
type special struct {
	why  string
	args []map[int]uint64 // by place; one call for each
	puts []string         // into blocks: K+OFFSET=NUMBER
	// streams are those that the function reads from memory.
	streams []uint64
}

func specials() map[string]special {
	const many, one = 5<<32 | 0x1111, 3
	two := []map[int]uint64{{1: 2}}
	config := special{why: "the stream is in the configuration", puts: []string{"0+32=5e0000ca5e"},
		streams: []uint64{0x5e0000ca5e}}
	return map[string]special{
		"cuMemAllocPitch": {why: "the product is charged", args: []map[int]uint64{{2: 0xE0000001, 3: one},
			{2: one, 3: 0xE0000001}}},
		"cuMemAllocPitch_v2": {why: "the product is charged", args: []map[int]uint64{{2: many, 3: one},
			{2: one, 3: many}}},
		"cuMemPoolCreate":         {why: "a pool of the device is what is counted", puts: []string{"1+8=1"}},
		"cuMemCreate":             {why: "memory of the device is what is counted", puts: []string{"2+8=1"}},
		"cuGraphAddNode":          {why: "nodes of memory are what is counted", puts: []string{"4+0=a"}},
		"cuGraphAddNode_v2":       {why: "nodes of memory are what is counted", puts: []string{"5+0=b"}},
		"cuLaunchKernelEx":        config,
		"cuLaunchKernelEx_ptsz":   config,
		"cuMemMapArrayAsync":      {why: "a list is as long as the count says", args: two},
		"cuMemMapArrayAsync_ptsz": {why: "a list is as long as the count says", args: two},
		"cuLaunchCooperativeKernelMultiDevice": {why: "a list is as long as the count says", args: two,
			puts: []string{"0+40=5e0000ca5e", "0+96=6e0000ca5e"}, streams: []uint64{0x5e0000ca5e, 0x6e0000ca5e}},
	}
}

// trial is one call: the line that asks for it, and what is to come of it.
type trial struct {
	p          prototype
	line, want string
	result     int
	streams    []uint64 // that the library may ask after
}

// word is what is passed at a place: no two are alike, and all of its bits count.
func word(letter rune, place int) uint64 {
	n := uint64(place)
	switch letter {
	case 'I':
		return 0xE1000001 + n*0x1111
	case 'H':
		return 0xC001 + n*0x11
	case 'B':
		return 0xD1 + n
	}
	return (0x10+n)<<32 | (0xA5000001 + n*0x1111) // as a size it fits many times
}

// calls are one for each set of arguments and each result, and one with null pointers, which the driver refuses; by one
// way.
func calls(p prototype, way string) (out []trial) {
	s := specials()[p.name]
	sets := s.args
	if sets == nil {
		sets = []map[int]uint64{nil}
	}
	for _, set := range sets {
		for _, result := range []int{0, refusal} {
			out = append(out, call(p, way, s, set, result, false))
		}
	}
	if strings.Contains(p.args, "P") {
		out = append(out, call(p, way, s, sets[0], refusal, true))
	}
	return out
}

func call(p prototype, way string, s special, set map[int]uint64, result int, null bool) trial {
	c := trial{p: p, line: fmt.Sprintf("%s %d", way, result), result: result, streams: s.streams, want: p.name}
	for i, letter := range p.args {
		v, given := set[i]
		if !given {
			v = word(letter, i)
		}
		text := fmt.Sprintf(" %x", v)
		switch {
		case letter == 'P' && null:
			text = " 0"
		case letter == 'P':
			text = fmt.Sprintf(" b%d", i)
		case letter == 'S':
			c.streams = append(slices.Clone(c.streams), v)
		}
		c.line += text
		c.want += text
	}
	if c.streams == nil {
		c.streams = []uint64{0} // the default stream
	}
	if !null {
		c.line += strings.Join(append([]string{""}, s.puts...), " ")
	}
	return c
}

// versions are the first and the last for which a name means p.
func versions(all []prototype, p prototype, a asking, last int) []int {
	for _, q := range all {
		for _, b := range q.asked {
			if q.perThread == p.perThread && a.by == b.by && b.since > a.since {
				last = min(last, b.since-10)
			}
		}
	}
	return []int{a.since, last}
}

// trials are all calls by all ways, as CUDA versions up to newest ask.
func trials(all []prototype, newest int) (out []trial) {
	perThread := map[string]bool{}
	for _, p := range all {
		for _, a := range p.asked {
			perThread[a.by] = perThread[a.by] || p.perThread
		}
	}
	for _, p := range all {
		for _, way := range []string{"linked", "dlsym", "default"} {
			out = append(out, calls(p, way+" "+p.name+" - 0 0")...)
		}
		for _, a := range p.asked {
			flags := []int{0, 1} // by default and, explicitly, the legacy stream
			if p.perThread {
				flags = []int{2}
			} else if !perThread[a.by] {
				flags = append(flags, 2)
			}
			for _, version := range versions(all, p, a, newest) {
				for _, flag := range flags {
					for _, way := range []string{"proc1", "proc2"} {
						out = append(out, calls(p, fmt.Sprintf("%s %s %s %d %d", way, p.name, a.by, version, flag))...)
					}
				}
			}
		}
	}
	return out
}

// everyDriver makes a driver of the prototypes, and the program that calls it, and returns where they are.
func everyDriver(t *testing.T, all []prototype) string {
	t.Helper()
	dir := filepath.Join(built, "check", "every")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "every.def"), []byte(definitions(all)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "make", "-s", "-j2", "-C", "..", "OUT="+built, "CFLAGS=-O0 -g",
		"every").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// everyBox has the driver of a folder, and no limit that the calls could meet.
func everyBox(t *testing.T, dir string) box {
	t.Helper()
	gpu := sharing.GPURef{UUID: "GPU-01010101-0101-0101-0101-010101010101"}
	b := box{node: node{dir: t.TempDir()}, dir: t.TempDir()}
	r, err := libkerf.Create(b.dir, []libkerf.Device{{GPU: gpu, Limit: wide}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	b.region = r
	b.install(t)
	if err := os.Symlink(dir, filepath.Join(b.node.dir, "lib")); err != nil {
		t.Fatal(err)
	}
	if err := r.SetPercent(gpu, 50); err != nil {
		t.Fatal(err)
	}
	if err := r.AddTokens(gpu, math.MaxInt64/2*time.Nanosecond, libkerf.LaunchOpen); err != nil {
		t.Fatal(err)
	}
	return b
}

const wide = sharing.Bytes(1) << 60

// Every wrapper calls the driver's function of the same name with its arguments, and returns its result, however it was
// found. It queries the stream of its form. The driver answers with what it exports, or with other addresses.
func TestEveryWrapper(t *testing.T) {
	all := prototypes(t)
	names, _ := wrapped(t)
	called, asked, measured := map[string]bool{}, map[string]bool{}, map[string]bool{}
	calls, dir := 0, everyDriver(t, all)
	for driver, newest := range map[string]int{"exports": toCome, "inner": knownUpTo} {
		b := everyBox(t, dir)
		var env []string
		if driver == "inner" {
			env = []string{"KERF_EVERY_INNER=1"}
		}
		var input strings.Builder
		plan := trials(all, newest)
		for _, c := range plan {
			input.WriteString(c.line + "\n")
		}
		calls += len(plan)
		cmd, out, errout := b.command(t, env, "check/every/every")
		cmd.Stdin = strings.NewReader(input.String())
		err := cmd.Run()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if err != nil || errout.Len() > 0 {
			t.Fatalf("%s: %v after %q: %s", driver, err, lines[len(lines)-1], errout)
		}
		if len(lines) != len(plan) {
			t.Fatalf("%s: %d calls of %d", driver, len(lines), len(plan))
		}
		for i, c := range plan {
			e, ok := c.check(lines[i])
			if !ok {
				t.Errorf("%s: %s:\n%s", driver, c.line, lines[i])
				continue
			}
			called[c.p.name] = true
			asked[c.p.name] = asked[c.p.name] || e.asked
			measured[c.p.name] = measured[c.p.name] || e.recorded
		}
	}
	if d := cmp.Diff(names, slices.Sorted(maps.Keys(called))); d != "" {
		t.Errorf("the wrappers that were called well (-all +called):\n%s", d)
	}
	for _, name := range onStreams(t) {
		if !asked[name] {
			t.Errorf("%s did not ask whether its stream is captured", name)
		}
	}
	few := 0
	for _, name := range names {
		if measured[name] {
			few++
		}
	}
	if few < 50 {
		t.Errorf("only %d wrappers measured a time", few)
	}
	t.Logf("%d calls of %d wrappers", calls, len(called))
}

// onStreams are the functions that do otherwise while a stream is captured.
func onStreams(t *testing.T) []string {
	t.Helper()
	table, err := libkerf.Families()
	if err != nil {
		t.Fatal(err)
	}
	return append(table.Names(libkerf.Time), "cuGraphLaunch", "cuGraphLaunch_ptsz", "cuMemAllocAsync",
		"cuMemAllocAsync_ptsz",
		"cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync_ptsz")
}

// events are what the library asked the driver during a call without a request of the program.
type events struct{ asked, recorded bool }

// check tells whether a line of the program's is what has to come of a call.
func (c trial) check(line string) (e events, ok bool) {
	parts := strings.Split(line, ";")
	seen := 0
	for _, p := range parts[1 : len(parts)-1] {
		name, stream, _ := strings.Cut(p, " ")
		base, perThread := strings.CutSuffix(name, "_ptsz")
		if base != "cuStreamIsCapturing" && base != "cuEventRecord" {
			if p != c.want {
				return e, false
			}
			seen++
			continue
		}
		on, err := strconv.ParseUint(stream, 16, 64)
		if err != nil || perThread != c.p.perThread || !slices.Contains(c.streams, on) {
			return e, false
		}
		e.asked = e.asked || base == "cuStreamIsCapturing"
		e.recorded = e.recorded || base == "cuEventRecord"
	}
	found := fmt.Sprintf("%s libkerf.so %d", c.p.name, c.result)
	return e, parts[0] == found && seen == 1 && c.effect(parts[len(parts)-1])
}

// effect tells whether the sizes are those of the limit, which the driver here leaves as they were.
func (c trial) effect(blocks string) bool {
	want := map[string]string{
		"cuMemGetInfo": "=0 0 ffffffff 0", "cuMemGetInfo_v2": fmt.Sprintf("=0 0 %x 0", uint64(wide)),
		"cuDeviceTotalMem": "=ffffffff 0 0 0", "cuDeviceTotalMem_v2": fmt.Sprintf("=%x 0 0 0", uint64(wide)),
		"nvmlDeviceGetMemoryInfo":    fmt.Sprintf("=0 0 %x 0", uint64(wide)),
		"nvmlDeviceGetMemoryInfo_v2": fmt.Sprintf("=0 0 0 %x", uint64(wide)),
	}[c.p.name]
	return want == "" || c.result != 0 || blocks == want
}
