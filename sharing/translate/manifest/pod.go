// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/translate"
)

// pod translates the requests of one pod.
func (w *walk) pod(p pod) {
	for _, c := range p.containers {
		w.taken[c.node] = true
	}
	before := w.read(&p)
	change, err := w.options.Pod(before)
	if err != nil {
		w.fail(p.in, err)
		return
	}
	claims, err := w.claimsOf(before, change)
	if err != nil {
		w.fail(p.in, err)
		return
	}
	if p.listed || !change.Empty() {
		w.result.Pods++
	}
	for i, c := range p.containers {
		name := before.Containers[i].Name
		w.share(c, fmt.Sprint(change.Drop[name], change.Limits[name], claims.Of[name], claims.Same[name]))
		w.environment(p, c, before.Containers[i], change)
	}
	for _, s := range change.Differences {
		w.say(p.in, "%s", s)
	}
	switch {
	case len(claims.Of) > 0:
		w.claims(p, before, change, claims)
	case !change.Empty():
		w.change(p, before, change)
	}
}

// change edits the limits and annotations of a pod.
func (w *walk) change(p pod, before translate.Pod, change translate.Change) {
	if len(change.Annotations) > 0 && len(p.path) == 0 {
		w.errs = append(w.errs, fmt.Errorf("%v: %w", p.in, sharing.Invalid("container "+p.containers[0].name, "",
			"write kerf.dev limits and annotations by hand",
			"needs annotations, and this object has no place for them")))
		return
	}
	w.result.Changed++
	w.changed = append(w.changed, p.in)
	for i, c := range p.containers {
		name := before.Containers[i].Name
		w.limits(c, change.Drop[name], change.Limits[name])
		w.count(p, name, change)
	}
	w.annotate(p, change)
}

// read is what package translate reads of a pod. It makes the names of containers unique.
func (w *walk) read(p *pod) translate.Pod {
	out := translate.Pod{Annotations: map[string]string{}}
	for _, holder := range p.meta {
		for key, value := range texts(get(holder, "annotations")) {
			if _, known := out.Annotations[key]; !known {
				out.Annotations[key] = value
			}
		}
	}
	names := map[string]bool{}
	for _, c := range p.containers {
		limits := w.limitsOf(p.in, c)
		name := c.name
		for i := 2; names[name]; i++ {
			name = c.name + "#" + strconv.Itoa(i)
		}
		names[name] = true
		out.Containers = append(out.Containers, translate.Container{Name: name, Limits: limits, Init: c.init})
	}
	return out
}

// limitsOf are the requests and limits of a container. Those of GPUs must be equal, as in the API server.
func (w *walk) limitsOf(in object, c container) map[string]string {
	out := map[string]string{}
	for _, part := range []string{"requests", "limits"} {
		for name, v := range texts(get(get(c.node, c.resources), part)) {
			v = w.options.Decimal(v)
			if was, known := out[name]; known && was != v && foreign(name) {
				w.errs = append(w.errs, fmt.Errorf("%v: %w", in, sharing.Invalid("container "+c.name+": "+name, v,
					"write the same amount in both", "differs from its request %s", was)))
			}
			out[name] = v
		}
	}
	return out
}

// share notes the change of each mapping that a container requests GPUs in. Two containers can use it by an anchor.
func (w *walk) share(c container, change string) {
	resources := get(c.node, c.resources)
	for _, n := range []*yaml.Node{c.node, resources, get(resources, "limits"), get(resources, "requests")} {
		if n == nil || !isMapping(n) {
			continue
		}
		if was, known := w.shared[n]; known && was != change {
			w.edits.conflict = true
		}
		w.shared[n] = change
	}
}

// limits edits the requests and limits of a container.
func (w *walk) limits(c container, drop []string, give map[string]string) {
	resources := get(c.node, c.resources)
	limits := get(resources, "limits")
	into := limits
	for _, part := range []*yaml.Node{get(resources, "requests"), limits} {
		for _, name := range drop {
			if e := find(part, name); e.value != nil {
				w.edits.drop(e.owner, name)
				if part == limits {
					into = e.owner
				}
			}
		}
	}
	switch {
	case len(give) == 0:
	case isMapping(into):
		for name, value := range give {
			w.edits.put(into, name, text(value))
		}
	default:
		w.edits.below(c.node, give, c.resources, "limits")
	}
}

// annotate edits the annotations of a pod.
func (w *walk) annotate(p pod, change translate.Change) {
	for _, holder := range p.meta {
		for _, name := range change.DropAnnotations {
			if e := find(get(holder, "annotations"), name); e.value != nil {
				w.edits.drop(e.owner, name)
			}
		}
	}
	if len(change.Annotations) == 0 {
		return
	}
	if p.in.kind == "InferenceService" || strings.HasSuffix(p.in.kind, "ServingRuntime") || len(p.meta) > 0 {
		w.edits.below(p.node, change.Annotations, p.path...)
	}
}

// visibleDevices is the variable that gives a container GPUs, without a request.
const visibleDevices = "NVIDIA_VISIBLE_DEVICES"

// isVisible is true for an environment variable that gives GPUs.
func isVisible(variable *yaml.Node) bool {
	return scalar(get(variable, "name")) == visibleDevices && !none(scalar(get(variable, "value")))
}

// none is true for a value of the variable that gives no GPU.
func none(value string) bool { return slices.Contains([]string{"", "none", "void"}, value) }

// environment excuses the variable that gives GPUs if the container requests them, and names those that switched the
// old tool off.
func (w *walk) environment(p pod, c container, before translate.Container, change translate.Change) {
	given := len(change.Limits[before.Name]) > 0
	for name := range before.Limits {
		given = given || strings.HasPrefix(name, sharing.Domain+"/")
	}
	for _, variable := range list(get(c.node, "env")) {
		switch name, value := scalar(get(variable, "name")), scalar(get(variable, "value")); {
		case name == visibleDevices && given:
			w.excused[variable] = true
		case name == "CUDA_DISABLE_CONTROL" && value == "true" && given:
			w.say(p.in, "container %s: CUDA_DISABLE_CONTROL no longer removes the cap", c.name)
		case name == "GPU_CORE_UTILIZATION_POLICY" && given:
			w.say(p.in, "container %s: GPU_CORE_UTILIZATION_POLICY has no effect: the pool sets the policy", c.name)
		}
	}
}

// fail notes each of several errors with its object.
func (w *walk) fail(in object, err error) {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range all.Unwrap() {
			w.fail(in, one)
		}
		return
	}
	w.errs = append(w.errs, fmt.Errorf("%v: %w", in, err))
}

func (w *walk) say(in object, format string, args ...any) {
	w.result.Differences = append(w.result.Differences, in.String()+": "+fmt.Sprintf(format, args...))
}

// count notes the GPUs of a pod with shares, for Ray.
func (w *walk) count(p pod, name string, change translate.Change) {
	limits := change.Limits[name]
	if len(limits) == 0 || limits[sharing.ResourceGPU] != "" {
		return
	}
	n, err := strconv.Atoi(change.Annotations["gpu-count."+sharing.Domain+"/"+name])
	if err != nil {
		n = 1
	}
	w.gpus[p.node] += n
}

// ray gives a group of Ray the number of GPUs. KubeRay counts resources that end in "gpu", and shares do not.
func (w *walk) ray(n *yaml.Node, in object) {
	start, gpus := find(n, "rayStartParams"), w.gpus[get(n, "template")]
	if start.value == nil || gpus == 0 || get(start.value, "num-gpus") != nil {
		return
	}
	w.edits.below(n, map[string]string{"num-gpus": strconv.Itoa(gpus)}, "rayStartParams")
	w.say(in, "rayStartParams has num-gpus %d now: KubeRay does not count shares", gpus)
}

// schedulers replaces or names the schedulers of objects with a translated request.
func (w *walk) schedulers() {
	done := map[*yaml.Node]bool{}
	for _, in := range w.changed {
		if in.node == nil || done[in.node] {
			continue
		}
		done[in.node] = true
		w.schedulerIn(in.node, in, 0, map[*yaml.Node]bool{})
	}
}

func (w *walk) schedulerIn(n *yaml.Node, in object, depth int, seen map[*yaml.Node]bool) {
	n = deref(n)
	if n == nil || seen[n] || depth > deepest {
		return
	}
	seen[n] = true
	name := get(n, "schedulerName")
	switch was := scalar(name); {
	case slices.Contains([]string{"", "default-scheduler", "kerf-scheduler", w.options.Scheduler}, was):
	case w.options.Scheduler == "" && w.options.ByClaim != nil:
		w.say(in, "schedulerName %s stays: it must know ResourceClaims; else use --scheduler default-scheduler", was)
	case w.options.Scheduler == "":
		w.say(in, "schedulerName %s stays: with kerf-scheduler on the cluster, use --scheduler kerf-scheduler", was)
	default:
		w.edits.replace(name, bare("!!str", w.options.Scheduler))
	}
	for _, c := range n.Content {
		w.schedulerIn(c, in, depth+1, seen)
	}
}
