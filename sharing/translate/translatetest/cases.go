// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package translatetest has the table of pods on which both translators are tested. They are package translate, and the
// chart's admission policies, which say the same in another language.
//
// It is a package and no test, because the policies can be tried only where an API server is.
package translatetest

import (
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing/translate"
)

// Case is a pod that was written for another tool, and what it becomes.
type Case struct {
	Name    string
	Options translate.Options
	Pod     translate.Pod
	// Limits and Annotations are those that its container "main" and it have then, without anything unrelated to GPUs.
	// Both are empty where nothing of it is another tool's.
	Limits, Annotations map[string]string
	// RequestsNone is true for a pod whose amounts are all 0, which lose their resources.
	RequestsNone bool
	// Difference is a part of what is said with it.
	Difference string
	// Refused are parts of the refusal; there are some where the pod has no counterpart.
	Refused []string
}

// Main is the one container of most of the pods.
const Main = "main"

// one is a pod of one container, of pairs of a name and a value. A name with "@" in front is an annotation, any other a
// limit.
func one(pairs ...string) translate.Pod {
	p := translate.Pod{Annotations: map[string]string{},
		Containers: []translate.Container{{Name: Main, Limits: map[string]string{"cpu": "2"}}}}
	for pair := range slices.Chunk(pairs, 2) {
		if name, annotation := strings.CutPrefix(pair[0], "@"); annotation {
			p.Annotations[name] = pair[1]
		} else {
			p.Containers[0].Limits[pair[0]] = pair[1]
		}
	}
	return p
}

// after is the pod with an init container of these limits.
func after(p translate.Pod, limits string) translate.Pod {
	p.Containers = append([]translate.Container{{Name: "first", Limits: read(limits), Init: true}}, p.Containers...)
	return p
}

// read makes a map of "a=b c=d".
func read(pairs string) map[string]string {
	out := map[string]string{}
	for word := range strings.FieldsSeq(pairs) {
		name, value, _ := strings.Cut(word, "=")
		out[name] = value
	}
	return out
}

// Cases are all pods of the table.
func Cases() []Case { return append(taken(), refused()...) }

func taken() (out []Case) {
	four := translate.Options{Replicas: 4, SharedByName: true}
	for _, c := range []struct {
		name    string
		options translate.Options
		pod     translate.Pod
		// want has the limits of the container, then the annotations after "@".
		want, said string
	}{
		{"nothing of a GPU", translate.Options{}, one("@team", "a"), "", ""},
		{"whole GPUs", translate.Options{}, one("nvidia.com/gpu", "2"), "kerf.dev/gpu=2", ""},
		{"a MIG instance", translate.Options{}, one("nvidia.com/mig-1g.10gb", "1"), "kerf.dev/mig-1g.10gb=1", ""},
		{"one with media", translate.Options{}, one("nvidia.com/mig-1g.10gb.me", "1"), "kerf.dev/mig-1g.10gb.me=1", ""},
		{"a replica", translate.Options{Replicas: 3}, one("nvidia.com/gpu.shared", "1"), "kerf.dev/gpu-percent=33",
			"one of 3 replicas"},
		{"a replica, not renamed", four, one("nvidia.com/gpu", "1"), "kerf.dev/gpu-percent=25", "held to it"},
		{"HAMi's memory", translate.Options{}, one("nvidia.com/gpu", "1", "nvidia.com/gpumem", "3000"),
			"kerf.dev/gpu-memory-gib=3", "rounded up to 3GiB"},
		{"HAMi's exact GiB", translate.Options{}, one("nvidia.com/gpumem", "4096", "nvidia.com/gpucores", "30"),
			"kerf.dev/gpu-memory-gib=4 kerf.dev/gpu-percent=30", ""},
		{"HAMi's on two GPUs", translate.Options{}, one("nvidia.com/gpu", "2", "nvidia.com/gpumem", "5000",
			"nvidia.com/gpucores", "30"),
			"kerf.dev/gpu-memory-gib=10 kerf.dev/gpu-percent=60@gpu-count.kerf.dev/main=2",
			"rounded up to 5GiB"},
		{"HAMi's percentage", translate.Options{}, one("nvidia.com/gpu", "1", "nvidia.com/gpumem-percentage", "50"),
			"kerf.dev/gpu-percent=50", "that share of its compute"},
		{"HAMi's both alike", translate.Options{}, one("nvidia.com/gpumem-percentage", "50", "nvidia.com/gpucores",
			"50"), "kerf.dev/gpu-percent=50", ""},
		{"HAMi's whole", translate.Options{}, one("nvidia.com/gpu", "2", "nvidia.com/gpucores", "100"),
			"kerf.dev/gpu=2", "whole GPU"},
		{"HAMi's annotations", translate.Options{}, one("nvidia.com/gpumem", "1024", "@nvidia.com/use-gputype",
			"A100,H100", "@nvidia.com/nouse-gputype", "T4", "@hami.io/gpu-scheduler-policy", "binpack",
			"@nvidia.com/vgpu-mode", "hami-core"),
			"kerf.dev/gpu-memory-gib=1@kerf.dev/gpu-model=*A100*,*H100*,!*T4* kerf.dev/placement-policy=pack",
			"left out"},
		{"HAMi's UUID", translate.Options{}, one("nvidia.com/gpumem", "1024", "@nvidia.com/use-gpuuuid",
			"GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f"),
			"kerf.dev/gpu-memory-gib=1@kerf.dev/gpu-uuid=GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f", ""},
		{"Volcano's", translate.Options{}, one("volcano.sh/vgpu-number", "1", "volcano.sh/vgpu-memory", "1025",
			"volcano.sh/vgpu-cores", "20"), "kerf.dev/gpu-memory-gib=2 kerf.dev/gpu-percent=20", "rounded up to 2GiB"},
		{"Volcano's percentage", translate.Options{},
			one("volcano.sh/vgpu-number", "3", "volcano.sh/vgpu-memory-percentage", "10"),
			"kerf.dev/gpu-percent=30@gpu-count.kerf.dev/main=3", ""},
		{"Volcano's whole", translate.Options{}, one("volcano.sh/vgpu-number", "1"), "kerf.dev/gpu=1", "whole GPU"},
		{"KAI's fraction", translate.Options{}, one("@gpu-fraction", "0.5"), "kerf.dev/gpu-percent=50",
			"memory and of its compute"},
		{"KAI's odd fraction", translate.Options{}, one("@gpu-fraction", "0.333"), "kerf.dev/gpu-percent=34",
			"rounded up to 34 percent"},
		{"KAI's memory", translate.Options{}, one("@gpu-memory", "2000", "@gpu-fraction-num-devices", "2", "@mps",
			"true"), "kerf.dev/gpu-memory-gib=4@gpu-count.kerf.dev/main=2", "MPS is the node's choice"},
		{"KAI's, of a GPU's percent", translate.Options{}, one("@gpu-fraction", "0.01"), "kerf.dev/gpu-percent=1", ""},
		{"KAI's, for the first that stays", translate.Options{}, after(one("@gpu-fraction", "0.5"), "cpu=1"),
			"kerf.dev/gpu-percent=50", ""},
		{"KAI's almost all", translate.Options{}, one("@gpu-fraction", "0.991"), "kerf.dev/gpu-percent=100",
			"rounded up to 100 percent"},
		{"Volcano's UUID", translate.Options{}, one("volcano.sh/vgpu-number", "1", "volcano.sh/vgpu-memory", "1024",
			"@volcano.sh/vgpu-use-gpuuuid", "GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f"),
			"kerf.dev/gpu-memory-gib=1@kerf.dev/gpu-uuid=GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f", ""},
		{"no GPU", translate.Options{}, one("nvidia.com/gpu", "0"), "", ""},
		{"no GPU of Volcano's", translate.Options{}, one("volcano.sh/vgpu-number", "0"), "", ""},
		{"no GPU, and an instance", translate.Options{}, one("nvidia.com/gpu", "0", "nvidia.com/mig-1g.10gb", "1"),
			"kerf.dev/mig-1g.10gb=1", ""},
		{"HAMi's and another vendor's", translate.Options{}, one("nvidia.com/gpumem", "1", "vendor.example/nic", "1",
			"@mps", "true"), "kerf.dev/gpu-memory-gib=1", "rounded up"},
	} {
		limits, annotations, _ := strings.Cut(c.want, "@")
		out = append(out, Case{Name: c.name, Options: c.options, Pod: c.pod, Limits: read(limits),
			Annotations: read(annotations), Difference: c.said,
			RequestsNone: strings.HasPrefix(c.name, "no GPU") && limits == ""})
	}
	return out
}

func refused() (out []Case) {
	two := one("@gpu-fraction", "0.5", "@gpu-fraction-container-name", "side", "nvidia.com/gpu", "1")
	for _, c := range []struct {
		name    string
		options translate.Options
		pod     translate.Pod
		why     []string
	}{
		{"a replica of unknown count", translate.Options{}, one("nvidia.com/gpu.shared", "1"), []string{"--replicas"}},
		{"two replicas", translate.Options{Replicas: 3}, one("nvidia.com/gpu.shared", "2"),
			[]string{"no more of a GPU than one"}},
		{"two instances", translate.Options{}, one("nvidia.com/mig-1g.10gb", "2"), []string{"one MIG instance"}},
		{"a replica of an instance", translate.Options{}, one("nvidia.com/mig-1g.10gb.shared", "1"),
			[]string{"nvidia.com/mig-1g.10gb.shared"}},
		{"bytes as MiB", translate.Options{}, one("nvidia.com/gpumem", "5368709120"), []string{"an amount"}},
		{"no profile", translate.Options{}, one("nvidia.com/mig-big", "1"),
			[]string{"is not the name of a MIG profile"}},
		{"no number", translate.Options{}, one("nvidia.com/gpu", "500m"), []string{"is not a number of GPUs"}},
		{"compute alone", translate.Options{}, one("nvidia.com/gpucores", "30"),
			[]string{"nvidia.com/gpucores", "all memory of a GPU"}},
		{"two percentages", translate.Options{}, one("nvidia.com/gpumem-percentage", "50", "nvidia.com/gpucores", "30"),
			[]string{"memory and compute alike"}},
		{"two amounts", translate.Options{}, one("nvidia.com/gpumem-percentage", "50", "nvidia.com/gpumem", "30"),
			[]string{"cannot be given together"}},
		{"low priority", translate.Options{}, one("nvidia.com/gpumem", "1024", "nvidia.com/priority", "1"),
			[]string{"priorities come from profiles"}},
		{"two errors", translate.Options{}, one("nvidia.com/gpumem", "x", "nvidia.com/gpucores", "101"),
			[]string{"nvidia.com/gpumem", "nvidia.com/gpucores"}},
		{"other policies", translate.Options{}, one("nvidia.com/gpumem", "1024", "@hami.io/gpu-scheduler-policy",
			"mutex", "@nvidia.com/numa-bind", "true", "@nvidia.com/nouse-gpuuuid", "GPU-a", "@nvidia.com/vgpu-mode",
			"mig"), []string{"mutex", "numa-bind", "nouse-gpuuuid", "vgpu-mode"}},
		{"Volcano's exclusion", translate.Options{}, one("volcano.sh/vgpu-number", "1",
			"@volcano.sh/vgpu-nouse-gpuuuid", "GPU-a"), []string{"volcano.sh/vgpu-nouse-gpuuuid"}},
		{"two tools", translate.Options{}, one("nvidia.com/gpumem", "1024", "volcano.sh/vgpu-number", "1"),
			[]string{"in several ways"}},
		{"a fraction and a GPU", translate.Options{}, one("@gpu-fraction", "0.5", "nvidia.com/gpu", "1"),
			[]string{"in several ways"}},
		{"Kerf's already", translate.Options{}, one("nvidia.com/gpu", "1", "kerf.dev/gpu", "1"),
			[]string{"of Kerf's already"}},
		{"a fraction of no container", translate.Options{}, two, []string{"none of the pod's containers"}},
		{"a whole GPU as a fraction", translate.Options{}, one("@gpu-fraction", "1"), []string{"is not a fraction"}},
		{"a fraction in other numbers", translate.Options{}, one("@gpu-fraction", "1/2"),
			[]string{"is not a fraction"}},
		{"fraction and memory", translate.Options{}, one("@gpu-fraction", "0.5", "@gpu-memory", "1"),
			[]string{"cannot be given together"}},
		{"a burst", translate.Options{}, one("@gpu-fraction", "0.5", "@gpu-fraction-limit", "0.8"),
			[]string{"bursts come from profiles"}},
		{"a UUID that is none", translate.Options{}, one("nvidia.com/gpumem", "1024", "@nvidia.com/use-gpuuuid", "0"),
			[]string{"kerf.dev/gpu-uuid"}},
		{"one of two containers", translate.Options{}, after(one("nvidia.com/gpu", "1"), "nvidia.com/gpucores=30"),
			[]string{"nvidia.com/gpucores"}},
		{"no GPU and a part of it", translate.Options{}, one("nvidia.com/gpu", "0", "nvidia.com/gpumem", "1024"),
			[]string{"and no GPU"}},
		{"no number of devices", translate.Options{}, one("@gpu-fraction", "0.5", "@gpu-fraction-num-devices", "0"),
			[]string{"gpu-fraction-num-devices"}},
		{"no memory", translate.Options{}, one("@gpu-memory", "0"), []string{"gpu-memory"}},
		{"a fraction of nothing", translate.Options{}, one("@gpu-fraction", "0.000"), []string{"gpu-fraction"}},
	} {
		out = append(out, Case{Name: c.name, Options: c.options, Pod: c.pod, Refused: c.why})
	}
	return out
}
