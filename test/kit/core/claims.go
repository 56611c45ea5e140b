// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package core

// Claim is a sentence about Kerf or about the driver that a run can prove or disprove.
type Claim struct {
	ID   string
	Text string
	// Page is the page below docs/ that says so, or that rests on it.
	Page string
}

// Claims are all that the kit judges.
func Claims() []Claim {
	return []Claim{
		{"settings-unchanged", "With `--gpu-settings read-only`, Kerf changes no setting of a GPU.",
			"operate/nodes.md"},
		{"nvml-functions", "The driver answers each NVML function that Kerf requires.", "design/architecture.md"},
		{"nvml-samples", "The driver samples the GPU time of processes, and each sample names one process.",
			"design/compute.md"},
		{"abi-known", "libkerf knows each function of the driver through which memory can be allocated.",
			"design/promises.md"},
		{"abi-identity", "`cuGetProcAddress` returns exported functions for all that libkerf counts.",
			"design/architecture.md"},
		{"context-listed", "NVML lists the memory of a context with its process.", "design/promises.md"},
		{"managed-unlisted", "NVML lists managed memory with no process, but as used memory of the GPU.",
			"reference/enforcement.md"},
		{"cap-rejects", "libkerf rejects memory above the cap, in each family of allocation.",
			"reference/enforcement.md"},
		{"driver-rejects",
			"Driver r615 rejects memory above the cap, in each family of allocation except managed memory.",
			"reference/enforcement.md"},
		{"cap-size", "A program sees its cap as the GPU's memory.", "design/promises.md"},
		{"cap-shared", "The processes of one grant share one cap.", "design/promises.md"},
		{"cap-peak",
			"The driver never shows more than the cap and one context; without an agent, one for each process.",
			"reference/enforcement.md"},
		{"cap-returns", "Freed memory can be allocated again below the cap.", "design/promises.md"},
		{"data-intact", "Programs below a cap compute with intact data.", "design/promises.md"},
		{"cost-alloc", "libkerf adds at most 1 µs to an allocation.", "benchmarks/libkerf-overhead.md"},
		{"cost-launch", "libkerf adds at most 0.3 µs to a launch.", "benchmarks/libkerf-overhead.md"},
		{"cost-start", "libkerf adds at most 5 ms to the start of a program.", "benchmarks/libkerf-overhead.md"},
		{"torch-speed", "PyTorch below its cap has at least 99% of its speed.", "benchmarks/libkerf-overhead.md"},
		{"torch-cap", "PyTorch sees the cap, meets out-of-memory there, and recovers.", "design/promises.md"},
		{"share-strict", "With `computePolicy: strict`, work is within 10% of the compute percent.",
			"design/compute.md"},
		{"share-seconds", "With `computePolicy: strict`, each second is within 5 points of the compute percent.",
			"design/compute.md"},
		{"share-fair", "With `computePolicy: fair`, each busy program has at least 90% of what its compute percent " +
			"gives it.",
			"design/compute.md"},
		{"latency", "Decode at 30% next to training at 70% has a p99 of at most 1.3 times that alone at 30%.",
			"design/compute.md"},
		{"serving-equal", "Two equal serving programs at 50% each have equal throughput within 10%.",
			"design/compute.md"},
		{"reactive-kill", "The reactive backend ends a program over its cap within 1 s (p99).",
			"reference/enforcement.md"},
		{"reactive-managed", "The reactive backend does not see managed memory.", "reference/enforcement.md"},
		{"monitor-memory", "kerf-monitor reports the driver's memory of each GPU.", "operate/metrics.md"},
		{"monitor-power", "kerf-monitor reports power within 5% of NVML.", "operate/metrics.md"},
		{"monitor-cost", "kerf-monitor takes less than 1% of one core.", "benchmarks/node-overhead.md"},
		{"mps-starts",
			"An MPS daemon in a private directory starts, answers and quits without a change of the compute mode.",
			"design/promises.md"},
		{"mps-limit", "MPS rejects memory above its pinned limit.", "reference/enforcement.md"},
		{"attacks", "Evasions of libkerf end as the enforcement matrix says.", "reference/enforcement.md"},
		{"crash-grants", "Grants survive a kill of the agent.", "design/promises.md"},
		{"crash-leftovers", "After the end, no grant, process or cgroup is left.", "design/promises.md"},
	}
}

// ClaimText returns the sentence of a claim, or false.
func ClaimText(id string) (string, bool) {
	for _, c := range Claims() {
		if c.ID == id {
			return c.Text, true
		}
	}
	return "", false
}
