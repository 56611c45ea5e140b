// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/kube"
	"github.com/kerf-gpu/kerf/internal/sleep"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/node/conditions"
	"github.com/kerf-gpu/kerf/sharing/node/status"
)

const (
	// labelPause is the least time between two checks of the node's labels. After labelAgain they are checked even
	// without a change here: an administrator may have removed one.
	labelPause = 5 * time.Second
	labelAgain = 5 * time.Minute
	// mixed is a label's value where the GPUs of the node differ.
	mixed = "mixed"
	// maxLabel is the longest value of a label.
	maxLabel = 63
)

// labelNode keeps the labels of the node's object, and takes the taint of a new node off once containers with a GPU can
// start.
func (k *Kubernetes) labelNode(ctx context.Context) {
	failures, wait := teller{log: k.Log, what: "node's labels"}, labelAgain
	var last kube.NodeLabels
	for known := false; ctx.Err() == nil; {
		changed := k.Runtime.Changed()
		books := k.Runtime.LedgerState()
		l := labelsOf(books)
		l.Started = len(books.PodsNotReady) == 0 && len(k.Unregistered()) == 0
		// Before a driver has answered, the GPUs are those of the grants that are on record, of which no more is known.
		if k.Runtime.DriverSeen() && len(books.GPUs) > 0 && (!known || !sameLabels(l, last)) {
			err := k.api.LabelNode(ctx, l)
			failures.tell(ctx, err)
			text := ""
			if err != nil {
				text = "the node's object has not its labels: " + err.Error()
			}
			k.Runtime.Conditions.Set(conditions.NodeLabels, text)
			last, known, wait = l, err == nil, labelAgain
			if err != nil {
				wait = publishLast
			}
		}
		if !l.Started {
			wait = labelPause // kubelet updates its devices without a change of our state
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-changed:
			sleep.For(ctx, labelPause)
		case <-t.C:
			known = false
		}
		t.Stop()
	}
}

func sameLabels(a, b kube.NodeLabels) bool {
	return a.Started == b.Started && maps.Equal(a.Own, b.Own) && maps.Equal(a.GFD, b.GFD)
}

// labelsOf are the labels for the node's state. Those of Kerf are about the GPUs that it can grant.
func labelsOf(b status.LedgerState) kube.NodeLabels {
	// A shared MIG instance is a part of a GPU that is there, too.
	booked := slices.DeleteFunc(slices.Clone(b.GPUs), func(g status.BookedGPU) bool { return g.GPU.Ref().IsInstance() })
	if len(booked) == 0 {
		return kube.NodeLabels{}
	}
	var gpus []sharing.GPU
	level := sharing.LevelUnknown
	for i, g := range booked {
		gpus = append(gpus, g.GPU)
		best := sharing.LevelNone
		// The level of a whole GPU says nothing about shares.
		for _, of := range g.Levels {
			if of != sharing.LevelExclusive {
				best = max(best, of)
			}
		}
		if i == 0 || best < level {
			level = best
		}
	}
	model, least, capable := commonOf(gpus)
	l := kube.NodeLabels{Own: map[string]string{
		sharing.LabelModel:  labelValue(model),
		sharing.LabelMemory: inUnits(least, sharing.GiB),
		sharing.LabelLevel:  level.String(), sharing.LabelMIGCapable: strconv.FormatBool(capable),
	}, GFD: discoveryLabels(append(gpus, b.Excluded...), b.DriverVersion)}
	if b.DriverVersion != "" {
		l.Own[sharing.LabelDriver] = labelValue(b.DriverVersion)
	}
	return l
}

// commonOf are what labels say of all GPUs: the model, the memory of the smallest, and whether one supports MIG. The
// memory is 0 if that of a GPU is unknown.
func commonOf(gpus []sharing.GPU) (model string, least sharing.Bytes, capable bool) {
	model, least = gpus[0].Model, gpus[0].Memory
	for _, g := range gpus {
		if g.Model != model {
			model = mixed
		}
		least, capable = min(least, g.Memory), capable || g.MIGCapable
	}
	if slices.ContainsFunc(gpus, func(g sharing.GPU) bool { return g.SystemMemory }) {
		least = 0
	}
	return model, least, capable
}

// inUnits is an amount of memory as a label says it.
func inUnits(amount, unit sharing.Bytes) string {
	if amount == 0 {
		return gpunode.Unknown
	}
	return strconv.FormatUint(uint64(amount/unit), 10)
}

// discoveryLabels are those of GPU feature discovery whose value the agent knows. They count each GPU of the node, also
// those that the pool leaves to another tool. They lack nvidia.com/gpu.present. NVIDIA's device plugin uses a node that
// has it.
func discoveryLabels(gpus []sharing.GPU, driver string) map[string]string {
	model, least, capable := commonOf(gpus)
	out := map[string]string{
		"nvidia.com/gpu.product": labelValue(model),
		"nvidia.com/gpu.count":   strconv.Itoa(len(gpus)), "nvidia.com/mig.capable": strconv.FormatBool(capable),
	}
	if least > 0 {
		out["nvidia.com/gpu.memory"] = inUnits(least, sharing.MiB)
	}
	if driver == "" {
		return out
	}
	out["nvidia.com/cuda.driver-version.full"] = labelValue(driver)
	parts := strings.Split(driver, ".")
	for i, name := range []string{"major", "minor", "revision"} {
		if i < len(parts) {
			out["nvidia.com/cuda.driver-version."+name] = labelValue(parts[i])
		}
	}
	return out
}

// labelValue makes a label's value of a text: what it may not hold becomes "-".
func labelValue(text string) string {
	value := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, text)
	value = value[:min(len(value), maxLabel)]
	return strings.Trim(value, "-_.")
}
