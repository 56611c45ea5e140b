// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"strconv"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// ReplicaProfile is the profile that stands for one replica of a GPU.
const ReplicaProfile = "gpu-replica"

// nvidiaRules are for what of the device plugin's configuration has no part in how GPUs are shared.
func nvidiaRules() []rule {
	const specs = "the node's CDI spec says which libraries and devices a container gets"
	off, spec := []string{"false", ""},
		"make the node's nvidia.com/gpu CDI spec with it (nvidia-ctk cdi generate), and take it out"
	rules := []rule{
		{path: "version", plain: []string{"v1"}, refused: "write v1"},
		{path: "flags.failOnInitError", plain: []string{"true", ""},
			left: "the agent waits for a driver, and says that it is not ready"},
		{path: "flags.nvidiaDriverRoot", plain: []string{"/", ""},
			refused: "mount the driver's root into the agent (deploy/variants), and take it out"},
		{path: "flags.nvidiaDevRoot", plain: []string{"/", ""},
			refused: "mount the devices into the agent (deploy/variants), and take it out"},
		{path: "flags.gdrcopyEnabled", plain: off, refused: spec},
		{path: "flags.gdsEnabled", plain: off, refused: spec},
		{path: "flags.mofedEnabled", plain: off, refused: spec},
		{path: "flags.mpsRoot", plain: []string{""}, left: "the agent keeps MPS's files itself"},
		{path: "flags.useNodeFeatureAPI", plain: off, left: "the GPUNode tells what the node has"},
		{path: "flags.deviceDiscoveryStrategy", plain: []string{"auto", "nvml", ""},
			refused: "take it out: only what NVML tells is served"},
		{path: "flags.plugin.passDeviceSpecs", plain: off, left: specs},
		{path: "flags.plugin.deviceListStrategy", plain: []string{"envvar", ""}, left: specs},
		{path: "flags.plugin.deviceListStrategy[]", left: specs},
		{path: "flags.plugin.deviceIDStrategy", plain: []string{"uuid", ""}, left: "a GPU is known by its UUID"},
		{path: "flags.plugin.cdiAnnotationPrefix", left: specs},
		{path: "flags.plugin.nvidiaCTKPath", left: specs},
		{path: "flags.plugin.containerDriverRoot", left: specs},
		{path: "imex.channelIDs[]",
			refused: "keep NVIDIA's device plugin, or its DRA driver, on the nodes that need IMEX channels"},
		{path: "imex.required", plain: off,
			refused: "keep NVIDIA's device plugin, or its DRA driver, on the nodes that need IMEX channels"},
	}
	for _, key := range []string{"oneshot", "noTimestamp", "sleepInterval", "outputFile", "machineTypeFile"} {
		rules = append(rules, rule{path: "flags.gfd." + key, left: "GPU feature discovery goes on by itself"})
	}
	for _, key := range []string{"gpus[].pattern", "gpus[].name", "mig[].pattern", "mig[].name"} {
		rules = append(rules, rule{path: "resources." + key, left: "NVIDIA's plugin passes it over too"})
	}
	return rules
}

// nvidia reads the configuration of NVIDIA's device plugin: one pool, and a profile for a replica.
func (r *reader) nvidia() config.Spec {
	const policy = "flags.plugin.sharedDevicesAllocationPolicy"
	carried, rules := []string{"flags.migStrategy", policy}, nvidiaRules()
	for _, way := range []string{"sharing.timeSlicing.", "sharing.mps."} {
		carried = append(carried, way+"resources[].name", way+"resources[].replicas", way+"resources[].devices")
		rules = append(rules,
			rule{path: way + "renameByDefault",
				left: "pods request amounts; give kerf translate --replicas, and --gpu-is-replica " +
					"where this was false",
				plain: []string{""}},
			rule{path: way + "failRequestsGreaterThanOne", left: "a pod requests the amount that it needs",
				plain: []string{""}},
			rule{path: way + "resources[].rename", left: "NVIDIA's plugin passes it over too"},
			rule{path: way + "resources[].devices[]", left: "NVIDIA's plugin passes it over too, and shares all GPUs"})
	}
	r.apply(rules, carried...)
	pool := config.Pool{Name: "gpus", Mode: config.ModeWhole}
	doc := config.Spec{}
	switch l := r.value("flags.migStrategy"); l.value {
	case "", "none":
	case "single", "mixed":
		pool.Mode = config.ModeAuto
		if l.value == "single" {
			pool.Mode = config.ModeMIG
			r.say("flags.migStrategy single: all GPUs of the pool's nodes are put into MIG mode, and pods request " +
				"kerf.dev/mig-* in the place of nvidia.com/gpu: give kerf translate --mig-single with the profile")
		}
		r.say("flags.migStrategy %s: Kerf creates instances on demand; a fixed layout comes with kerf mig "+
			"import", l.value)
	default:
		r.bad(l, "write none, single or mixed", "is not a strategy")
	}
	switch l := r.value(policy); l.value {
	case "":
	case "distributed":
		pool.Place = sharing.PlaceSpread
	case "packed":
		pool.Place = sharing.PlacePack
	default:
		r.bad(l, "write distributed or packed", "is not a policy")
	}
	if r.has("sharing.timeSlicing") && r.has("sharing.mps") {
		r.bad(leaf{path: "sharing"}, "leave out one of them", "has timeSlicing and mps")
	}
	for _, way := range []string{"sharing.timeSlicing.", "sharing.mps."} {
		r.replicas(way, &pool, &doc)
	}
	doc.Pools = []config.Pool{pool}
	return doc
}

// replicas reads how many parts each GPU was shared into.
func (r *reader) replicas(way string, pool *config.Pool, doc *config.Spec) {
	for _, name := range r.leaves {
		if name.path != way+"resources[].name" {
			continue
		}
		n := r.value(way+"resources[].replicas", name.at...)
		count, err := strconv.Atoi(n.value)
		switch {
		case name.value != "nvidia.com/gpu":
			r.bad(name, "take it out, and request a smaller MIG profile",
				"has no counterpart: a MIG instance is not shared")
			continue
		case err != nil || count < 2:
			r.bad(n, "write 2 or more", "is not a number of replicas")
			continue
		case count > int(sharing.FullGPU):
			r.bad(n, "write 100 at most", "is a part of less than one percent")
			continue
		case len(doc.Profiles) > 0:
			r.bad(name, "write it once", "is there twice")
			continue
		}
		if l := r.value(way+"resources[].devices", name.at...); l.value != "" && l.value != "all" {
			r.say("%s %s is left out: NVIDIA's plugin passes it over too, and shares all GPUs", l.path, l.value)
		}
		p := sharing.FullGPU / sharing.Percent(count)
		pool.Mode = config.ModeShared
		pool.Backends = config.DefaultBackends()
		if way == "sharing.mps." {
			pool.Backends = config.MPSBackends()
		}
		doc.Profiles = append(doc.Profiles, config.Profile{Name: ReplicaProfile, Percent: p})
		r.say("one of %d replicas is %d percent of a GPU's memory and compute, in profile %s; a pod is held to it, "+
			"which time-slicing did not do", count, p, ReplicaProfile)
	}
}
