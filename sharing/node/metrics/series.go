// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"strconv"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/sharing"
)

func nodeFamilies() families[*nodeapi.GetNodeResponse] {
	type node = *nodeapi.GetNodeResponse
	plain := labels[node]{of: func(node) []string { return nil }}
	return families[node]{
		plain.gauge("kerf_agent_ready", "1 if the agent accepts new grants, else 0.", truth(node.GetReady)),
		plain.and("version", node.GetAgentVersion).and("driver", node.GetDriverVersion).
			gauge("kerf_agent_info", "Versions of the agent and the driver; always 1.", info),
		plain.gauge("kerf_config_errors", "Errors of the newest config; 0 if it is applied.",
			count(func(n node) []string { return n.GetConfig().GetErrors() })),
		plain.gauge("kerf_config_last_reload_successful",
			"1 if the agent applied the newest config, 0 if it rejected it.",
			truth(func(n node) bool { return len(n.GetConfig().GetErrors()) == 0 })),
		plain.and("sha256", func(n node) string { return n.GetConfig().GetSha256() }).
			and("pool", func(n node) string { return n.GetConfig().GetPool() }).
			gauge("kerf_config_info", "The applied config; always 1. sha256 is empty for the built-in default.", info),
		plain.gauge("kerf_config_pending_gpus",
			"GPUs whose settings of the applied config are pending until their grants end.",
			count(func(n node) []*nodeapi.PendingSettings { return n.GetConfig().GetPending() })),
	}
}

func gpuFamilies() families[*nodeapi.GPU] {
	type gpu = *nodeapi.GPU
	one := labels[gpu]{[]string{"gpu_uuid", "gpu"}, func(g gpu) []string {
		return append(make([]string, 0, 5), g.GetUuid(), strconv.Itoa(int(g.GetIndex())))
	}}
	sized := func(g gpu) bool { return g.CapacityBytes != nil } // else its memory is unknown
	return families[gpu]{
		one.and("model", gpu.GetModel).and("pci", gpu.GetPci).and("mig",
			func(g gpu) string { return strconv.FormatBool(g.GetMig()) }).
			gauge("kerf_gpu_info", "Identity of the GPU; always 1.", info),
		one.gauge("kerf_gpu_memory_reserved_bytes", "Memory that the driver reserves (NVML), in bytes.",
			when(sized, gpu.GetReservedBytes)),
		one.gauge("kerf_gpu_memory_granted_bytes", "Memory that grants are guaranteed on the GPU, in bytes.",
			when(sized, gpu.GetGrantedBytes)),
		one.gauge("kerf_gpu_memory_burst_bytes", "Memory that grants may use above their guarantees now, in bytes.",
			when(sized, gpu.GetBurstBytes)),
		one.gauge("kerf_gpu_compute_granted_ratio",
			"Granted compute divided by the GPU's compute, 0 to 1. Above 1 if compute is overcommitted.",
			hundredth(gpu.GetGrantedPercent)),
		one.gauge("kerf_gpu_memory_overcommit_ratio", "Overcommit ratio of the GPU's memory for shares, 1 or more. "+
			"Above 1, the driver may reject an allocation below the cap.", ratio(gpu.GetMemoryOvercommitPercent)),
		one.gauge("kerf_gpu_compute_overcommit_ratio", "Overcommit ratio of the GPU's compute for shares, 1 or more.",
			ratio(gpu.GetComputeOvercommitPercent)),
	}
}

// inState is a GPU with one of the states that its health can have.
type inState struct {
	*nodeapi.GPU
	state string
}

func healthFamilies() families[inState] {
	return families[inState]{labels[inState]{[]string{"gpu_uuid", "gpu", "state"}, func(g inState) []string {
		return []string{g.GetUuid(), strconv.Itoa(int(g.GetIndex())), g.state}
	}}.gauge("kerf_gpu_health", "1 for the state of the GPU's health, 0 for the other states: healthy, suspect, "+
		"unhealthy, lost or unknown.", truth(func(g inState) bool {
		return cmp.Or(g.GetHealth(), sharing.HealthUnknown.String()) == g.state
	}))}
}

// healthStates are the values of the label state.
func healthStates() []string {
	var states []string
	for h := sharing.HealthUnknown; h <= sharing.HealthLost; h++ {
		states = append(states, h.String())
	}
	return states
}

// ratio is at least 1, also where an older agent reports none.
func ratio[T any, N ~int32 | ~uint32](percent func(T) N) func(T) (float64, bool) {
	return always(func(t T) float64 { return float64(max(100, percent(t))) / 100 })
}

// hundredth is a percent as a ratio.
func hundredth[T any, N number](percent func(T) N) func(T) (float64, bool) {
	return always(func(t T) float64 { return float64(percent(t)) / 100 })
}

func grantFamilies() families[*nodeapi.Grant] {
	type grant = *nodeapi.Grant
	one := labels[grant]{[]string{"grant", "namespace", "pod", "container"}, func(g grant) []string {
		return append(append(make([]string, 0, 11), nameOf(g)), podOf(g)...)
	}}
	by := func(g grant) string { return g.GetCompute().GetBy() }
	return families[grant]{
		one.and("id", grant.GetId).and("state", grant.GetState).and("level", grant.GetLevel).
			and("user_id", func(g grant) string { return strconv.FormatUint(uint64(g.GetUserId()), 10) }).and("pod_uid",
			grant.GetPodUid).
			and("profile", grant.GetProfile).and("health", grant.GetHealth).
			gauge("kerf_grant_info", "State and owner of the grant; always 1.", info),
		one.gauge("kerf_grant_processes", "Processes in the grant's cgroup.", count(grant.GetPids)),
		one.and("by", by).gauge("kerf_grant_compute_enforced",
			"1 if the compute percent of the grant is enforced, else 0. The label by names the component.",
			truth(func(g grant) bool { return by(g) != "none" && by(g) != "" })),
	}
}

// podOf are namespace, pod and container of a grant, empty for a process.
func podOf(g *nodeapi.Grant) []string {
	return []string{g.GetPodNamespace(), g.GetPodName(), g.GetContainer()}
}

// ofAmount are the labels of what a grant has on one GPU.
func ofAmount() labels[amount] {
	return labels[amount]{[]string{"grant", "namespace", "pod", "container", "gpu_uuid", "gpu"},
		func(a amount) []string {
			return append(append(make([]string, 0, 6), nameOf(a.grant)),
				append(podOf(a.grant), a.GetGpu(), a.index)...)
		}}
}

func amountFamilies() families[amount] {
	one := ofAmount()
	bursts := func(a amount) bool { return a.GetMaxBurstBytes() > 0 }
	return append(families[amount]{
		one.gauge("kerf_grant_memory_guaranteed_bytes", "Guaranteed memory of the grant on this GPU, in bytes.",
			when(func(a amount) bool { return a.GetMemoryBytes() > 0 || !a.GetWhole() }, amount.GetMemoryBytes)),
		one.gauge("kerf_grant_memory_cap_bytes", "Cap on the grant's memory on this GPU now, in bytes. "+
			"Absent before activation, for whole GPUs and MIG instances, and if no backend enforces a cap.", capBytes),
		one.gauge("kerf_grant_memory_burst_bytes",
			"Memory that the grant may use above its guarantee now, in bytes. Only for grants with burst memory.",
			when(bursts, amount.GetBurstBytes)),
		one.gauge("kerf_grant_memory_burst_max_bytes",
			"Highest sum of guaranteed and burst memory, in bytes. Only for grants with burst memory.",
			when(bursts, amount.GetMaxBurstBytes)),
		one.gauge("kerf_grant_compute_ratio",
			"Compute percent of the grant on this GPU, as a ratio of 0 to 1. 0 means a fair share.",
			hundredth(amount.GetPercent)),
	}, timeFamilies(one)...)
}

// timeFamilies are what libkerf counts.
func timeFamilies(one labels[amount]) families[amount] {
	counted := func(a amount) bool { return a.GetTime() != nil }
	return families[amount]{
		one.gauge("kerf_grant_gpu_time_ratio", "Ratio of the last 10 seconds in which the GPU worked for the "+
			"grant, 0 to 1, from the driver's samples. Absent if unknown. Only for grants of libkerf.",
			when(func(a amount) bool { return counted(a) && a.GetTime().UsedPercent != nil },
				func(a amount) float64 { return float64(a.GetTime().GetUsedPercent()) / 100 })),
		one.counter("kerf_grant_gpu_time_charged_seconds_total", "GPU time charged to launches, in seconds, at the "+
			"rate that the driver's samples imply. Only for grants of libkerf.",
			when(counted, func(a amount) float64 { return a.GetTime().GetChargedSeconds() })),
		one.counter("kerf_grant_launches_total", "Kernel launches and copies that libkerf charged.",
			when(counted, func(a amount) uint64 { return a.GetTime().GetLaunches() })),
		one.counter("kerf_grant_launches_over_budget_total", "Launches that ran without a budget because no agent "+
			"refilled it, and copies that ran after they waited for 1 second.",
			when(counted, func(a amount) uint64 { return a.GetTime().GetLaunchesOverBudget() })),
		one.counter("kerf_grant_launch_wait_seconds_total",
			"Time that launches waited for a budget, in seconds, summed over threads.",
			when(counted, func(a amount) float64 { return a.GetTime().GetThrottledSeconds() })),
	}
}

// capBytes is the cap that is enforced now on a share. It can be that of an init container with a smaller request, a
// shared cap, or guaranteed and burst memory.
func capBytes(a amount) (float64, bool) {
	g := a.grant
	var none sharing.Backend // the zero value enforces nothing
	if backend := g.GetBackend(); backend == "" || backend == none.String() ||
		g.GetCgroup() == "" || a.GetWhole() || a.GetMigProfile() != "" {
		return 0, false
	}
	for _, enforced := range [][]*nodeapi.Share{g.GetEnforcedShares(), g.GetSharedCap()} {
		for _, f := range enforced {
			if f.GetGpu() == a.GetGpu() {
				return float64(f.GetMemoryBytes()), true
			}
		}
		if len(enforced) > 0 {
			return 0, false
		}
	}
	return float64(a.GetMemoryBytes()) + float64(a.GetBurstBytes()), true
}

func sharedFamilies() families[amount] {
	return families[amount]{ofAmount().gauge("kerf_grant_memory_shared_cap_bytes",
		"Memory that the containers with one shared cap may use together on this GPU, in bytes. Only for these.",
		always(amount.GetMemoryBytes))}
}
