// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/test/kit/bench"
	"github.com/kerf-gpu/kerf/test/kit/core"
)

// monitor compares kerf-monitor's numbers with NVML's while a program works.
func monitor(ctx context.Context, b *bench.Bench) error {
	d, err := b.OpenDriver(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	address, err := freeAddress()
	if err != nil {
		return err
	}
	m, err := b.Start(b.Native(), b.Program("kerf-monitor"), "--run-dir", filepath.Join(b.Work, "m"),
		"--metrics-bind-address", address)
	if err != nil {
		return err
	}
	defer m.End()
	load, err := b.Start(b.Native(), b.Program("kitload"), "work", "--seconds", "600", "--count", "20000")
	if err != nil {
		return err
	}
	defer load.End()
	if err := ready(ctx, load); err != nil {
		return err
	}
	load.Next()
	if err := scrapeUntilThere(ctx, m, address); err != nil {
		return err
	}
	return compare(ctx, b, d, m, address)
}

// freeAddress is a TCP address of this machine that is not in use.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func scrape(ctx context.Context, address string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

func scrapeUntilThere(ctx context.Context, m *bench.Proc, address string) error {
	for {
		if text, err := scrape(ctx, address); err == nil && strings.Contains(text, "kerf_gpu_memory_used_bytes{") {
			return nil
		}
		select {
		case <-m.Ended():
			return fmt.Errorf("kerf-monitor ended: %s", m.Says())
		case <-ctx.Done():
			return fmt.Errorf("kerf-monitor shows no memory: %w; %s", context.Cause(ctx), m.Says())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// compare takes both numbers some times. Memory is compared while it does not change.
func compare(ctx context.Context, b *bench.Bench, d *bench.Driver, m *bench.Proc, address string) error {
	var memory, power []float64
	began, cpu := time.Now(), cpuSeconds(m.PID)
	for time.Since(began) < b.Time(8) {
		if err := bench.Wait(ctx, min(time.Second, b.Time(1))); err != nil {
			return err
		}
		text, err := scrape(ctx, address)
		if err != nil {
			return err
		}
		b.Save("metrics.txt", []byte(text))
		if shown, ok := metric(text, "kerf_gpu_memory_used_bytes", b.Machine.UUID); ok {
			used, _, err := d.Used(ctx)
			if err != nil {
				return err
			}
			memory = append(memory, math.Abs(shown-float64(used))/float64(mib))
		}
		watts, ok := metric(text, "kerf_gpu_power_watts", b.Machine.UUID)
		if now, err := d.Power(ctx, d.GPU); ok && err == nil && now > 0 {
			power = append(power, math.Abs(watts-float64(now)/1e3)/(float64(now)/1e3)*100)
		}
	}
	used := (cpuSeconds(m.PID) - cpu) / time.Since(began).Seconds() * 100
	b.Fact("CPU of kerf-monitor", "%.2f%% of one core", used)
	b.Add(difference("monitor-memory", "largest difference", memory, 0, "MiB"))
	b.Add(timed(b, difference("monitor-power", "median difference", []float64{core.Median(power)}, 5, "%"))...)
	b.Add(timed(b, core.AtMost("monitor-cost", "CPU", used, 1, "% of one core"))...)
	return nil
}

func difference(claim, what string, values []float64, bound float64, unit string) core.Result {
	if len(values) == 0 {
		return core.Impossible(claim, "there is no such number")
	}
	return core.AtMost(claim, what, core.Quantile(values, 1), bound, unit)
}

// metric finds a GPU's value in an exposition.
func metric(text, name, uuid string) (float64, bool) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, name+"{") || !strings.Contains(line, uuid) {
			continue
		}
		_, after, _ := strings.Cut(line, "} ")
		v, err := strconv.ParseFloat(strings.Fields(after)[0], 64)
		return v, err == nil
	}
	return 0, false
}

// cpuSeconds is the time on processors that a process used.
func cpuSeconds(pid int) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	return (user + system) / 100
}
