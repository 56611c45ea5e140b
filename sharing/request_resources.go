// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"maps"
	"slices"
	"strings"
)

// The resources and annotations that a pod writes.
const (
	// Domain is the domain of every name that Kerf gives in Kubernetes.
	Domain = "kerf.dev"
	// ResourceMemory is GiB of GPU memory, the total over the container's GPUs.
	ResourceMemory = Domain + "/gpu-memory-gib"
	// ResourcePercent is percent of GPU compute, the total over the container's GPUs.
	ResourcePercent = Domain + "/gpu-percent"
	// ResourceGPU is a number of whole GPUs.
	ResourceGPU = Domain + "/gpu"

	// resourceMIG is, with a profile's name after it, a number of MIG instances of that profile; "+" of the name is
	// written ".".
	resourceMIG = Domain + "/mig-"
)

// The keys of annotations: Domain/key for the pod, key.Domain/container for one container.
const (
	// keyProfile names a profile of the SharingConfig.
	keyProfile = "profile"
	// keyLevel is the least enforcement level that is accepted.
	keyLevel = "min-enforcement"
	// keyGPUs is the number of GPUs that the amounts are divided over.
	keyGPUs = "gpu-count"
	// keyModel is globs over the GPU's model, with commas between them and "!" in front for not.
	keyModel = "gpu-model"
	// keyUUID is the GPUs that are meant, by UUID, with commas between them.
	keyUUID = "gpu-uuid"
	// keyPlacement is how GPUs are chosen: pack or spread.
	keyPlacement = "placement-policy"
)

// keyTranslatedFrom says what was rounded up when the pod was translated from the words of another tool.
const keyTranslatedFrom = "translated-from"

// DoNotDisruptAnnotation of a pod keeps Kerf from moving it so that pending pods fit: "true".
const DoNotDisruptAnnotation = Domain + "/do-not-disrupt"

// keyShareCapWith names the container of the same pod whose cap a container shares.
const keyShareCapWith = "share-cap-with"

// keyScheduling has the GPUs that kerf-scheduler chose for a container. Only kerf-scheduler sets it.
const keyScheduling = "scheduling"

func annotationKeys() []string {
	return []string{keyProfile, keyLevel, keyGPUs, keyModel, keyUUID, keyPlacement, keyShareCapWith}
}

// RequestFromResources reads what a pod's container requests: its limits as decimal integers (the value of a
// resource.Quantity, not its text) and the pod's annotations. It ignores resources and annotations of others. It
// returns false if the container requests none of Kerf's resources. Annotations alone, also a profile, request
// nothing, because only a resource makes kubelet add the hook device.
//
// It does not read scheduling.kerf.dev/<container>, which only the scheduler sets. A name of an earlier version is an
// error that gives the new name; CurrentAnnotations converts those of a bound pod. Every error of the request is in
// the error, each a *FieldError, joined.
func RequestFromResources(limits, annotations map[string]string, container string) (Request, bool, error) {
	d := draft{fields: Fields{Memory: ResourceMemory, Percent: ResourcePercent, Whole: ResourceGPU}}
	asks := d.resources(limits)
	d.annotations(annotations, container, asks)
	if !asks && len(d.errs) == 0 {
		return Request{}, false, nil
	}
	r, err := d.finish()
	return r, true, err
}

// resources reads the limits and reports whether one of them is ours.
func (d *draft) resources(limits map[string]string) (asks bool) {
	shared, divided := false, ""
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		value := limits[name]
		if !strings.HasPrefix(name, Domain+"/") {
			continue
		}
		asks = true
		switch {
		case name == ResourceMemory:
			shared = true
			n := d.count(name, value, int(maxMemoryGiB))
			d.Memory = Bytes(n) * GiB //nolint:gosec // n is 0..maxMemoryGiB
		case name == ResourcePercent:
			shared = true
			d.Percent = Percent(d.count(name, value, int(FullGPU)*MaxGPUs)) //nolint:gosec // bounded by the third argument
		case name == ResourceGPU:
			d.Kind, d.GPUs = KindWhole, d.count(name, value, MaxGPUs)
		case strings.HasPrefix(name, resourceMIG):
			d.instance(name, value, divided)
			divided = name
		default:
			d.note(Invalid(name, value, "request "+ResourceMemory+", "+ResourcePercent+" or "+ResourceGPU,
				"is not a resource of Kerf"))
		}
	}
	if shared && d.Kind == KindWhole {
		// Said once and by the resource's name; Check would say it per amount.
		d.note(Invalid(ResourceGPU, limits[ResourceGPU], "request one kind in one container",
			"cannot be mixed with %s or %s", ResourceMemory, ResourcePercent))
		d.Kind = KindShared
	}
	if divided != "" {
		d.instanceAlone(divided, limits)
	}
	return asks
}

// instance reads the resource of a MIG profile; before is another one that the container requests.
func (d *draft) instance(name, value, before string) {
	switch n, problem := parseCount(value, MaxGPUs); {
	case !IsMIGResource(name):
		d.note(Invalid(name, value, "write the profile as in "+resourceMIG+"1g.10gb, with . for +",
			"is not the name of a MIG profile"))
	case before != "":
		d.note(Invalid(name, value, "request one instance in one container",
			"cannot be mixed with %s: a program uses one MIG instance at a time", before))
	case problem != "":
		d.note(Invalid(name, value, "write 1", "%s", problem))
	case n > 1:
		d.note(Invalid(name, value, "write 1, and use more containers",
			"is more than one instance, and a program uses one MIG instance at a time"))
	case n == 1:
		d.MIG, d.fields.MIG = strings.TrimPrefix(name, resourceMIG), name
	}
}

// instanceAlone makes the request one for a MIG instance, and rejects other kinds in addition to it. Memory and percent
// would be a cap on top of the instance's own.
func (d *draft) instanceAlone(name string, limits map[string]string) {
	for _, other := range []string{ResourceGPU, ResourceMemory, ResourcePercent} {
		if value, given := limits[other]; given {
			remedy, why := "leave it out, or choose another profile",
				"the instance has its own, and takes no other limit"
			if other == ResourceGPU {
				remedy, why = "request one kind in one container", "an instance is a part of a GPU"
			}
			d.note(Invalid(other, value, remedy, "cannot be given together with %s: %s", name, why))
		}
	}
	if d.MIG != "" {
		d.Kind, d.GPUs, d.Memory, d.Percent = KindMIG, 1, 0, 0
	}
}

// maxMemoryGiB is the most GiB that fit in Bytes.
const maxMemoryGiB = uint64(1)<<34 - 1

// count reads an integer resource, or notes why it is none.
func (d *draft) count(name, value string, most int) int {
	n, problem := parseCount(value, most)
	if problem != "" {
		d.note(Invalid(name, value, "write a whole number, without a unit", "%s", problem))
	}
	return n
}

// advice is one annotation that counts for the container: its whole name, for errors, and its value.
type advice struct{ name, value string }

// annotations reads those that are for the pod or for this container; the container's win.
func (d *draft) annotations(all map[string]string, container string, asks bool) {
	pod, own := map[string]advice{}, map[string]advice{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		key, of, ours := splitAnnotation(name)
		field, value := "annotation "+name, all[name]
		switch {
		case !ours || key == keyScheduling && of != "" || key == keyTranslatedFrom && of == "" ||
			name == DoNotDisruptAnnotation:
		case !slices.Contains(annotationKeys(), key):
			d.note(Invalid(field, "", keyRemedy(key, of), "is not known"))
		case of != "" && of != container:
		case of != "" && !asks:
			d.note(Invalid(field, "", "give the container a limit such as "+ResourceMemory,
				"is for a container that requests no GPU"))
		case len(list(value)) == 0:
			d.note(Invalid(field, value, "write a value, or leave it out", "is empty"))
		case key == keyShareCapWith:
			d.note(checkShareWith(field, of, value))
		case of != "":
			own[key] = advice{field, value}
		default:
			pod[key] = advice{field, value}
		}
	}
	if !asks {
		return
	}
	maps.Copy(pod, own)
	f := &d.fields
	f.GPUs, f.Models, f.UUIDs = pod[keyGPUs].name, pod[keyModel].name, pod[keyUUID].name
	f.MinLevel, f.Place, f.Profile = pod[keyLevel].name, pod[keyPlacement].name, pod[keyProfile].name
	if over := pod[keyGPUs]; over.name != "" {
		d.over(over)
	}
	d.choice(list(pod[keyModel].value), list(pod[keyUUID].value), pod[keyLevel].value, pod[keyPlacement].value,
		pod[keyProfile].value)
}

// over reads the number of GPUs that a shared request is divided over.
func (d *draft) over(a advice) {
	n, err := ParseGPUs(a.name, a.value)
	switch {
	case err != nil:
		d.note(err)
	case d.Kind == KindShared, d.Kind == KindMIG:
		d.GPUs = n
	case n != d.GPUs:
		d.note(Invalid(a.name, a.value, "leave it out", "differs from %s, which is the number of whole GPUs",
			ResourceGPU))
	}
}

// splitAnnotation splits kerf.dev/key and key.kerf.dev/container. ours is false for others' annotations.
func splitAnnotation(name string) (key, container string, ours bool) {
	domain, rest, ok := strings.Cut(name, "/")
	if !ok {
		return "", "", false
	}
	if domain == Domain {
		return rest, "", true
	}
	key, ours = strings.CutSuffix(domain, "."+Domain)
	return key, rest, ours
}

// list splits a value at commas and spaces.
func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' })
}
