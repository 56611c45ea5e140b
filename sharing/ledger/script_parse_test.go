// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// uuid returns the UUID of gpuN.
func uuid(name string) sharing.GPURef {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "gpu"))
	if err != nil {
		return sharing.GPURef{UUID: sharing.GPUID(name)}
	}
	return sharing.GPURef{UUID: sharing.GPUID(fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", n))}
}

// parseGPU reads "gpu0 80GiB reserved=1GiB model=H100 numa=0 links=gpu1,gpu2 mig health=lost".
func parseGPU(t *testing.T, line string) sharing.GPU {
	t.Helper()
	words := strings.Fields(line)
	if len(words) < 2 {
		t.Fatalf("%q is no GPU", line)
	}
	index, err := strconv.Atoi(strings.TrimPrefix(words[0], "gpu"))
	if err != nil {
		t.Fatal(err)
	}
	g := sharing.GPU{UUID: uuid(words[0]).UUID, Index: index, Model: "H100", Memory: size(t, words[1]),
		Health: sharing.HealthOK}
	for _, w := range words[2:] {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "reserved":
			g.Reserved = size(t, v)
		case "model":
			g.Model = v
		case "numa":
			g.NUMA, err = strconv.Atoi(v)
		case "links":
			for peer := range strings.SplitSeq(v, ",") {
				g.NVLinks = append(g.NVLinks, uuid(peer).UUID)
			}
		case "mig":
			g.MIG = true
		case "health":
			g.Health = parseHealth(t, v)
		default:
			t.Fatalf("%q: unknown %q", line, w)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func size(t *testing.T, s string) sharing.Bytes {
	t.Helper()
	b, err := sharing.ParseBytes("script", s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parseHealth(t *testing.T, s string) sharing.Health {
	t.Helper()
	for h := sharing.HealthUnknown; h <= sharing.HealthLost; h++ {
		if h.String() == s {
			return h
		}
	}
	t.Fatalf("%q is no health", s)
	return 0
}

// request reads memory=, percent=, gpus=, model=, place=, level=, burst=.
func request(t *testing.T, opts map[string]string) sharing.Request {
	t.Helper()
	in := sharing.Flags{Memory: opts["memory"], Percent: opts["percent"], GPUs: opts["gpus"], Placement: opts["place"],
		Level: opts["level"]}
	if opts["model"] != "" {
		in.Models = strings.Split(opts["model"], ",")
	}
	r, err := sharing.RequestFromFlags(in)
	if err == nil && opts["burst"] != "" {
		r.Burst, err = sharing.ParseBurst("burst", opts["burst"])
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func owner(opts map[string]string) ledger.Owner {
	pod, container, _ := strings.Cut(opts["pod"], "/")
	return ledger.Owner{PodUID: pod, Container: container}
}

func parseAttachment(t *testing.T, opts map[string]string) ledger.Attachment {
	t.Helper()
	inode, err := strconv.ParseUint(opts["inode"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return ledger.Attachment{Cgroup: opts["cgroup"], Inode: inode, ContainerID: opts["container"]}
}

// parsePlacement reads gpu0:10GiB:25 or gpu0:79GiB:whole.
func parsePlacement(t *testing.T, words []string) sharing.Placement {
	t.Helper()
	var p sharing.Placement
	for _, w := range words {
		parts := append(strings.Split(w, ":"), "", "")
		f := sharing.Share{GPU: uuid(parts[0]), Memory: size(t, parts[1])}
		switch parts[2] {
		case "":
		case "whole":
			f.Percent, f.Whole = sharing.FullGPU, true
		default:
			percent, err := sharing.ParsePercent("script", parts[2])
			if err != nil {
				t.Fatal(err)
			}
			f.Percent = percent
		}
		p = append(p, f)
	}
	return p
}

func showPlacement(p sharing.Placement) string {
	var parts []string
	for _, f := range p {
		s := fmt.Sprintf("%s %s", f.GPU, f.Memory)
		switch {
		case f.Whole:
			s += " whole"
		case f.Percent > 0:
			s += " " + f.Percent.String()
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, ", ")
}

// answer writes an error with the word of the vocabulary that it wraps.
func answer(err error) string {
	if err == nil {
		return "ok"
	}
	names := []struct {
		is   error
		name string
	}{
		{sharing.ErrNotFound, "NotFound"},
		{sharing.ErrConflict, "Conflict"},
		{sharing.ErrExhausted, "Exhausted"},
		{sharing.ErrInvalid, "Invalid"},
		{sharing.ErrUnsupported, "Unsupported"},
		{sharing.ErrUnavailable, "Unavailable"},
		{sharing.ErrStale, "Stale"},
		{sharing.ErrLost, "Lost"},
	}
	for _, n := range names {
		if errors.Is(err, n.is) {
			return n.name + ": " + err.Error()
		}
	}
	return "NO SENTINEL: " + err.Error()
}
