// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package translate says in Kerf's words what pods request that were written for other tools: NVIDIA's device plugin,
// HAMi, KAI and Run:ai, and Volcano.
//
// It promises that a pod requests the same afterwards, or is rejected with what has no counterpart. Memory is rounded
// up to GiB, with a message. A pod without a request of another tool stays as it is. It does not say which node takes
// the pod, and it is pure.
package translate

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Pod is what is read of a pod.
type Pod struct {
	Annotations map[string]string
	// Containers are all, init containers too, each name once.
	Containers []Container
}

// Container is one container of a pod. Limits are whole numbers as text (the value of a resource.Quantity, not its
// text); those of no GPU do not matter.
type Container struct {
	Name   string
	Limits map[string]string
	// Init is true for an init container.
	Init bool
}

// Options say what pods cannot say themselves.
type Options struct {
	// Replicas is how many replicas NVIDIA's device plugin made of a GPU under sharing, 0 where that is not known. A
	// pod requests "one of them", which is no size. SharedByName is true where the plain nvidia.com/gpu was such a
	// replica too (renameByDefault was off).
	Replicas     int
	SharedByName bool
	// MIGSingle is the profile of the nodes' MIG instances under MIG strategy single, where pods request
	// nvidia.com/gpu; empty without it.
	MIGSingle string
	// MemoryFactor is the MiB in one unit of gpumem and vgpu-memory; 0 is 1.
	MemoryFactor int
}

// Change is what of a pod is to be written otherwise.
type Change struct {
	// Limits are those that each container gets in the place of what is in Drop; both are by the container's name.
	Limits map[string]map[string]string
	Drop   map[string][]string
	// Annotations are added, DropAnnotations taken off.
	Annotations     map[string]string
	DropAnnotations []string
	// Differences has a sentence for all that is not exactly as it was, rounding above all.
	Differences []string
}

// Empty is true when the pod requests nothing of another tool's.
func (c Change) Empty() bool { return len(c.Drop) == 0 && len(c.DropAnnotations) == 0 }

// Apply is the pod with the change.
func (c Change) Apply(p Pod) Pod {
	out := Pod{Annotations: maps.Clone(p.Annotations)}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	for _, name := range c.DropAnnotations {
		delete(out.Annotations, name)
	}
	maps.Copy(out.Annotations, c.Annotations)
	for _, one := range p.Containers {
		limits := map[string]string{}
		maps.Copy(limits, one.Limits)
		for _, name := range c.Drop[one.Name] {
			delete(limits, name)
		}
		maps.Copy(limits, c.Limits[one.Name])
		out.Containers = append(out.Containers, Container{Name: one.Name, Limits: limits, Init: one.Init})
	}
	return out
}

// Pod says how a pod that was written for another tool asks the same of Kerf. Every problem is in the error, each a
// *sharing.FieldError: what cannot be read, and what has no counterpart. The pod is then to stay as it is.
func (o Options) Pod(p Pod) (Change, error) {
	t := &translation{options: o, pod: p, out: Change{Limits: map[string]map[string]string{},
		Drop: map[string][]string{}, Annotations: map[string]string{}}}
	fraction := t.fraction()
	for _, c := range p.Containers {
		t.container(c, fraction)
	}
	if t.requests || fraction != nil {
		t.annotations()
	}
	slices.Sort(t.out.DropAnnotations)
	if err := errors.Join(t.errs...); err != nil {
		return Change{}, err
	}
	return t.out, t.proof()
}

// translation is one pod on its way.
type translation struct {
	options Options
	pod     Pod
	out     Change
	errs    []error
	// requests is true if a container requests a GPU.
	requests bool
}

func (t *translation) refuse(field, value, remedy, problem string, args ...any) {
	t.errs = append(t.errs, sharing.Invalid(field, value, remedy, problem, args...))
}

func (t *translation) say(format string, args ...any) {
	t.out.Differences = append(t.out.Differences, fmt.Sprintf(format, args...))
}

// container translates the resources of one container, and what the pod's annotations give it.
func (t *translation) container(c Container, f *fraction) {
	found, plain, own := t.requested(c)
	mine := f != nil && f.container == c.Name
	kinds := len(found) + min(1, len(plain))
	if mine {
		kinds++
	}
	at := "container " + c.Name
	switch {
	case kinds == 0:
		return
	case kinds > 1 || len(plain) > 1:
		t.refuse(at, "", "request in one way", "requests GPUs in several ways at once")
		return
	case own != "":
		t.refuse(at, own, "leave out one of them", "requests GPUs of Kerf's already")
		return
	}
	t.requests = true
	for d, names := range found {
		t.dialect(at, d, c)
		t.drop(c.Name, names...)
	}
	for _, name := range plain {
		t.nvidia(at, name, c)
		t.drop(c.Name, name)
	}
	if mine && !f.wrong {
		t.give(c.Name, f.request)
	}
}

// requested are the GPU resources of a container without those of amount 0, which it loses.
func (t *translation) requested(c Container) (found map[dialect][]string, plain []string, own string) {
	found, plain, own = sorted(c)
	for d, names := range found {
		if c.requestsNone(d.number) && !slices.ContainsFunc(names, func(s string) bool { return !c.requestsNone(s) }) {
			t.drop(c.Name, names...)
			delete(found, d)
		}
	}
	plain = slices.DeleteFunc(plain, func(name string) bool {
		none := c.requestsNone(name)
		if none {
			t.drop(c.Name, name)
		}
		return none
	})
	return found, plain, own
}

// sorted are the GPU resources of a container: those of each tool, NVIDIA's, and the first of Kerf's.
func sorted(c Container) (found map[dialect][]string, plain []string, own string) {
	found = map[dialect][]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Limits)) {
		switch d, known := dialectOf(name); {
		case strings.HasPrefix(name, sharing.Domain+"/"):
			own = cmp.Or(own, name)
		case known:
			found[d] = append(found[d], name)
		case name == nvidiaGPU, name == nvidiaShared, strings.HasPrefix(name, nvidiaMIG):
			plain = append(plain, name)
		}
	}
	if found[hami()] != nil && slices.Contains(plain, nvidiaGPU) {
		found[hami()] = append(found[hami()], nvidiaGPU) // HAMi's number of GPUs
		plain = slices.DeleteFunc(plain, func(s string) bool { return s == nvidiaGPU })
	}
	return found, plain, own
}

// requestsNone is true for amount 0 of a resource.
func (c Container) requestsNone(resource string) bool {
	n, err := strconv.ParseUint(c.Limits[resource], 10, 64)
	return err == nil && n == 0
}

func (t *translation) drop(container string, names ...string) {
	t.out.Drop[container] = append(t.out.Drop[container], names...)
}

// give writes a request into a container, with what belongs to this container alone.
func (t *translation) give(container string, r sharing.Request) {
	w, err := Of(r)
	if err != nil {
		t.errs = append(t.errs, fmt.Errorf("container %s: %w", container, err))
		return
	}
	t.out.Limits[container] = w.Limits
	if n, ok := w.Annotations[sharing.Domain+"/gpu-count"]; ok {
		t.out.Annotations["gpu-count."+sharing.Domain+"/"+container] = n
	}
	for _, s := range w.Differences {
		t.say("container %s: %s", container, s)
	}
}

// proof reads the result as a node would.
func (t *translation) proof() error {
	all := maps.Clone(t.pod.Annotations)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, t.out.Annotations)
	var errs []error
	for _, c := range t.pod.Containers {
		if limits, ok := t.out.Limits[c.Name]; ok {
			if _, _, err := sharing.RequestFromResources(limits, all, c.Name); err != nil {
				errs = append(errs, fmt.Errorf("container %s: %w", c.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}
