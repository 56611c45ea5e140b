// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strconv"

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
)

func nodeFamilies() families[*nodev1.GetNodeResponse] {
	type node = *nodev1.GetNodeResponse
	plain := labels[node]{of: func(node) []string { return nil }}
	return families[node]{
		plain.gauge("kerf_agent_ready", "1 when claims are taken, else 0.", truth(node.GetReady)),
		plain.and("version", node.GetAgentVersion).and("driver", node.GetDriverVersion).
			gauge("kerf_agent_info", "Versions; always 1.", info),
		plain.gauge("kerf_config_errors", "Errors of the newest config; 0 if it is applied.",
			count(func(n node) []string { return n.GetConfig().GetErrors() })),
		plain.and("sha256", func(n node) string { return n.GetConfig().GetSha256() }).
			and("pool", func(n node) string { return n.GetConfig().GetPool() }).
			gauge("kerf_config_info", "The applied config; always 1. sha256 is empty for the built-in default.", info),
		plain.gauge("kerf_config_waiting_gpus", "GPUs whose settings of the applied config are pending until their grants end.",
			count(func(n node) []*nodev1.ConfigWaiting { return n.GetConfig().GetWaiting() })),
	}
}

func gpuFamilies() families[*nodev1.GPU] {
	type gpu = *nodev1.GPU
	one := labels[gpu]{[]string{"uuid", "index"}, func(g gpu) []string {
		return append(make([]string, 0, 5), g.GetUuid(), strconv.Itoa(int(g.GetIndex())))
	}}
	return families[gpu]{
		one.and("model", gpu.GetModel).and("pci", gpu.GetPci).and("mig", func(g gpu) string { return strconv.FormatBool(g.GetMig()) }).
			gauge("kerf_gpu_info", "Identity of the GPU; always 1.", info),
		one.and("health", gpu.GetHealth).gauge("kerf_gpu_healthy",
			"1 when the GPU takes new grants by its health, else 0; the state is a label.",
			truth(func(g gpu) bool { return g.GetHealth() == "healthy" })),
		one.gauge("kerf_gpu_memory_total_bytes", "Whole memory of the GPU.", always(gpu.GetMemoryBytes)),
		one.gauge("kerf_gpu_memory_reserved_bytes", "The driver's own part of the memory.", always(gpu.GetReservedBytes)),
		one.gauge("kerf_gpu_memory_used_bytes", "Memory in use, as the driver counts it; absent when not known.",
			when(gpu.GetUsedKnown, gpu.GetUsedBytes)),
		one.gauge("kerf_gpu_memory_granted_bytes", "Memory held by grants: what they are guaranteed.", always(gpu.GetGrantedBytes)),
		one.gauge("kerf_gpu_memory_lent_bytes", "Memory that grants may use beyond what they are guaranteed, until it is claimed.",
			always(gpu.GetLentBytes)),
		one.gauge("kerf_gpu_compute_granted_percent", "Compute share held by grants, 0 to 100, or more where it is overcommitted.",
			always(gpu.GetGrantedPercent)),
		one.gauge("kerf_gpu_memory_overcommit_ratio",
			"How often the GPU's memory may be granted in fractions; above 1 the driver may refuse a program what is below its cap.",
			ratio(gpu.GetMemoryOvercommitPercent)),
		one.gauge("kerf_gpu_compute_overcommit_ratio", "How often the GPU's compute may be granted in fractions.",
			ratio(gpu.GetComputeOvercommitPercent)),
		one.gauge("kerf_gpu_utilization_percent", "Utilisation over the driver's last sample; absent when not known.",
			when(func(g gpu) bool { return g.GetUtilization() >= 0 }, gpu.GetUtilization)),
	}
}

// ratio is at least 1, also where an older agent reports none.
func ratio[T any, N ~int32 | ~uint32](percent func(T) N) func(T) (float64, bool) {
	return always(func(t T) float64 { return float64(max(100, percent(t))) / 100 })
}

func grantFamilies() families[*nodev1.Grant] {
	type grant = *nodev1.Grant
	one := labels[grant]{[]string{"grant"}, func(g grant) []string { return append(make([]string, 0, 9), nameOf(g)) }}
	by := func(g grant) string { return g.GetCompute().GetBy() }
	return families[grant]{
		one.and("id", grant.GetId).and("state", grant.GetState).and("level", grant.GetLevel).
			and("uid", func(g grant) string { return strconv.FormatUint(uint64(g.GetUid()), 10) }).and("pod_uid", grant.GetPodUid).
			and("container", grant.GetContainer).and("profile", grant.GetProfile).and("health", grant.GetHealth).
			gauge("kerf_grant_info", "Facts of the grant; always 1.", info),
		one.gauge("kerf_grant_processes", "Processes in the grant's cgroup.", count(grant.GetPids)),
		one.and("by", by).gauge("kerf_grant_compute_enforced",
			"1 when something holds the grant to its compute share, else 0; what does is a label.",
			truth(func(g grant) bool { return by(g) != "none" && by(g) != "" })),
	}
}

// ofAmount are the labels of what a grant has on one GPU.
func ofAmount() labels[amount] {
	return labels[amount]{[]string{"grant", "uuid"}, func(a amount) []string { return []string{a.grant, a.GetGpu()} }}
}

func amountFamilies() families[amount] {
	one := ofAmount()
	bursts := func(a amount) bool { return a.GetBurstBytes() > 0 }
	counted := func(a amount) bool { return a.GetTime() != nil }
	return families[amount]{
		one.gauge("kerf_grant_memory_limit_bytes", "Memory that the grant is guaranteed on this GPU, and may use.", always(amount.GetMemoryBytes)),
		one.gauge("kerf_grant_compute_percent", "Compute share of this GPU; 0 is a fair share.", always(amount.GetPercent)),
		one.gauge("kerf_grant_memory_lent_bytes",
			"Memory that the grant may use beyond its guarantee now; only of grants that may burst.", when(bursts, amount.GetLentBytes)),
		one.gauge("kerf_grant_memory_burst_bytes",
			"The highest sum of guaranteed and burst memory. Only for grants with burst memory.", when(bursts, amount.GetBurstBytes)),
		one.gauge("kerf_grant_memory_used_bytes", "Memory that the grant uses on this GPU; absent when not known.",
			when(amount.GetUsedKnown, amount.GetUsedBytes)),
		one.gauge("kerf_grant_gpu_time_percent",
			"Percent of the last ten seconds that the grant used of this GPU, by the driver's samples; absent when unknown.",
			when(func(a amount) bool { return counted(a) && a.GetTime().GetUsedPercent() >= 0 },
				func(a amount) int32 { return a.GetTime().GetUsedPercent() })),
		one.counter("kerf_grant_gpu_time_charged_seconds_total",
			"GPU time charged to launches, at the rate that the driver's samples imply. Only for grants of libkerf.",
			when(counted, func(a amount) float64 { return a.GetTime().GetChargedSeconds() })),
		one.counter("kerf_grant_launches_total", "Launches that were charged.",
			when(counted, func(a amount) uint64 { return a.GetTime().GetLaunches() })),
		one.counter("kerf_grant_launches_past_budget_total",
			"Launches that ran on without a budget, because no agent refilled it, or copies that had waited for a second.",
			when(counted, func(a amount) uint64 { return a.GetTime().GetLaunchesPastBudget() })),
		one.counter("kerf_grant_launch_wait_seconds_total", "How long launches waited for a budget, summed over threads.",
			when(counted, func(a amount) float64 { return a.GetTime().GetWaitedSeconds() })),
	}
}

func sharedFamilies() families[amount] {
	return families[amount]{ofAmount().gauge("kerf_grant_memory_joint_bytes",
		"Memory that the grants which share one cap may use together; only of these.", always(amount.GetMemoryBytes))}
}
