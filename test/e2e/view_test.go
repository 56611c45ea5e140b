// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// want is what a container is to have, of each of its GPUs the same.
type want struct {
	gpus    int
	memory  uint64 // bytes of one GPU
	percent uint32 // of one GPU
	level   string
}

// share is a fraction of one GPU at the level that the pool demands.
func share(memory uint64, percent uint32) want { return want{1, memory, percent, "driver"} }

// least is more than what the driver lets a container take of GPUs that are not its own.
const least = 16 * mib

// wantHeld compares what a running container sees, what the driver holds for it and what the agent shows with what
// it is to have, and returns the agent's grant.
func (e *testCase) wantHeld(p *pod, container string, w want) grant {
	e.Helper()
	return e.wantHeldBut(p, container, w, "")
}

// wantHeldBut is wantHeld of a container that was started while the driver had lost a GPU, which took no limit for it
// then.
func (e *testCase) wantHeldBut(p *pod, container string, w want, lost string) grant {
	e.Helper()
	g, id := e.grantUsed(p, container), p.id(container)
	parts := g.Shares
	if len(g.InForce) > 0 {
		parts = g.InForce
	}
	if len(parts) != w.gpus || g.Level != w.level || g.PodUID != uidOf(p.get()) || !strings.Contains(g.Cgroup, id) {
		e.Errorf("%s/%s: the agent shows %+v, want %+v of container %s", p.name, container, g, w, id)
	}
	own := map[string]bool{}
	for _, f := range parts {
		own[f.GPU] = true
		if f.Memory != w.memory || f.Percent != w.percent {
			e.Errorf("%s/%s: share %+v, want %+v", p.name, container, f, w)
		}
	}
	caps := p.caps(container)
	for uuid := range own {
		if limit, limited := caps[uuid]; limited != (w.level == "driver") || limited && limit != w.memory {
			e.Errorf("%s/%s: the driver holds %d (%t) on its GPU %s, want %+v", p.name, container, limit, limited, uuid,
				w)
		}
	}
	cut := e.inDriver()
	for i, gpu := range e.node.gpus(e.T) {
		limit, limited := caps[gpu.UUID]
		// In MIG mode a GPU takes no limits: no process can use it without the nodes of an instance.
		must := (w.level == "driver" || w.level == "exclusive") && gpu.UUID != lost && !cut[i].MIG
		if !own[gpu.UUID] && (limit > least || must && !limited) {
			e.Errorf("%s/%s: the driver lets it take %d bytes (limited: %t) of GPU %s, which is not its own", p.name,
				container, limit, limited, gpu.UUID)
		}
	}
	e.wantSees(p, container, w, own)
	return g
}

// grantUsed is the grant that a container of the pod uses, be it its own or another container's.
func (e *testCase) grantUsed(p *pod, container string) grant {
	e.Helper()
	id := p.id(container)
	all := e.picture().Grants
	for _, g := range all {
		if g.ContainerID == id && id != "" {
			return g
		}
	}
	e.Fatalf("%s/%s: no grant is in use by container %q: %+v", p.name, container, id, all)
	return grant{}
}

// grantsOf are all grants held for a pod.
func (e *testCase) grantsOf(p *pod) []grant {
	e.Helper()
	return e.picture().of(p)
}

// of are the grants of a pod.
func (s status) of(p *pod) []grant {
	var all []grant
	for _, g := range s.Grants {
		if g.Namespace == p.namespace && g.Pod == p.name {
			all = append(all, g)
		}
	}
	return all
}

// released waits until nothing is held for the pod, neither by the agent nor by the driver.
func (p *pod) released() {
	p.e.Helper()
	eventually(p.e, "release of what "+p.name+" held", func() error {
		s, err := p.e.status() // The agent may be restarting.
		if err != nil {
			return err
		}
		if all := s.of(p); len(all) > 0 {
			return fmt.Errorf("the agent holds %+v", all)
		}
		for _, id := range p.seen {
			if caps := p.e.node.capsOf(p.e.T, id); len(caps) > 0 {
				return fmt.Errorf("the driver holds %v for container %s", caps, id)
			}
		}
		return nil
	})
}

// uidOf is a pod's UID on the node: for a static pod the API server has a mirror pod with a different UID.
func uidOf(o *corev1.Pod) string {
	if uid := o.Annotations[corev1.MirrorPodAnnotationKey]; uid != "" {
		return uid
	}
	return string(o.UID)
}

// wantSees looks from within the container.
func (e *testCase) wantSees(p *pod, container string, w want, own map[string]bool) {
	e.Helper()
	sizes, files := p.view(container)
	var minors []string
	for _, g := range e.node.gpus(e.T) {
		if own[g.UUID] {
			minors = append(minors, fmt.Sprintf("nvidia%d", g.Minor))
			if w.level == "exclusive" && w.memory != g.Memory-g.Reserved {
				e.Errorf("%s/%s: %d bytes granted of a whole GPU of %d", p.name, container, w.memory,
					g.Memory-g.Reserved)
			}
		}
	}
	slices.Sort(minors)
	if !slices.Equal(files, minors) {
		e.Errorf("%s/%s: it has the device files %q, want %q", p.name, container, files, minors)
	}
	if len(sizes) != w.gpus {
		e.Errorf("%s/%s: it sees GPUs of sizes %d, want %d GPUs", p.name, container, sizes, w.gpus)
	}
	for _, size := range sizes {
		if (w.level == "driver" || w.level == "userspace") && size != w.memory || size < w.memory {
			e.Errorf("%s/%s: it sees a GPU of %d bytes, want %d", p.name, container, size, w.memory)
		}
	}
}

// look prints a line of gpuload for each GPU that a container sees, one for the first that it does not see, and
// its device files.
const look = `i=0; while gpuload --json --gpu $i; do i=$((i+1)); done; cd /dev; ls`

// view is what a program in a running container finds: the sizes of the GPUs, and their device files, sorted.
func (p *pod) view(container string) (sizes []uint64, files []string) {
	p.e.Helper()
	out, errOut, err := p.exec(container, "/bin/sh", "-c", look)
	if err != nil {
		p.e.Fatalf("exec in %s/%s: %v, %s", p.name, container, err, errOut)
	}
	return p.e.seen(out)
}

// seen reads what look has printed.
func (e *testCase) seen(out string) (sizes []uint64, files []string) {
	e.Helper()
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		number, isGPU := strings.CutPrefix(line, "nvidia")
		switch {
		case strings.HasPrefix(line, "{"):
			if l := decode[loaded](e.T, line); l.Error == nil && l.Total != nil {
				sizes = append(sizes, *l.Total)
			}
		case isGPU && strings.Trim(number, "0123456789") == "":
			files = append(files, line)
		}
	}
	slices.Sort(files)
	return sizes, files
}

// shareOf is the part of a GPU that so many percent are, as Kerf rounds it: whole MiB.
func (g simGPU) shareOf(percent uint64) uint64 {
	return (g.Memory - g.Reserved) * percent / 100 / mib * mib
}

// both are two maps in one; the second wins.
func both[V any](a, b map[string]V) map[string]V {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]V{}
	}
	maps.Copy(out, b)
	return out
}
