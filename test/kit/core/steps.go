// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Need is a condition of a machine without which a step says nothing.
type Need string

// The needs.
const (
	NeedGPU     Need = "gpu"     // a GPU that NVML and CUDA know
	NeedKernels Need = "kernels" // a GPU that executes kernels
	NeedAgent   Need = "agent"   // kerf-agent can run: root, and a cgroup v2 in which groups can be made
	NeedMPS     Need = "mps"     // NVIDIA's MPS programs
)

// Step is one measurement. Its number is that of the kit's specification; the order of Steps is by value.
type Step struct {
	Number int
	ID     string
	Title  string
	// Seconds is the time that it gets of a run of FullMinutes.
	Seconds float64
	Needs   []Need
	Claims  []string
}

// FullMinutes is the length of a run in which each step has its time.
const FullMinutes = 9

// Steps are all of them, in the order in which they run. The report itself is no step.
func Steps() []Step {
	gpu, agent := []Need{NeedGPU}, []Need{NeedGPU, NeedAgent}
	return []Step{
		{0, "identity", "The machine, the driver and the settings", 10, nil, nil},
		{2, "abi", "Functions of the driver's libraries", 10, gpu, []string{"abi-known", "abi-identity"}},
		{4, "caps", "libkerf: caps and data", 75, gpu,
			[]string{"cap-rejects", "driver-rejects", "cap-size", "cap-shared", "cap-peak", "cap-returns",
				"data-intact"}},
		{15, "serving", "Two serving programs on one GPU", 60, agent, []string{"serving-equal"}},
		{7, "shares", "Shares of GPU time", 85, agent, []string{"share-strict", "share-seconds", "share-fair"}},
		{3, "memory", "What the driver takes for itself", 25, gpu, []string{"context-listed", "managed-unlisted"}},
		{1, "nvml", "NVML: answers, latency and samples", 15, gpu, []string{"nvml-functions", "nvml-samples"}},
		{5, "cost", "Cost of libkerf", 35, gpu, []string{"cost-alloc", "cost-launch", "cost-start"}},
		{6, "torch", "PyTorch", 60, []Need{NeedGPU, NeedKernels}, []string{"torch-speed", "torch-cap"}},
		{8, "latency", "Latency of decode next to training", 25, agent, []string{"latency"}},
		{9, "reactive", "The reactive backend", 30, agent, []string{"reactive-kill", "reactive-managed"}},
		{13, "crash", "A kill of the agent under load", 20, agent, []string{"crash-grants", "crash-leftovers"}},
		{12, "attacks", "Attacks on the own grant", 25, gpu, []string{"attacks"}},
		{11, "mps", "MPS", 20, []Need{NeedGPU, NeedMPS}, []string{"mps-starts", "mps-limit"}},
		{10, "monitor", "kerf-monitor", 20, gpu, []string{"monitor-memory", "monitor-power", "monitor-cost"}},
	}
}

// Select returns the steps that a list of ids and numbers names, in the order of Steps. An empty list names all. The
// step identity is always there, because the others need what it finds. An error names what is no step.
func Select(list string) ([]Step, error) {
	all := Steps()
	if list == "" {
		return all, nil
	}
	wanted := map[string]bool{"identity": true}
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(all, func(s Step) bool { return s.ID == name || strconv.Itoa(s.Number) == name })
		if i < 0 {
			return nil, fmt.Errorf("select step %q: no such step; steps are %s", name, strings.Join(IDs(all), ", "))
		}
		wanted[all[i].ID] = true
	}
	return slices.DeleteFunc(all, func(s Step) bool { return !wanted[s.ID] }), nil
}

// IDs are the names of steps.
func IDs(steps []Step) []string {
	var out []string
	for _, s := range steps {
		out = append(out, s.ID)
	}
	return out
}

// Scale is the factor for the durations within steps, above 0 and at most 1. It is 1 if the run has room for all of
// them.
func Scale(steps []Step, minutes float64) float64 { return min(1, minutes*60/max(1, seconds(steps))) }

func seconds(steps []Step) (sum float64) {
	for _, s := range steps {
		sum += s.Seconds
	}
	return sum
}

// reserve is kept for the comparison of settings and the report.
const reserve = 3 * time.Second

// Limit returns how long the first of the steps that remain may run when so much of the run is left. It may use a third
// more than its part. What a step does not use is left for the others. ok is false if the rest is too short to say
// anything.
func Limit(rest []Step, left time.Duration) (limit time.Duration, ok bool) {
	const least = 500 * time.Millisecond
	left -= reserve
	part := rest[0].Seconds / seconds(rest) * 4 / 3
	limit = min(max(time.Duration(part*float64(left)), 3*time.Second), left)
	return limit, limit >= least
}

// Unmet returns the first need of a step that a machine does not meet, with the reason.
func Unmet(s Step, lacks map[Need]string) (reason string) {
	for _, n := range s.Needs {
		if why := lacks[n]; why != "" {
			return why
		}
	}
	return ""
}
