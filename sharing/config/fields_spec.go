// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

func (d *Spec) fields() fields {
	return named(d, fields{
		objects(&d.Pools, (*Pool).fields, "The pools of nodes. A node belongs to the pool whose selector matches. If "+
			"several match, the one with the most labels counts. At least one file must have pools.").def(
			"another file has them").keep(),
		objects(&d.Profiles, (*Profile).fields, "Named requests with rules."),
		object(&d.Prices, d.Prices.fields, "Prices for `kerf usage`."),
	})
}

func (p *Pool) fields() fields {
	return named(p, fields{
		text(&p.Name, "A unique name: at most 63 characters of a-z, 0-9 and -.").must(),
		selector(&p.NodeSelector),
		word(&p.Mode, ParseMode,
			"What the nodes offer to Kubernetes: shares, whole GPUs, MIG instances, or `auto` for all of them.",
			ModeAuto, ModeShared, ModeWhole, ModeMIG).def("auto"),
		word(&p.FrontEnd, sharing.ParseFrontEnd, "How the nodes offer GPUs to Kubernetes: as extended resources of a "+
			"device plugin, or as devices of Dynamic Resource Allocation. `dra` shares no MIG instances.",
			sharing.FrontEndDevicePlugin, sharing.FrontEndDRA).def("devicePlugin"),
		flag(&p.BindingConditions, "Creates the MIG instances of a ResourceClaim before kube-scheduler binds its pod. "+
			"It needs `frontend: dra`, and `dra.bindingConditions.enabled` of the chart.").def("false"),
		word(&p.Place, sharing.ParseSpread, "How GPUs are chosen if neither pod nor profile says it. `pack` keeps "+
			"whole GPUs free, `spread` prefers the emptiest GPU.", sharing.PlacePack,
			sharing.PlaceSpread).def("pack").rename("place"),
		minLevel(&p.MinLevel, "The lowest enforcement level of each grant. Kerf rejects a request that cannot reach "+
			"it. Only `none` allows shares that no backend enforces.").def("reactive for shares"),
		backendsField(&p.Backends, "The backends that enforce shares, strongest first, starting with `driver`. Kerf "+
			"uses the first that the node supports.").def("[" + strings.Join(names(DefaultBackends()), ", ") + "]"),
		word(&p.OverCap, ParseOverCap,
			"What Kerf does with a share over its cap, if libkerf, MPS or the reactive backend enforces it.",
			OverCapWarn, OverCapKill, OverCapEvict).def(DefaultOverCap.String()).rename("overCap"),
		word(&p.OnUnmanagedProcess, ParseOnUnmanagedProcess, "What Kerf does with unmanaged processes. `warn` shows "+
			"them in status and sends an event.", UnmanagedWarn, UnmanagedKill).def("warn").rename("strangers",
			"report=warn"),
		word(&p.ManagedMemory, ParseManagedMemory, "Whether programs with a share may allocate managed memory, which "+
			"the driver lists for no process. Only libkerf can reject it.", ManagedAllow, ManagedReject).def("allow"),
		quotaField(&p.UserQuota),
		object(&p.Health, p.Health.fields, "Reactions to a faulty GPU."),
		object(&p.Idle, p.Idle.fields, "Reactions to pods that leave all their GPUs idle."),
		word(&p.ComputePolicy, ParseComputePolicy,
			"How unused GPU time is treated: `fair` gives it to busy grants, `strict` does not.", ComputeFair,
			ComputeStrict).def("fair").rename("compute"),
		word(&p.TimeSlice, sharing.ParseTimeSlice,
			"How long one process runs on a GPU while another waits. If left out, it stays unchanged.",
			sharing.TimeSlices()...),
		word(&p.ComputeMode, parseComputeMode, "Which processes may have a context on a GPU. If left out, it stays "+
			"unchanged. `exclusiveProcess` needs mode whole.", sharing.ComputeModeDefault,
			sharing.ComputeModeExclusiveProcess),
		word(&p.MPSDaemonScope, ParseMPSDaemonScope,
			"Which pods share a control daemon of MPS: those of one namespace, or all of the pool.", MPSScopeNamespace,
			MPSScopePool).def("namespace").rename("mpsSharing", "domain=namespace"),
		word(&p.MPSComputeMode, ParseMPSComputeMode, "The compute mode of GPUs on which MPS enforces shares. "+
			"`manage` sets EXCLUSIVE_PROCESS for one domain and DEFAULT for several. `keep` leaves it unchanged.",
			MPSComputeModeManage, MPSComputeModeUnchanged).def("manage"),
		objects(&p.GPURules, (*GPURule).fields,
			"Rules for some of the nodes' GPUs. The first rule that matches a GPU applies.").rename("gpus"),
		maxSharesField(&p.MaxSharesPerGPU, "no bound"),
		reserveField(&p.MemoryReserve, "nothing"),
		overcommitField(&p.Overcommit, "1"),
		wattsField(&p.PowerLimitWatts, "as it is"),
		number(&p.PerGPUHour, "The price of an hour of a whole GPU of this pool.").like("2.50").def(
			"that of spec.prices").rename("gpuHour"),
		layoutsField(&p.MIGLayouts),
		span(&p.MIGIdleTTL, parseWarm, leastWarm, mostWarm,
			"How long Kerf keeps an idle MIG instance for the next request of the same "+
				"profile.").def("5m").rename("migKeepWarm"),
		flag(&p.AllowGPUReset, "Allows the GPU reset that GPUs before Hopper need to switch MIG mode.").def(
			"false").rename("migReset"),
		autoMIGField(&p.AutoMIGMode),
		texts(&p.Profiles,
			"The only profiles that requests may name in this pool. Each request must then name one.").def(
			"all profiles, and requests without one").rename("profiles"),
	})
}

func (p *Profile) fields() fields {
	return named(p, fields{
		text(&p.Name, "A unique name: at most 63 characters of a-z, 0-9 and -.").must(),
		size(&p.Memory, "The total memory over all GPUs of the request."),
		whole(&p.Percent, sharing.ParsePercent, 1, int64(sharing.MaxGPUs)*int64(sharing.FullGPU),
			"The total compute percent over all GPUs of the request. Without `memory`, it also gives that percent of "+
				"memory."),
		whole(&p.GPUs, sharing.ParseGPUs, 1, sharing.MaxGPUs,
			"The number of GPUs that the amounts are divided over. Without `memory` and `percent`, the number of "+
				"whole GPUs.").def("1").rename("gpus"),
		burstField(&p.Burst),
		texts(&p.Models,
			"Globs for the GPU model. `!` in front excludes. They apply in addition to those of the pod.").like(
			"*H100*"),
		minLevel(&p.MinLevel, "The lowest enforcement level of each grant, if the pool's is not higher. If the pool "+
			"has none, `none` allows shares that no backend enforces.").def("the pool's"),
		backendsField(&p.Backends, "Replaces the pool's.").def("the pool's"),
		word(&p.OverCap, ParseOverCap, "Replaces the pool's.", OverCapWarn, OverCapKill,
			OverCapEvict).def("the pool's").rename("overCap"),
		word(&p.Place, sharing.ParseSpread, "How GPUs are chosen if the pod does not say it.", sharing.PlacePack,
			sharing.PlaceSpread).def("the pool's").rename("place"),
		whole(&p.Priority, ParsePriority, -MaxPriority, MaxPriority,
			"The order in which grants get unused GPU time: higher first.").def("that of the pod"),
		texts(&p.Namespaces, "Globs for namespaces whose pods may use the profile. `!` in front excludes. Processes "+
			"outside of pods then may not use it.").like("ml-*").def("all"),
		hoursField(&p.Hours),
		size(&p.MaxPerPod, "The maximum memory of all containers of a pod with this profile.").like("80GiB").def(
			"no bound"),
		flag(&p.AllowPrivileged, "Exempts pods with this profile from the Pod Security baseline. No cap binds a "+
			"privileged container. It needs `namespaces`.").def("false").rename("privileged"),
	})
}

func hoursField(to *[]Hours) field {
	return field{
		Field: Field{
			Doc: "The hours of the week at which a grant may start, in UTC or the named time zone. Running pods " +
				"continue.", Default: "always", Type: Type{Example: "Mon-Fri 20:00-06:00 Europe/Berlin"}},
		to: to,
		read: func(r *reader, path string, n *yaml.Node) {
			*to = []Hours{}
			r.list(path, n, func(path string, n *yaml.Node) { *to = append(*to, parsed(r, path, n, ParseHours)) })
		},
		is:    func() Type { return Type{Kind: KindList, Of: &Type{Kind: KindText}} },
		write: func() any { return texted(*to) },
	}.rename("hours")
}

func minLevel(to *sharing.Level, doc string) field {
	return word(to, sharing.ParseLevel, doc,
		sharing.LevelNone, sharing.LevelReactive, sharing.LevelUserspace, sharing.LevelDriver, sharing.LevelHardware,
		sharing.LevelExclusive).rename("minEnforcement", sharing.OldLevelUserspace+"="+sharing.LevelUserspace.String())
}

func selector(to *map[string]string) field {
	return field{
		Field: Field{Doc: "Labels that a node must have.", Default: "every node",
			Type: Type{Kind: KindMap, Of: &Type{Kind: KindText}, Example: "{kerf.dev/pool: inference}"}},
		to:    to,
		read:  func(r *reader, path string, n *yaml.Node) { *to = r.labels(path, n) },
		write: func() any { return *to },
	}
}

func burstField(to *sharing.Burst) field {
	return field{
		Field: Field{Doc: "The highest cap with burst memory: an amount, or a percentage of the guaranteed memory.",
			Default: "no burst", Type: Type{Kind: KindText, Example: "150%"}},
		to:    to,
		read:  func(r *reader, path string, n *yaml.Node) { *to = parsed(r, path, n, sharing.ParseBurst) },
		write: func() any { return burst(*to) },
	}.rename("burstMax")
}

// Field is the description of one field of the config for people.
type Field struct {
	// Name is as it is written.
	Name string
	// Doc says what it means, in sentences.
	Doc string
	// Default says what holds where it is left out; empty where nothing does.
	Default string
	// Required is true for a field that is never left out.
	Required bool
	Type     Type
}

// TypeKind is what kind of value a field has.
type TypeKind uint8

// The kinds.
const (
	// KindText is a text.
	KindText TypeKind = iota
	// KindEnum is one of Values.
	KindEnum
	// KindWhole is a whole number, from Min to Max.
	KindWhole
	// KindNumber is a number, from Min to Max.
	KindNumber
	// KindSize is an amount of memory: a text with a unit, or a number of bytes.
	KindSize
	// KindTime is a duration with a unit, from Min to Max.
	KindTime
	// KindFlag is true or false.
	KindFlag
	// KindList is a list of Of.
	KindList
	// KindMap is a mapping from texts to Of.
	KindMap
	// KindObject is a mapping with Fields.
	KindObject
)

// Type is what a value may be.
type Type struct {
	Kind TypeKind
	// Values are what a KindEnum may be.
	Values []string
	// Min and Max bound numbers and times; empty where there is no bound.
	Min, Max string
	// Example is a value as it may be written.
	Example string
	// Of is what a list or a map has.
	Of *Type
	// Fields are those of an object.
	Fields []Field
}

// Describe is the type of the whole config, as Decode reads it.
func Describe() Type {
	var h heading
	return Type{Kind: KindObject, Fields: h.fields().described()}
}

// overlay puts a request over the profile that it names.
func overlay(p Profile, asked sharing.Request) (sharing.Request, error) {
	base := p.request()
	var errs []error
	bad := func(field, value, remedy, problem string, args ...any) {
		errs = append(errs, sharing.Invalid(field, value, remedy, problem, args...))
	}
	r := asked
	if asked.Kind == sharing.KindWhole && base.Kind != sharing.KindWhole {
		bad("whole", "", "leave it out, or name another profile", "is not what profile %q gives: a share of a GPU",
			p.Name)
	}
	r.Kind = base.Kind
	switch {
	case asked.Memory == 0:
		r.Memory = base.Memory
	case base.Memory == 0:
		bad("memory", asked.Memory.String(), "leave it out",
			"cannot narrow profile %q, which does not say how much memory it gives", p.Name)
	case asked.Memory > base.Memory:
		bad("memory", asked.Memory.String(), "request at most "+base.Memory.String(),
			"is more than the %s of profile %q", base.Memory, p.Name)
	}
	switch {
	case asked.Percent == 0:
		r.Percent = base.Percent
	case base.Percent == 0:
		bad("percent", asked.Percent.String(), "leave it out",
			"is more than profile %q gives, which requests no compute percent", p.Name)
	case asked.Percent > base.Percent:
		bad("percent", asked.Percent.String(), "request at most "+base.Percent.String(),
			"is more than the %s of profile %q", base.Percent, p.Name)
	}
	switch {
	case asked.GPUs == 0:
		r.GPUs = base.GPUs
	case asked.GPUs > base.GPUs:
		bad("gpus", strconv.Itoa(asked.GPUs), "request at most "+strconv.Itoa(base.GPUs),
			"is more than the %d of profile %q", base.GPUs, p.Name)
	}
	r.ProfileModels, r.Burst = base.ProfileModels, base.Burst
	r.MinLevel = max(asked.MinLevel, base.MinLevel)
	if r.Place == sharing.PlaceDefault {
		r.Place = base.Place
	}
	return r, errors.Join(errs...)
}
