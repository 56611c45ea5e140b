// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// shape is a list of label names.
type shape uint8

const (
	plain shape = iota
	byMonitor
	byGrant
	byGPU
	byOwner
	byKnown // byOwner, with how the value is known
	byField // dcgm-exporter's
)

// names are in the order in which they are exposed, which is the alphabet's.
func (s shape) names() []string {
	switch s {
	case plain:
	case byMonitor:
		return []string{"driver", "source", "version"}
	case byGrant:
		return []string{"container", "grant", "id", "level", "namespace", "pod", "pod_uid", "profile"}
	case byGPU:
		return []string{"index", "uuid"}
	case byOwner:
		return []string{"container", "grant", "index", "instance_profile", "instance_start", "namespace", "owner", "pod", "uuid"}
	case byKnown:
		return []string{"container", "grant", "index", "instance_profile", "instance_start", "known", "namespace", "owner", "pod", "uuid"}
	case byField:
		return []string{
			"DCGM_FI_DRIVER_VERSION", "GPU_I_ID", "GPU_I_PROFILE", "Hostname", "UUID", "container", "device", "gpu", "hostname", "modelName", "namespace", "pci_bus_id", "pod",
		}
	}
	return nil
}

// values are a row's labels, by the shape's names.
type values [13]string

// row is what a set of label pairs is known by.
type row struct {
	shape  shape
	values values
}

// labels keeps the label pairs of rows from one scrape to the next, because making them is most of what a scrape costs.
// What a scrape does not use is forgotten with the next, so that it is as large as what is exposed.
type labels struct {
	before, now map[row][]*dto.LabelPair
}

// next begins a scrape.
func (l *labels) next() {
	l.before, l.now = l.now, make(map[row][]*dto.LabelPair, len(l.now))
}

func (l *labels) of(s shape, v values) []*dto.LabelPair {
	if s == plain {
		return nil
	}
	k := row{s, v}
	pairs, ok := l.now[k]
	if ok {
		return pairs
	}
	if pairs, ok = l.before[k]; !ok {
		names := s.names()
		cells := make([]pair, len(names))
		for i, name := range names {
			cells[i].name, cells[i].value = name, strings.ToValidUTF8(v[i], "\uFFFD")
			cells[i].LabelPair.Name, cells[i].LabelPair.Value = &cells[i].name, &cells[i].value
			pairs = append(pairs, &cells[i].LabelPair)
		}
	}
	l.now[k] = pairs
	return pairs
}

// pair is a label pair with its strings, in one piece of memory.
type pair struct {
	dto.LabelPair
	name, value string
}
