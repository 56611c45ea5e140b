// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// hamiRules are for what of a device-config.yaml the pool does not have.
func hamiRules() []rule {
	const names = "leave the default name, which kerf translate knows, and rename it in the pods first"
	const fromPod = "write the amount into the pods: a request in Kerf always says how much"
	const factor = "pods request GiB; give kerf translate this --memory-factor"
	zero, off := []string{"0", ""}, []string{"false", ""}
	rules := []rule{
		{path: "nvidia.defaultMemory", plain: zero, refused: fromPod},
		{path: "nvidia.defaultCores", plain: zero, refused: fromPod},
		{path: "nvidia.defaultGPUNum", plain: []string{"1", ""}, refused: fromPod},
		{path: "nvidia.preConfiguredDeviceMemory", plain: zero, refused: amountFromDriver},
		{path: "nvidia.memoryFactor", plain: []string{"1", ""}, left: factor},
		{path: "nvidia.gpuMemoryFactor", plain: []string{"1", ""}, left: factor},
		{path: "nvidia.enableNumaTopology", plain: off, left: numaOfKubelet},
		{path: "nvidia.overwriteEnv", left: "containers without a grant always get no GPU"},
		{path: "nvidia.disablecorelimit", plain: off,
			refused: "request memory alone in the pods, and compute is shared fairly"},
		{path: "nvidia.libCudaLogLevel", left: "it is the library's own"},
		{path: "nvidia.runtimeClassName", left: "the pod says it, where it needs one"},
	}
	for key, plain := range map[string][]string{
		"resourceCountName":            {"nvidia.com/gpu", "volcano.sh/vgpu-number"},
		"resourceMemoryName":           {"nvidia.com/gpumem", "volcano.sh/vgpu-memory"},
		"resourceMemoryPercentageName": {"nvidia.com/gpumem-percentage", "volcano.sh/vgpu-memory-percentage"},
		"resourceCoreName":             {"nvidia.com/gpucores", "volcano.sh/vgpu-cores"},
		"resourcePriorityName":         {"nvidia.com/priority"},
	} {
		rules = append(rules, rule{path: "nvidia." + key, plain: plain, refused: names})
	}
	return rules
}

// Remedies for settings that both of HAMi's configurations have.
const (
	amountFromDriver = "take it out: the agent reads the memory of a GPU from the driver"
	numaOfKubelet    = "use kubelet's topology manager with whole GPUs"
)

// hamiDevices reads HAMi's device-config.yaml (ConfigMap hami-scheduler-device), of which the part for NVIDIA's GPUs
// counts.
func (r *reader) hamiDevices() config.Spec {
	var others []string
	for _, l := range r.leaves {
		first, _, _ := strings.Cut(strings.TrimRight(l.path, "[]"), ".")
		first, _, _ = strings.Cut(first, "[")
		switch {
		case first != "nvidia" && !slices.Contains(others, first):
			others = append(others, first)
			r.say("%s is left out: it is no GPU of NVIDIA's", first)
		case strings.HasPrefix(l.path, "nvidia.knownMigGeometries") ||
			strings.HasPrefix(l.path, "nvidia.migProfileAllowlist"):
			if i := "nvidia MIG geometries are left out: the MIG profiles of a GPU " +
				"come from its driver"; !slices.Contains(r.said, i) {
				r.said = append(r.said, i)
			}
		}
	}
	all := r.leaves
	r.leaves = slices.DeleteFunc(slices.Clone(all), func(l leaf) bool {
		return !strings.HasPrefix(l.path, "nvidia.") || strings.HasPrefix(l.path, "nvidia.knownMigGeometries") ||
			strings.HasPrefix(l.path, "nvidia.migProfileAllowlist")
	})
	r.apply(hamiRules(), "nvidia.gpuCorePolicy", "nvidia.deviceSplitCount", "nvidia.deviceMemoryScaling",
		"nvidia.deviceCoreScaling")
	r.leaves = all
	pool := r.hamiPool("gpus")
	pool.MaxSharesPerGPU = r.sharers(r.value("nvidia.deviceSplitCount"))
	pool.Overcommit = r.overcommit(r.value("nvidia.deviceMemoryScaling"), r.value("nvidia.deviceCoreScaling"))
	switch l := r.value("nvidia.gpuCorePolicy"); l.value {
	case "", "default":
	case "force":
		pool.ComputePolicy = config.ComputeStrict
	case "disable":
		r.bad(l, "request memory alone in the pods, and compute is shared fairly", "has no counterpart")
	default:
		r.bad(l, "write default or force", "is not a policy")
	}
	return config.Spec{Pools: []config.Pool{pool}}
}

// sharers is the most who share a GPU, 0 if the configuration does not say it.
func (r *reader) sharers(l leaf) int {
	if l.value == "" {
		return 0
	}
	n, err := strconv.Atoi(l.value)
	if err != nil || n < 1 || n > config.MaxShares {
		r.bad(l, "write 1 to "+strconv.Itoa(config.MaxShares), "is not a number of those who share a GPU")
	}
	return n
}

// overcommit is how often memory and cores were given.
func (r *reader) overcommit(memory, cores leaf) sharing.Overcommit {
	factor := func(l leaf, most sharing.Factor) sharing.Factor {
		if l.value == "" || l.value == "0" {
			return 0
		}
		f, err := sharing.ParseFactor(l.path, l.value, most)
		if err != nil {
			r.bad(l, "write 1 to "+most.String()+", with at most two digits behind the point",
				"is more than Kerf overcommits, or no factor")
		}
		return f
	}
	o := sharing.Overcommit{Memory: factor(memory, sharing.MaxMemoryFactor),
		Compute: factor(cores, sharing.MaxComputeFactor)}.Plain()
	if o.Memory.More() {
		r.say("%s %s becomes overcommit.memory: nothing is swapped to the machine's memory, so that the driver "+
			"refuses what a full GPU does not have", memory.path, memory.value)
	}
	return o
}

// filtered are the GPUs of a node that HAMi leaves alone: those of the UUIDs, and those of the indexes.
func (r *reader) filtered(at string, node []int) (out []config.GPURule) {
	leave := config.GPUSettings{Excluded: true}
	var uuids, indexes config.GPURule
	for _, l := range r.leaves {
		if !slices.Equal(l.at[:min(len(l.at), len(node))], node) {
			continue
		}
		switch l.path {
		case at + "uuid[]":
			id, err := sharing.ParseGPUID(l.path, l.value)
			if err != nil {
				r.bad(l, "write a UUID as nvidia-smi -L shows it", "is not a GPU's UUID")
			}
			uuids.UUIDs = append(uuids.UUIDs, id)
		case at + "index[]":
			n, err := strconv.Atoi(l.value)
			if err != nil {
				r.bad(l, "write a GPU's index", "is not a GPU's index")
			}
			indexes.Indexes = append(indexes.Indexes, n)
		}
	}
	for _, rule := range []config.GPURule{uuids, indexes} {
		if rule.Settings = leave; len(rule.UUIDs)+len(rule.Indexes) > 0 {
			out = append(out, rule)
		}
	}
	return out
}

// hamiPool is a pool whose shares are held as HAMi's were, by a library, where the driver does not hold them.
func (r *reader) hamiPool(name string) config.Pool {
	return config.Pool{Name: name, Mode: config.ModeAuto, Backends: config.DefaultBackends()}
}

// hamiNodes reads HAMi's config.json (ConfigMap hami-device-plugin): a pool for each node.
func (r *reader) hamiNodes() config.Spec {
	const at = "nodeconfig[]."
	rules := []rule{
		{path: at + "migstrategy", plain: []string{"none", ""}, left: "the pool's mode says it"},
		{path: at + "preconfigureddevicememory", plain: []string{"0", ""}, refused: amountFromDriver},
		{path: at + "enablenumatopology", plain: []string{"false", ""}, left: numaOfKubelet},
		{path: at + "enablegetpreferredallocation", plain: []string{"false", ""}, left: "the agent chooses the GPUs"},
		{path: at + "libcudaloglevel", left: "it is the library's own"},
	}
	r.apply(rules, at+"name", at+"operatingmode", at+"devicesplitcount", at+"devicememoryscaling",
		at+"devicecorescaling", at+"filterdevices.uuid[]", at+"filterdevices.index[]")
	var doc config.Spec
	for _, l := range r.leaves {
		if l.path != at+"name" {
			continue
		}
		if l.value == "" || sharing.ValidateName(l.path, poolName(l.value)) != nil {
			r.bad(l, "write the name of a node", "is not the name of a node")
			continue
		}
		pool := r.hamiPool(poolName(l.value))
		pool.NodeSelector = map[string]string{"kubernetes.io/hostname": l.value}
		switch mode := r.value(at+"operatingmode", l.at...); mode.value {
		case "", "hami-core":
			pool.Mode = config.ModeShared
		case "mig":
			pool.Mode = config.ModeMIG
		case "mps":
			pool.Mode, pool.Backends = config.ModeShared, config.MPSBackends()
		default:
			r.bad(mode, "write hami-core, mig or mps", "is not a mode")
		}
		pool.MaxSharesPerGPU = r.sharers(r.value(at+"devicesplitcount", l.at...))
		pool.Overcommit = r.overcommit(r.value(at+"devicememoryscaling", l.at...),
			r.value(at+"devicecorescaling", l.at...))
		pool.GPURules = r.filtered(at+"filterdevices.", l.at)
		doc.Pools = append(doc.Pools, pool)
	}
	if len(doc.Pools) == 0 && len(r.errs) == 0 {
		r.errs = append(r.errs, config.Error{What: sharing.Invalid("nodeconfig", strconv.Itoa(0), "name a node",
			"has no node")})
	}
	return doc
}

// poolName is a node's name as that of a pool.
func poolName(node string) string { return "node-" + strings.ReplaceAll(node, ".", "-") }
