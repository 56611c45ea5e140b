// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
)

var many = flag.Int("processes", 16, "how many processes are under one cap")

// running is a kerfcheck that waits at its steps "wait".
type running struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (b box) begin(t *testing.T, steps ...string) running {
	t.Helper()
	cmd, _, _ := b.command(t, nil, "check/kerfcheck", steps...)
	cmd.Stdout = nil
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return running{cmd, in, bufio.NewReader(out)}
}

// until reads lines up to "ready", which is not returned.
func (r running) until(t *testing.T) string {
	t.Helper()
	var lines []string
	for {
		line, err := r.out.ReadString('\n')
		if err != nil {
			t.Fatalf("%q, then %v", lines, err)
		}
		if line = strings.TrimSpace(line); line == "ready" {
			return strings.Join(lines, "|")
		}
		lines = append(lines, line)
	}
}

func (r running) goOn(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(r.in, "\n"); err != nil {
		t.Fatal(err)
	}
}

func (r running) end() string {
	rest, _ := io.ReadAll(r.out) // it ends where the process does
	_ = r.cmd.Wait()
	return strings.TrimSpace(string(rest))
}

func TestTwoProcessesUnderOneCap(t *testing.T) {
	b := start(t, "a30x2", "r550").cap(t, gib)
	one := b.begin(t, "gpu:0", "take:linear:805306368", "info", "wait")
	if got, want := one.until(t), fmt.Sprintf("0|0 %d %d %d", 256*mib, gib, gib); got != want {
		t.Errorf("the first: %s, want %s", got, want)
	}
	if got, want := b.check(t, "gpu:0", "info", "take:linear:270532608", "take:linear:268435456",
		"info"), fmt.Sprintf("0 %d %d %d|2|0|0 0 %d %d", 256*mib, gib, gib, gib, gib); got != want {
		t.Errorf("the second: %s, want %s", got, want)
	}
	if n := b.region.Usage()[0].Refused; n != 1 {
		t.Errorf("%d refusals counted, want 1", n)
	}
	// The second is gone, and what it held is there for a third without an agent.
	if got := b.check(t, "gpu:0", "take:linear:268435456"); got != "0" {
		t.Errorf("the third: %s", got)
	}
	if err := b.region.SetLimit(b.gpu(0), 4*gib); err != nil {
		t.Fatal(err)
	}
	if err := b.region.Correct(b.gpu(0), gib, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := b.check(t, "gpu:0", "fill:linear:268435456", "info"), fmt.Sprintf("9|0 0 %d %d", 4*gib,
		4*gib); got != want {
		t.Errorf("under the raised limit: %s, want %s", got, want)
	}
	_ = one.in.Close()
	one.end()
	b.reclaim(t)
	if used := b.used(); used != 0 {
		t.Errorf("%d bytes are left", used)
	}
}

// A process with a context gets what a raised limit gives, and is rejected at a lowered one. It sees both, also below
// its usage, which no command lowers a limit to.
func TestLimitChangesUnderAContext(t *testing.T) {
	const block = 256 * mib
	b := start(t, "a30x2", "r580").cap(t, gib)
	take, info := fmt.Sprintf("take:linear:%d", block),
		func(free, total sharing.Bytes) string { return fmt.Sprintf("0 %d %d %d", free, total, total) }
	fill := fmt.Sprintf("fill:linear:%d", block)
	r := b.begin(t, "gpu:0", fill, "info", "wait", "info", fill, "info", "wait", take, "info", "give", "give", "give",
		"info", take, take, "info", "wait")
	for _, at := range []struct {
		limit sharing.Bytes // from here on
		want  []string
	}{
		{2 * gib, []string{"4", info(0, gib)}},
		{gib + gib/2, []string{info(gib, 2*gib), "4", info(0, 2*gib)}},
		{gib, []string{oom, info(0, gib+gib/2), info(block, gib+gib/2), "0", oom, info(0, gib+gib/2)}},
	} {
		if got, want := r.until(t), strings.Join(at.want, "|"); got != want {
			t.Errorf("before the limit is %d: %s, want %s", at.limit, got, want)
		}
		if err := b.region.SetLimit(b.gpu(0), at.limit); err != nil {
			t.Fatal(err)
		}
		r.goOn(t)
	}
	r.end()
	b.reclaim(t)
	if used := b.used(); used != 0 {
		t.Errorf("%d bytes are left", used)
	}
}

// If all fit, none is rejected. If not, the driver's count never exceeds the cap.
func TestManyProcessesUnderOneCap(t *testing.T) {
	const threads, rounds, bytes = 4, 50, 2 * mib
	processes := *many
	n := start(t, "h200x8", "r580")
	for _, room := range []int{processes * threads, processes * threads * 5 / 8} {
		b := n.cap(t, sharing.Bytes(room)*bytes)
		var all []running
		for range processes {
			all = append(all, b.begin(t, "gpu:0", "wait", fmt.Sprintf("hammer:%d:%d:%d", threads, rounds, bytes),
				"wait"))
		}
		for _, r := range all {
			r.until(t)
		}
		contexts := n.holds(t, 0)
		n.countPeak(t)
		for _, r := range all {
			r.goOn(t)
		}
		var wg sync.WaitGroup
		refused := make([]string, processes)
		for i, r := range all {
			wg.Go(func() { refused[i] = r.until(t) })
		}
		wg.Wait()
		if most := n.peak(t) - contexts; most > sharing.Bytes(room)*bytes || most == 0 {
			t.Errorf("the driver gave %d at a time, and the cap is %d", most, sharing.Bytes(room)*bytes)
		}
		if room == processes*threads && strings.Trim(strings.Join(refused, ""), "0") != "" {
			t.Errorf("refused: %q, with room for all", refused)
		}
		for _, r := range all {
			_ = r.in.Close()
			r.end()
		}
		if used := b.used(); used != 0 {
			t.Errorf("%d bytes are left", used)
		}
	}
}

// Processes that start at once make as many contexts as fit, and not one more. What they put aside gives way to the
// driver's report, and the next one can use the memory that this frees.
func TestContextsOfManyProcesses(t *testing.T) {
	const processes, fit = 12, 8
	n := start(t, "h200x8", "r580")
	probe := n.cap(t, 64*gib).begin(t, "several:1", "wait")
	probe.until(t)
	context := n.holds(t, 0)
	_ = probe.in.Close()
	probe.end()
	b := n.cap(t, fit*context+context/2)
	gpu := b.gpu(0)
	if err := b.region.SetContext(gpu, context); err != nil {
		t.Fatal(err)
	}
	var all []running
	for range processes {
		all = append(all, b.begin(t, "wait", "several:1", "wait"))
	}
	for _, r := range all {
		r.until(t)
	}
	for _, r := range all {
		r.goOn(t)
	}
	made := 0
	for _, r := range all {
		if r.until(t) == "1" {
			made++
		}
		if held := n.holds(t, 0); held > fit*context {
			t.Errorf("the driver gave %d, and %d contexts fit", held, fit)
		}
	}
	if made != fit || b.used() != fit*context {
		t.Errorf("%d contexts and %d counted, want %d and %d", made, b.used(), fit, fit*context)
	}
	// The driver tells of less than was put aside.
	var seen []libkerf.Reserved
	for _, c := range b.region.Counts() {
		if c.Waiting[gpu] > 0 && c.Quiet {
			seen = append(seen, libkerf.Reserved{Process: c.Process, Bytes: c.Waiting[gpu]})
		}
	}
	if err := b.region.Correct(gpu, (fit-1)*context, seen); err != nil || len(seen) != fit || b.used() != 0 {
		t.Errorf("%v, %d seen, %d left in the counters", err, len(seen), b.used())
	}
	if got := b.check(t, "several:3"); got != "1" {
		t.Errorf("%s more contexts, want one", got)
	}
	for _, r := range all {
		_ = r.in.Close()
		r.end()
	}
	b.reclaim(t)
	if used := b.used(); used != 0 {
		t.Errorf("%d bytes are left", used)
	}
}

// Bytes that move from the counters to the overhead count twice for a moment. No call is rejected for that. If the
// agent dies in between, no call waits for long.
func TestNoCallIsRejectedWhileBytesMove(t *testing.T) {
	b := start(t, "h200x8", "r580").cap(t, gib)
	limits, err := os.OpenFile(filepath.Join(b.dir, libkerf.LimitsFile), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer limits.Close()
	const overhead, moves = 16 + 16 + 8, 16 + 16 + 24 // of the first GPU
	put := func(at int64, n uint64) {
		t.Helper()
		if _, err := limits.WriteAt(binary.NativeEndian.AppendUint64(nil, n), at); err != nil {
			t.Fatal(err)
		}
	}
	// What the program waits at the least: MOST_WAITS times MOVE_PAUSE. A move for which this machine took longer,
	// since it had other things to do, tells nothing.
	const patience = 200 * time.Millisecond
	var r running
	for took := patience; took >= patience; {
		r = b.begin(t, "gpu:0", "wait", "take:linear:2097152", "wait", "take:linear:2097152", "wait")
		r.until(t)
		began := time.Now()
		put(moves, 1)
		put(overhead, uint64(gib))
		r.goOn(t)
		got := make(chan string, 1)
		go func() { got <- r.until(t) }()
		early := ""
		select {
		case early = <-got:
			got <- early
		case <-time.After(20 * time.Millisecond):
		}
		put(overhead, 0)
		put(moves, 2)
		if took = time.Since(began); took >= patience {
			<-got
			_ = r.in.Close()
			r.end()
			continue
		}
		if said := <-got; said != "0" || early != "" {
			t.Errorf("%q before the bytes had moved, and %s once they had, want nothing and success", early, said)
		}
	}
	put(overhead, uint64(gib))
	put(moves, 3)
	r.goOn(t)
	if said := r.until(t); said != "2" {
		t.Errorf("%s without an agent, want out of memory", said)
	}
	_ = r.in.Close()
	r.end()
}

// A pool gives back when its program waits, and then others have the memory; its own program need not wait.
func TestPoolsThatGiveBackLate(t *testing.T) {
	b := stubbed(t)
	r := b.begin(t, "gpu:0", "take:unwaited:629145600", "give", "wait", "take:unwaited:629145600", "give",
		"sync", "wait")
	for _, want := range []sharing.Bytes{600 * mib, 0} {
		if got := r.until(t); got != "0" || b.used() != want {
			t.Errorf("%s, and %d are counted, want %d", got, b.used(), want)
		}
		r.goOn(t)
	}
	r.end()
}

// A child is not left waiting for a lock that another thread of its parent held.
func TestForkWithOtherThreads(t *testing.T) {
	b := start(t, "h200x8", "r580").cap(t, gib)
	if got := b.check(t, "gpu:0", "forks:60", "info"); got != fmt.Sprintf("0|0 %d %d %d", gib, gib, gib) {
		t.Errorf("%s", got)
	}
}

func TestForkExecAndReopen(t *testing.T) {
	n := start(t, "h200x8", "r580")
	free := func(f sharing.Bytes) string { return fmt.Sprintf("0 %d %d %d", f, gib, gib) }
	for name, test := range map[string]struct {
		steps []string
		want  string
		left  sharing.Bytes
	}{
		"a child holds nothing of its parent's": {[]string{"gpu:0", "take:linear:268435456", "fork", "clear", "end",
			"info", "clear", "info"},
			"0|child 0|" + free(768*mib) + "|" + free(gib), 0},
		"children count by themselves": {[]string{"fork", "gpu:0", "take:linear:268435456", "info", "end", "fork",
			"gpu:0", "take:linear:1073741824", "end", "gpu:0", "fill:linear:268435456"},
			"0|" + free(768*mib) + "|child 0|0|child 0|4", gib},
		"exec gives back": {[]string{"gpu:0", "take:linear:1073741824", "exec", "gpu:0", "take:linear:1073741824",
			"info"},
			"0|0|" + free(0), gib},
		"the driver is closed and opened again": {[]string{"gpu:0", "take:linear:268435456", "reopen", "gpu:0", "info",
			"take:linear:805306368", "take:linear:2097152", "clear", "info"},
			"0|" + free(768*mib) + "|0|2|" + free(gib), 0},
	} {
		b := n.cap(t, gib)
		if got := b.check(t, test.steps...); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		if used := b.used(); used != test.left {
			t.Errorf("%s: %d bytes are left, want %d", name, used, test.left)
		}
	}
}
