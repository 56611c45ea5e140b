// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"regexp"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// untranslated are resources of tools that package translate does not read.
func untranslated() []string {
	return []string{"volcano.sh/gpu-memory", "volcano.sh/gpu-number", "aliyun.com/gpu-mem", "aliyun.com/gpu-count",
		"aliyun.com/gpu-core.percentage", "nvshare.com/gpu", "tencent.com/vcuda-core", "tencent.com/vcuda-memory",
		"nos.nebuly.com/gpu-memory"}
}

// untranslatedPrefixes begin the other words of such tools: InstaSlice, TensorFusion, Koordinator, and DRA's extended
// resources.
func untranslatedPrefixes() []string {
	return []string{"mig.das.com/", "org.instaslice/", "instaslice.redhat.com/", "tensor-fusion.ai/",
		"koordinator.sh/gpu",
		"deviceclass.resource.kubernetes.io/gpu.nvidia", "deviceclass.resource.kubernetes.io/mig.nvidia"}
}

// nosShare is a share of nos.
var nosShare = regexp.MustCompile(`^nvidia\.com/gpu-[0-9]+gb$`)

// claimQuota counts the devices of a DRA class of NVIDIA or HAMi in a quota.
var claimQuota = regexp.MustCompile(`(nvidia\.com|project-hami\.io)\.deviceclass\.resource\.(k8s|kubernetes)\.io/` +
	`devices$`)

// gpuResource is the form of a resource that can be a GPU's. Its name has "gpu", or is a model for virtual machines.
var gpuResource = regexp.MustCompile(`^([a-z0-9.-]+\.[a-z]+/[\w.-]*[gG][pP][uU]|nvidia\.com/[A-Z])`)

// otherVendor is the domain of a vendor of other GPUs, and of Kerf.
var otherVendor = regexp.MustCompile(`(^|\.)(amd|intel|metax-tech|mthreads|hygon|iluvatar|enflame|cambricon|huawei|` +
	`birentech|denglin|kunlunxin|` + regexp.QuoteMeta(strings.TrimSuffix(sharing.Domain, ".dev")) + `)\.[a-z]+/`)

// MaybeGPUResource is true for a resource of an unknown tool whose name says that it is a GPU, perhaps NVIDIA's.
func MaybeGPUResource(resource string) bool {
	return gpuResource.MatchString(resource) && !otherVendor.MatchString(resource)
}

// MaybeGPUClass is true for a DRA class of an unknown driver whose name says that it is a GPU, perhaps NVIDIA's.
func MaybeGPUClass(name string) bool {
	return strings.Contains(strings.ToLower(name), "gpu") && !otherVendor.MatchString(name+"/")
}

// OtherToolResource is true for a resource by which another tool requests NVIDIA's GPUs, also if it has no translation.
func OtherToolResource(resource string) bool {
	_, known := dialectOf(resource)
	return known || resource == nvidiaGPU || resource == nvidiaShared || strings.HasPrefix(resource, nvidiaMIG) ||
		slices.Contains(untranslated(), resource) || nosShare.MatchString(resource) ||
		claimQuota.MatchString(resource) || hasPrefix(resource)
}

// OtherToolAnnotation is true for an annotation by which another tool requests NVIDIA's GPUs.
func OtherToolAnnotation(name string) bool {
	return name == kaiFraction || name == kaiMemory || hasPrefix(name)
}

func hasPrefix(name string) bool {
	return slices.ContainsFunc(untranslatedPrefixes(), func(p string) bool { return strings.HasPrefix(name, p) })
}

// Quota is the resource that counts what this resource counted in a quota. It is false if Kerf counts in other units.
func (o Options) Quota(resource string) (string, bool) {
	profile, mig := strings.CutPrefix(resource, nvidiaMIG)
	switch {
	case resource == nvidiaGPU && o.MIGSingle != "":
		return sharing.MIGResource(o.MIGSingle)
	case resource == nvidiaGPU && !o.SharedByName:
		return sharing.ResourceGPU, true
	case mig && !strings.HasSuffix(profile, migReplica):
		name := sharing.Domain + "/mig-" + profile
		return name, sharing.IsMIGResource(name)
	}
	return "", false
}
