// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/compute"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/throttle"
	"github.com/kerf-gpu/kerf/sim/machine"
	"github.com/kerf-gpu/kerf/sim/wire"
)

// busyLine is what gpuload prints of what it launched.
type busyLine struct {
	Launches  int64
	GPU, Wall time.Duration
}

func parseBusy(tb testing.TB, out string) (b busyLine) {
	tb.Helper()
	for s := range strings.FieldsFuncSeq(out, func(r rune) bool { return r == '\n' || r == '|' }) {
		var l struct {
			Launches  int64
			GPU, Wall time.Duration
			Error     *string
		}
		s = strings.NewReplacer("gpu_ns", "gpu", "wall_ns", "wall").Replace(s)
		if !strings.Contains(s, "launches") {
			continue
		}
		if err := json.Unmarshal([]byte(s), &l); err != nil || l.Error != nil {
			tb.Fatalf("%v: %s", err, s)
		}
		b = busyLine{l.Launches, l.GPU, l.Wall}
	}
	if b.Launches == 0 {
		tb.Fatalf("nothing was launched: %s", out)
	}
	return b
}

// tenant is a container, its share, and its process.
type tenant struct {
	box
	grant compute.Grant
	pid   int
}

// sampled asks the driver, as NVML does, for what its samples since then tell of each process.
func (b nodeTenants) sampled(since time.Time) (sharing.TimeUse, error) {
	// #nosec G115 -- not negative
	request, err := wire.Request{Op: wire.OpProcessUtil,
		Args: [wire.NArgs]uint64{uint64(max(0, since.UnixMicro()))}}.Encode()
	if err == nil {
		_, err = b.conn.Write(request)
	}
	answer := make([]byte, wire.MaxResponse)
	size := 0
	if err == nil {
		size, err = b.conn.Read(answer)
	}
	var r wire.Response
	if err == nil {
		r, err = wire.DecodeResponse(answer[:size])
	}
	if err != nil {
		return sharing.TimeUse{}, err
	}
	var rows []sharing.TimeRow
	for i := 1; i+3 < len(r.Vals); i += 4 {
		// #nosec G115 -- of today
		at := time.UnixMicro(int64(r.Vals[i+1]))
		// #nosec G115 -- a pid and a percent
		rows = append(rows, sharing.TimeRow{PID: int(r.Vals[i]), At: at, SM: int(r.Vals[i+2])})
	}
	return sharing.UseOf(rows, since), nil
}

// Read implements throttle.Account.
func (t tenant) Read() (throttle.Counts, error) {
	all, err := t.region.Budgets()
	if err != nil {
		return throttle.Counts{}, err
	}
	return throttle.Counts{Balance: all[0].Balance, Charged: all[0].Charged, Occupied: all[0].Occupied,
		Launches: all[0].Launches}, nil
}

// AddTokens implements throttle.Account.
func (t tenant) AddTokens(add time.Duration, turn compute.LaunchState) error {
	word := map[compute.LaunchState]libkerf.LaunchState{compute.Paused: libkerf.LaunchPaused,
		compute.Alone: libkerf.LaunchAlone}[turn]
	return t.region.AddTokens(t.gpu(0), add, word)
}

// Settle implements throttle.Account.
func (t tenant) Settle(ran time.Duration, _ compute.Share, _ bool) error {
	return t.region.Settle(t.gpu(0), ran)
}

// nodeTenants are the tenants of one node.
type nodeTenants struct {
	tb      testing.TB
	mode    compute.Mode
	tenants []tenant
	conn    *net.UnixConn
}

// Changed implements throttle.Source: the tenants stay.
func (b nodeTenants) Changed() <-chan struct{} { return nil }

// Attachments implements throttle.Source.
func (b nodeTenants) Attachments() (compute.Mode, []throttle.Attachment) {
	var all []throttle.Attachment
	for _, t := range b.tenants {
		all = append(all, throttle.Attachment{GPU: t.gpu(0), Grant: t.grant, Account: t})
	}
	return b.mode, all
}

// Used implements throttle.Source.
func (b nodeTenants) Used(_ context.Context, _ sharing.GPURef, since time.Time) (throttle.Use, error) {
	used, err := b.sampled(since)
	if err != nil {
		b.tb.Error(err)
		return throttle.Use{}, err
	}
	use := throttle.Use{To: used.To, Percent: map[compute.ID]int{}}
	for _, row := range used.Rows {
		use.Busy += row.SM
	}
	for _, t := range b.tenants {
		if t.pid == 0 {
			return throttle.Use{}, sharing.ErrUnsupported
		}
		use.Percent[t.grant.ID] = used.Rows[t.pid].SM
	}
	return use, nil
}

// refill is the agent: it refills the tenants' budgets until stop is called.
func refill(tb testing.TB, mode compute.Mode, tenants []tenant) (stop func()) {
	tb.Helper()
	conn, err := net.DialUnix("unixpacket", nil,
		&net.UnixAddr{Net: "unixpacket", Name: filepath.Join(tenants[0].node.dir, "dev", "nvidia0")})
	if err != nil {
		tb.Fatal(err)
	}
	p := throttle.Throttle{Source: nodeTenants{tb, mode, tenants, conn}, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	return func() {
		cancel()
		if err := errors.Join(<-ended, conn.Close()); err != nil {
			tb.Error(err)
		}
	}
}

// throttled is a container with a percent of the node's first GPU.
func (n node) throttled(tb testing.TB, percent sharing.Percent) box {
	tb.Helper()
	b := n.cap(tb, 8*gib)
	if err := b.region.SetPercent(n.gpu(0), percent); err != nil {
		tb.Fatal(err)
	}
	return b
}

// budget is the container's on the node's first GPU.
func (b box) budget(tb testing.TB) libkerf.TokenBucket {
	tb.Helper()
	all, err := b.region.Budgets()
	if err != nil {
		tb.Error(err)
		return libkerf.TokenBucket{}
	}
	return all[0]
}

// race lets two containers with ten and ninety percent launch for a while, and returns what each got.
func race(tb testing.TB, hold time.Duration, mode compute.Mode, flags ...string) (ten, ninety busyLine) {
	tb.Helper()
	return raceOn(tb, start(tb, "a30x2", "r580"), hold, mode, flags...)
}

func raceOn(tb testing.TB, n node, hold time.Duration, mode compute.Mode, flags ...string) (ten, ninety busyLine) {
	tb.Helper()
	tenants := []tenant{
		{box: n.throttled(tb, 10), grant: compute.Grant{ID: "ten", Percent: 10}},
		{box: n.throttled(tb, 90), grant: compute.Grant{ID: "ninety", Percent: 90}},
	}
	args := append([]string{"--json", "--hold", fmt.Sprintf("%dms", hold.Milliseconds())}, flags...)
	var cmds []*exec.Cmd
	var outs []*bytes.Buffer
	for i := range tenants {
		cmd, out, _ := tenants[i].command(tb, nil, "gpuload", args...)
		if err := cmd.Start(); err != nil {
			tb.Fatal(err)
		}
		tenants[i].pid = cmd.Process.Pid
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	stop := refill(tb, mode, tenants)
	defer stop()
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			tb.Fatalf("%v: %s", err, outs[i])
		}
	}
	ten, ninety = parseBusy(tb, outs[0].String()), parseBusy(tb, outs[1].String())
	for i, got := range []busyLine{ten, ninety} {
		b := tenants[i].budget(tb)
		tb.Logf("%d percent: %v ran, %v charged, %v settled", tenants[i].grant.Percent, got.GPU, b.Charged, b.Ran)
	}
	return ten, ninety
}

// measured repeats the measurement if the programs did not get the processors: on a busy machine they get less, and
// wait less. A measurement fails by itself for what must hold on any machine.
func measured(t *testing.T, measure func() error) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; {
		err := measure()
		switch {
		case err == nil:
			return
		case time.Now().After(end):
			t.Fatal(err)
		}
		t.Log(err)
	}
}

// Each way to launch is held to its share, a graph by what all its kernels take.
func TestEachWayIsThrottled(t *testing.T) {
	for _, way := range []string{"plain", "ex", "cooperative", "graph", "multi", "fill", "copy"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			n := start(t, "a30x2", "r580")
			measured(t, func() error {
				one := tenant{box: n.throttled(t, 20), grant: compute.Grant{ID: "one", Percent: 20}}
				defer refill(t, compute.Strict, []tenant{one})()
				got := parseBusy(t, one.program(t, nil, "gpuload", "--json", "--hold", "1s", "--launch", way,
					"--kernel", "2ms"))
				b, part := one.budget(t), float64(got.GPU)/float64(got.Wall)
				if part > 0.3 || b.Waited > got.Wall || b.Launches != uint64(got.Launches) { // #nosec G115 -- positive
					t.Errorf("it got %v of %v: %+v", got.GPU, got.Wall, b)
				}
				// past its budget, where the agent got no processor for seconds
				if part < 0.1 || b.Waited < 300*time.Millisecond || b.Past != 0 {
					return fmt.Errorf("it got %v of %v: %+v", got.GPU, got.Wall, b)
				}
				return nil
			})
		})
	}
}

// 10:90 is one to nine. The tolerance is for a machine that has other things to do; BenchmarkShares is exact.
func TestSharesOfTime(t *testing.T) {
	measured(t, func() error {
		ten, ninety := race(t, 1500*time.Millisecond, compute.Strict, "--launch", "plain", "--kernel", "5ms", "--queue",
			"2")
		if part := float64(ten.GPU) / float64(ten.Wall); part > 0.2 {
			t.Errorf("ten percent got %v of %v", ten.GPU, ten.Wall)
		}
		if ratio := float64(ninety.GPU) / float64(ten.GPU); ratio < 4 || ratio > 20 {
			return fmt.Errorf("%v and %v: 1 to %.1f", ten, ninety, ratio)
		}
		return nil
	})
}

// It is the same where processes use the GPU in time slices. A kernel of 5 ms then takes up to twice as long next to
// another process.
func TestSharesOfTimeInSlices(t *testing.T) {
	measured(t, func() error {
		n := startShared(t, "a30x2", "r580", machine.SharingSlices)
		ten, ninety := raceOn(t, n, 1500*time.Millisecond, compute.Strict, "--launch", "plain", "--kernel", "5ms",
			"--queue", "2")
		if part := float64(ten.GPU) / float64(ten.Wall); part > 0.2 {
			t.Errorf("ten percent got %v of %v", ten.GPU, ten.Wall)
		}
		if ratio := float64(ninety.GPU) / float64(ten.GPU); ratio < 4 || ratio > 20 {
			return fmt.Errorf("%v and %v: 1 to %.1f", ten, ninety, ratio)
		}
		return nil
	})
}

// Without an agent that refills, a program waits two seconds once, and then runs on and is counted.
func TestRunsOnWithoutAnAgent(t *testing.T) {
	t.Parallel()
	b := start(t, "a30x2", "r580").throttled(t, 50)
	got := parseBusy(t, b.program(t, nil, "gpuload", "--json", "--launch", "plain", "--kernel", "1ms", "--hold",
		"2500ms"))
	budget := b.budget(t)
	// #nosec G115 -- positive
	if got.GPU < 5*time.Millisecond || budget.Past != budget.Launches || budget.Launches != uint64(got.Launches) ||
		budget.Charged == 0 {
		t.Errorf("%+v, %+v", got, budget)
	}
}

// A copy waits for a budget before it runs, and so does a stream's write. Neither waits for more than a second, since a
// kernel may be waiting for it.
func TestCopiesWaitForASecond(t *testing.T) {
	for _, way := range []string{"fill", "copy", "word"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			b := start(t, "a30x2", "r580").throttled(t, 50)
			got := parseBusy(t, b.program(t, nil, "gpuload", "--json", "--launch", way, "--kernel", "1ms", "--hold",
				"1100ms"))
			budget := b.budget(t)
			// #nosec G115 -- positive
			if budget.Launches != uint64(got.Launches) || budget.Past != budget.Launches || budget.Charged == 0 ||
				budget.Waited < time.Second {
				t.Errorf("%+v, %+v", got, budget)
			}
		})
	}
}

// Where time is not counted, nothing is.
func TestNotThrottled(t *testing.T) {
	t.Parallel()
	b := start(t, "a30x2", "r580").cap(t, 8*gib)
	parseBusy(t, b.program(t, nil, "gpuload", "--json", "--launch", "graph", "--kernel", "1ms", "--hold", "50ms"))
	if budget := b.budget(t); budget.Launches != 0 || budget.Balance != 0 {
		t.Errorf("%+v", budget)
	}
}

// What was launched before it was known how long it takes is charged afterwards.
func TestLongKernelsAreADebt(t *testing.T) {
	t.Parallel()
	b := start(t, "a30x2", "r580").throttled(t, 50)
	if err := b.region.AddTokens(b.gpu(0), time.Second, libkerf.LaunchOpen); err != nil {
		t.Fatal(err)
	}
	got := parseBusy(t, b.program(t, nil, "gpuload", "--json", "--launch", "plain", "--kernel", "20ms", "--queue", "4",
		"--hold", "200ms"))
	budget := b.budget(t)
	if want := got.GPU; budget.Charged < want*7/10 || budget.Charged > want*2 ||
		budget.Balance != time.Second-budget.Charged || budget.Past != 0 {
		t.Errorf("%+v, %+v", got, budget)
	}
}

// A launch that the driver refuses costs nothing.
func TestRefusedLaunches(t *testing.T) {
	t.Parallel()
	b := start(t, "a30x2", "r580").throttled(t, 50)
	if err := b.region.AddTokens(b.gpu(0), time.Millisecond, libkerf.LaunchOpen); err != nil {
		t.Fatal(err)
	}
	b.check(t, "gpu:0", "spin:1000")
	if budget := b.budget(t); budget.Launches != 1000 || budget.Charged != 0 || budget.Balance != time.Millisecond {
		t.Errorf("%+v", budget)
	}
}

// BenchmarkShares tells what 10:90 comes to over ten seconds; 9 is wanted.
func BenchmarkShares(b *testing.B) {
	for way, kernel := range map[string]string{"plain": "10ms", "graph": "2500us"} { // a graph has four
		for rule, mode := range map[string]compute.Mode{"strict": compute.Strict, "fair": compute.Fair} {
			b.Run(rule+"/"+way, func(b *testing.B) {
				for b.Loop() {
					ten, ninety := race(b, 10*time.Second, mode, "--launch", way, "--kernel", kernel, "--queue", "8")
					b.ReportMetric(float64(ninety.GPU)/float64(ten.GPU), "ratio")
					b.ReportMetric(100*float64(ninety.GPU+ten.GPU)/float64(ninety.Wall), "percent-busy")
				}
			})
		}
	}
}

// What the library adds to a launch that need not wait: where time is not counted, and where it is.
func BenchmarkLaunch(b *testing.B) {
	box := stubbed(b)
	gpu := sharing.GPURef{UUID: "GPU-01010101-0101-0101-0101-010101010101"}
	spin := func(env []string) float64 {
		var ret int
		var ns float64
		if _, err := fmt.Sscanf(box.program(b, env, "check/kerfcheck", "gpu:0", "spin:1000000"), "%d %f", &ret,
			&ns); err != nil || ret != 0 {
			b.Fatal(ret, err)
		}
		return ns
	}
	for b.Loop() {
		without := spin([]string{"LD_PRELOAD="})
		if err := box.region.SetPercent(gpu, 0); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(spin(nil)-without, "added-ns/launch")
		err := errors.Join(box.region.SetPercent(gpu, 50), box.region.AddTokens(gpu, time.Hour, libkerf.LaunchOpen))
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(spin(nil)-without, "added-ns/counted-launch")
	}
}
