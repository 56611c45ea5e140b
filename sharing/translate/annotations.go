// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// The annotations of KAI and Run:ai. They are of the pod, for one of its containers.
const (
	kaiFraction  = "gpu-fraction"
	kaiMemory    = "gpu-memory"
	kaiDevices   = "gpu-fraction-num-devices"
	kaiContainer = "gpu-fraction-container-name"
	kaiMPS       = "mps"
)

// kaiLimits are Run:ai's bursts over a fraction.
func kaiLimits() []string { return []string{"gpu-fraction-limit", "gpu-memory-limit"} }

// fraction is what KAI's annotations ask for.
type fraction struct {
	container string
	request   sharing.Request
	// wrong is true if the annotations have no counterpart.
	wrong bool
}

// fraction reads KAI's annotations; nil where the pod has none.
func (t *translation) fraction() *fraction {
	a := t.pod.Annotations
	share, byShare := a[kaiFraction]
	memory, byMemory := a[kaiMemory]
	if !byShare && !byMemory {
		return nil
	}
	before := len(t.errs)
	t.dropFraction()
	f := &fraction{request: sharing.Request{GPUs: 1}}
	if n, given := a[kaiDevices]; given {
		gpus, err := sharing.ParseGPUs("annotation "+kaiDevices, n)
		if err != nil {
			t.errs, f.wrong = append(t.errs, err), true
			return f
		}
		f.request.GPUs = gpus
	}
	switch {
	case byShare && byMemory:
		t.refuse("annotation "+kaiMemory, memory, "leave out one of them", "cannot be given together with %s",
			kaiFraction)
	case byShare:
		t.share(f, share)
	default:
		n, err := strconv.ParseUint(memory, 10, 33)
		if err != nil || n == 0 || n > maxMiB {
			t.refuse("annotation "+kaiMemory, memory, "write MiB as a whole number", "is not an amount")
		}
		f.request.Memory = sharing.Bytes(n) * sharing.MiB * sharing.Bytes(f.request.GPUs) //nolint:gosec // at most MaxGPUs
	}
	t.fractionContainer(f)
	if a[kaiMPS] == "true" {
		t.say("MPS is the node's choice (backends of its pool), and not the pod's")
	}
	f.wrong = len(t.errs) > before
	return f
}

// dropFraction takes off KAI's annotations, and rejects a burst.
func (t *translation) dropFraction() {
	for _, name := range append(kaiLimits(), kaiFraction, kaiMemory, kaiDevices, kaiContainer, kaiMPS) {
		if _, given := t.pod.Annotations[name]; given {
			t.out.DropAnnotations = append(t.out.DropAnnotations, name)
		}
	}
	for _, name := range kaiLimits() {
		if v, given := t.pod.Annotations[name]; given {
			t.refuse("annotation "+name, v, "leave it out, and give the container a profile with maxBurstMemory",
				"has no counterpart that a pod may write: bursts come from profiles")
		}
	}
}

// fractionContainer finds the container that gets the fraction.
func (t *translation) fractionContainer(f *fraction) {
	f.container = t.pod.Annotations[kaiContainer]
	// The first that is no init container, where none is named.
	if i := slices.IndexFunc(t.pod.Containers, func(c Container) bool { return !c.Init }); f.container == "" && i >= 0 {
		f.container = t.pod.Containers[i].Name
	}
	if !slices.ContainsFunc(t.pod.Containers, func(c Container) bool { return c.Name == f.container }) {
		t.refuse("annotation "+kaiContainer, f.container, "name a container of the pod",
			"is none of the pod's containers")
	}
}

// share reads a fraction of a GPU as a percentage, which is rounded up.
func (t *translation) share(f *fraction, text string) {
	v, ok := new(big.Rat).SetString(text)
	if !ok || len(text) > 32 || strings.ContainsAny(text, "/eEpP_xX") || v.Sign() <= 0 || v.Cmp(big.NewRat(1, 1)) >= 0 {
		t.refuse("annotation "+kaiFraction, text, "write a number above 0 and below 1, or request whole GPUs",
			"is not a fraction of a GPU")
		return
	}
	v.Mul(v, big.NewRat(100, 1))
	up := new(big.Int).Add(v.Num(), new(big.Int).Sub(v.Denom(), big.NewInt(1)))
	p := up.Quo(up, v.Denom()).Int64()
	if !v.IsInt() {
		t.say("fraction %s of a GPU is rounded up to %d percent", text, p)
	}
	t.say("%d percent is of a GPU's memory and of its compute", p)
	f.request.Percent = sharing.Percent(p) * sharing.Percent(f.request.GPUs) //nolint:gosec // at most 100 times MaxGPUs
}

// annotations translates what narrows or advises the choice of a GPU.
func (t *translation) annotations() {
	a := t.pod.Annotations
	take := func(name string) (string, bool) {
		v, given := a[name]
		if given {
			t.out.DropAnnotations = append(t.out.DropAnnotations, name)
		}
		return v, given
	}
	var models, uuids []string
	if v, ok := take("nvidia.com/use-gputype"); ok {
		models = append(models, globs(v, "")...)
	}
	if v, ok := take("nvidia.com/nouse-gputype"); ok {
		models = append(models, globs(v, "!")...)
	}
	for _, name := range [][2]string{{"nvidia.com/", ""}, {"volcano.sh/", "vgpu-"}} {
		if v, ok := take(name[0] + name[1] + "use-gpuuuid"); ok {
			uuids = append(uuids, words(v)...)
		}
		if v, ok := take(name[0] + name[1] + "nouse-gpuuuid"); ok {
			t.refuse("annotation "+name[0]+name[1]+"nouse-gpuuuid", v,
				"name those that may be used, with kerf.dev/gpu-uuid, or mark the GPU with kerf cordon",
				"has no counterpart")
		}
		if v, ok := take(name[0] + "vgpu-mode"); ok {
			t.mode("annotation "+name[0]+"vgpu-mode", v)
		}
	}
	if v, ok := take("nvidia.com/numa-bind"); ok && v == "true" {
		t.refuse("annotation nvidia.com/numa-bind", v, "use kubelet's topology manager with whole GPUs",
			"has no counterpart for a part of a GPU")
	}
	if v, ok := take("hami.io/gpu-scheduler-policy"); ok {
		place, known := map[string]string{"binpack": "pack", "spread": "spread"}[v]
		if !known {
			t.refuse("annotation hami.io/gpu-scheduler-policy", v, "write binpack or spread, or leave it out",
				"has no counterpart")
		}
		t.out.Annotations[sharing.Domain+"/placement-policy"] = place
	}
	for _, name := range []string{"hami.io/node-scheduler-policy", "hami.io/device-scoring-weights",
		"volcano.sh/vgpu-podgroup-policy"} {
		if v, ok := take(name); ok {
			t.say("annotation %s (%s) is left out: kerf-scheduler weighs nodes by their fragmentation",
				name, v)
		}
	}
	if len(models) > 0 {
		t.out.Annotations[sharing.Domain+"/gpu-model"] = strings.Join(models, ",")
	}
	if len(uuids) > 0 {
		t.out.Annotations[sharing.Domain+"/gpu-uuid"] = strings.Join(uuids, ",")
	}
}

// mode is how the other tool was to hold the share to its size.
func (t *translation) mode(field, v string) {
	switch v {
	case "hami-core", "mps":
		t.say("%s %s is left out: what holds a share to its size is the node's choice, and its level is shown", field,
			v)
	case "mig":
		t.refuse(field, v, "request an instance, with kerf.dev/mig-1g.10gb and the like",
			"has no counterpart: a part of a GPU is no MIG instance")
	default:
		t.refuse(field, v, "leave it out", "is not known")
	}
}

// globs are globs of models that have the words in their names, as HAMi compares them.
func globs(v, before string) (out []string) {
	for _, w := range words(v) {
		out = append(out, fmt.Sprintf("%s*%s*", before, w))
	}
	return out
}

func words(v string) []string {
	return strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' })
}
