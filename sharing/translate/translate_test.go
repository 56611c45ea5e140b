// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

// one is a pod of one container, of pairs of a name and a value: a name with a domain of resources is a limit.
func one(pairs ...string) Pod {
	p := Pod{Annotations: map[string]string{}, Containers: []Container{{Name: "main", Limits: map[string]string{"cpu": "2"}}}}
	for i := 0; i < len(pairs); i += 2 {
		if name, annotation := strings.CutPrefix(pairs[i], "@"); annotation {
			p.Annotations[name] = pairs[i+1]
		} else {
			p.Containers[0].Limits[pairs[i]] = pairs[i+1]
		}
	}
	return p
}

func TestPods(t *testing.T) {
	t.Parallel()
	four := Options{Replicas: 4, SharedByName: true}
	for name, tt := range map[string]struct {
		options Options
		pod     Pod
		// want has the limits of the container, then the annotations after "@"; said is part of what is said.
		want, said string
	}{
		"nothing of a GPU":          {Options{}, one("@team", "a"), "", ""},
		"whole GPUs":                {Options{}, one("nvidia.com/gpu", "2"), "kerf.dev/gpu=2", ""},
		"a MIG instance":            {Options{}, one("nvidia.com/mig-1g.10gb", "1"), "kerf.dev/mig-1g.10gb=1", ""},
		"one with media":            {Options{}, one("nvidia.com/mig-1g.10gb.me", "1"), "kerf.dev/mig-1g.10gb.me=1", ""},
		"a replica":                 {Options{Replicas: 3}, one("nvidia.com/gpu.shared", "1"), "kerf.dev/gpu-percent=33", "one of 3 replicas"},
		"a replica, not renamed":    {four, one("nvidia.com/gpu", "1"), "kerf.dev/gpu-percent=25", "held to it"},
		"HAMi's memory":             {Options{}, one("nvidia.com/gpu", "1", "nvidia.com/gpumem", "3000"), "kerf.dev/gpu-memory-gib=3", "rounded up to 3GiB"},
		"HAMi's exact GiB":          {Options{}, one("nvidia.com/gpumem", "4096", "nvidia.com/gpucores", "30"), "kerf.dev/gpu-memory-gib=4 kerf.dev/gpu-percent=30", ""},
		"HAMi's on two GPUs":        {Options{}, one("nvidia.com/gpu", "2", "nvidia.com/gpumem", "5000", "nvidia.com/gpucores", "30"), "kerf.dev/gpu-memory-gib=10 kerf.dev/gpu-percent=60@gpus.kerf.dev/main=2", "rounded up to 5GiB"},
		"HAMi's percentage":         {Options{}, one("nvidia.com/gpu", "1", "nvidia.com/gpumem-percentage", "50"), "kerf.dev/gpu-percent=50", "that share of its compute"},
		"HAMi's both alike":         {Options{}, one("nvidia.com/gpumem-percentage", "50", "nvidia.com/gpucores", "50"), "kerf.dev/gpu-percent=50", ""},
		"HAMi's whole":              {Options{}, one("nvidia.com/gpu", "2", "nvidia.com/gpucores", "100"), "kerf.dev/gpu=2", "whole GPU"},
		"HAMi's annotations":        {Options{}, one("nvidia.com/gpumem", "1024", "@nvidia.com/use-gputype", "A100,H100", "@nvidia.com/nouse-gputype", "T4", "@hami.io/gpu-scheduler-policy", "binpack", "@nvidia.com/vgpu-mode", "hami-core"), "kerf.dev/gpu-memory-gib=1@kerf.dev/gpu-model=*A100*,*H100*,!*T4* kerf.dev/placement=pack", "left out"},
		"HAMi's UUID":               {Options{}, one("nvidia.com/gpumem", "1024", "@nvidia.com/use-gpuuuid", "GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f"), "kerf.dev/gpu-memory-gib=1@kerf.dev/gpu-uuid=GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f", ""},
		"Volcano's":                 {Options{}, one("volcano.sh/vgpu-number", "1", "volcano.sh/vgpu-memory", "1025", "volcano.sh/vgpu-cores", "20"), "kerf.dev/gpu-memory-gib=2 kerf.dev/gpu-percent=20", "rounded up to 2GiB"},
		"Volcano's percentage":      {Options{}, one("volcano.sh/vgpu-number", "3", "volcano.sh/vgpu-memory-percentage", "10"), "kerf.dev/gpu-percent=30@gpus.kerf.dev/main=3", ""},
		"Volcano's whole":           {Options{}, one("volcano.sh/vgpu-number", "1"), "kerf.dev/gpu=1", "whole GPU"},
		"KAI's fraction":            {Options{}, one("@gpu-fraction", "0.5"), "kerf.dev/gpu-percent=50", "memory and of its compute"},
		"KAI's odd fraction":        {Options{}, one("@gpu-fraction", "0.333"), "kerf.dev/gpu-percent=34", "rounded up to 34 percent"},
		"KAI's memory":              {Options{}, one("@gpu-memory", "2000", "@gpu-fraction-num-devices", "2", "@mps", "true"), "kerf.dev/gpu-memory-gib=4@gpus.kerf.dev/main=2", "MPS is the node's choice"},
		"KAI's, of a GPU's percent": {Options{}, one("@gpu-fraction", "0.01"), "kerf.dev/gpu-percent=1", ""},
	} {
		c, err := tt.options.Pod(tt.pod)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := joinedPairs(c.Limits["main"])
		if len(c.Annotations) > 0 {
			got += "@" + joinedPairs(c.Annotations)
		}
		if said := strings.Join(c.Said, "\n"); got != tt.want || !strings.Contains(said, tt.said) || tt.said == "" && strings.Contains(said, "rounded") {
			t.Errorf("%s: %q, said %q", name, got, said)
		}
		if c.Empty() != (tt.want == "") {
			t.Errorf("%s: empty is %v", name, c.Empty())
		}
	}
}

func joinedPairs(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, " ")
}

func TestNoCounterpart(t *testing.T) {
	t.Parallel()
	two := one("@gpu-fraction", "0.5", "@gpu-fraction-container-name", "side", "nvidia.com/gpu", "1")
	for name, tt := range map[string]struct {
		options Options
		pod     Pod
		want    []string
	}{
		"a replica of nobody knows":   {Options{}, one("nvidia.com/gpu.shared", "1"), []string{"--replicas"}},
		"two replicas":                {Options{Replicas: 4}, one("nvidia.com/gpu.shared", "2"), []string{"no more of a GPU than one"}},
		"two instances":               {Options{}, one("nvidia.com/mig-1g.10gb", "2"), []string{"one MIG instance"}},
		"no profile":                  {Options{}, one("nvidia.com/mig-big", "1"), []string{"is not the name of a MIG profile"}},
		"no number":                   {Options{}, one("nvidia.com/gpu", "500m"), []string{"is not a number of GPUs"}},
		"compute alone":               {Options{}, one("nvidia.com/gpucores", "30"), []string{"nvidia.com/gpucores", "all memory of a GPU"}},
		"two percentages":             {Options{}, one("nvidia.com/gpumem-percentage", "50", "nvidia.com/gpucores", "30"), []string{"memory and compute alike"}},
		"two amounts":                 {Options{}, one("nvidia.com/gpumem-percentage", "50", "nvidia.com/gpumem", "30"), []string{"cannot be given together"}},
		"low priority":                {Options{}, one("nvidia.com/gpumem", "1024", "nvidia.com/priority", "1"), []string{"priorities come from profiles"}},
		"two mistakes":                {Options{}, one("nvidia.com/gpumem", "x", "nvidia.com/gpucores", "101"), []string{"nvidia.com/gpumem", "nvidia.com/gpucores"}},
		"other policies":              {Options{}, one("nvidia.com/gpumem", "1024", "@hami.io/gpu-scheduler-policy", "mutex", "@nvidia.com/numa-bind", "true", "@nvidia.com/nouse-gpuuuid", "GPU-a", "@nvidia.com/vgpu-mode", "mig"), []string{"mutex", "numa-bind", "nouse-gpuuuid", "vgpu-mode"}},
		"two tools":                   {Options{}, one("nvidia.com/gpumem", "1024", "volcano.sh/vgpu-number", "1"), []string{"in several ways"}},
		"a fraction and a GPU":        {Options{}, one("@gpu-fraction", "0.5", "nvidia.com/gpu", "1"), []string{"in several ways"}},
		"Kerf's already":              {Options{}, one("nvidia.com/gpu", "1", "kerf.dev/gpu", "1"), []string{"of Kerf's already"}},
		"a fraction of no container":  {Options{}, two, []string{"none of the pod's containers"}},
		"a whole GPU as a fraction":   {Options{}, one("@gpu-fraction", "1"), []string{"is not a fraction"}},
		"a fraction in other numbers": {Options{}, one("@gpu-fraction", "1/2"), []string{"is not a fraction"}},
		"fraction and memory":         {Options{}, one("@gpu-fraction", "0.5", "@gpu-memory", "1"), []string{"cannot be given together"}},
		"a burst":                     {Options{}, one("@gpu-fraction", "0.5", "@gpu-fraction-limit", "0.8"), []string{"bursts come from profiles"}},
		"a UUID that is none":         {Options{}, one("nvidia.com/gpumem", "1024", "@nvidia.com/use-gpuuuid", "0"), []string{"kerf.dev/gpu-uuid"}},
	} {
		c, err := tt.options.Pod(tt.pod)
		if !errors.Is(err, sharing.ErrInvalid) || !c.Empty() && !strings.Contains(name, "UUID") {
			t.Errorf("%s: %v, %+v", name, err, c)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}

// TestOf: a request that a pod can ask for is read back as it was, but for the rounding.
func TestOf(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]sharing.Request{
		"memory":  {Memory: 10 * sharing.GiB, GPUs: 2, Percent: 50, Models: []string{"*H100*"}, Place: sharing.PlacePack},
		"percent": {Percent: 25, GPUs: 1, MinLevel: sharing.LevelDriver},
		"whole":   {Kind: sharing.KindWhole, GPUs: 8},
		"mig":     {Kind: sharing.KindMIG, MIG: "1g.10gb", GPUs: 1},
		"profile": {Memory: sharing.GiB, Profile: "small", UUIDs: []sharing.GPUID{"GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f"}},
	} {
		w, err := Of(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		back, err := w.Read()
		if d := cmp.Diff(r, back); d != "" || err != nil || len(w.Said) > 0 {
			t.Errorf("%s: %v %q\n%s", name, err, w.Said, d)
		}
	}
	for name, r := range map[string]sharing.Request{"open": {Profile: "p", GPUs: 1}, "a size of MIG": {Kind: sharing.KindMIG, MIG: ">= 16GiB", GPUs: 1}, "nothing": {}} {
		if _, err := Of(r); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzPod: nothing panics; what is translated is read by a node, is at least what was asked and less than a GiB more on each
// GPU, and asks for nothing of another tool's any more.
func FuzzPod(f *testing.F) {
	f.Add("1", "3000", "", "30", "", "", uint8(0))
	f.Add("", "", "50", "", "0.25", "2", uint8(4))
	f.Add("2", "", "", "", "", "", uint8(3))
	f.Fuzz(func(t *testing.T, gpus, memory, share, cores, fraction, model string, replicas uint8) {
		p := Pod{Annotations: map[string]string{}, Containers: []Container{{Name: "a", Limits: map[string]string{}}, {Name: "b", Limits: map[string]string{"cpu": "1"}}}}
		for name, v := range map[string]string{nvidiaGPU: gpus, hami().memory: memory, hami().memoryPercent: share, hami().cores: cores} {
			if v != "" {
				p.Containers[0].Limits[name] = v
			}
		}
		for name, v := range map[string]string{kaiFraction: fraction, "nvidia.com/use-gputype": model} {
			if v != "" {
				p.Annotations[name] = v
			}
		}
		o := Options{Replicas: int(replicas)}
		c, err := o.Pod(p)
		if err != nil {
			return
		}
		after := Pod{Annotations: maps.Clone(p.Annotations), Containers: []Container{{Name: "a", Limits: c.Limits["a"]}, p.Containers[1]}}
		for _, name := range c.DropAnnotations {
			delete(after.Annotations, name)
		}
		maps.Copy(after.Annotations, c.Annotations)
		if c.Empty() {
			return
		}
		if again, err := o.Pod(after); err != nil || !again.Empty() {
			t.Fatalf("a second time: %+v, %v", again, err)
		}
		r, asks, err := sharing.RequestFromResources(c.Limits["a"], after.Annotations, "a")
		if err != nil || !asks {
			t.Fatalf("%+v: %v, %v", c, asks, err)
		}
		if mib, err := strconv.ParseUint(memory, 10, 64); err == nil && r.Memory > 0 {
			each, _ := r.Each()
			if asked := sharing.Bytes(mib) * sharing.MiB; each < asked || each >= asked+sharing.GiB {
				t.Fatalf("%d MiB became %v", mib, each)
			}
		}
	})
}
