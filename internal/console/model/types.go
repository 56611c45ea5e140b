// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package model is the console's view of a cluster: nodes with their GPUs to scale, pods, and what a viewer may see.
//
// It is pure: reports and pods in, values for JSON out. It promises that two equal inputs give equal values, so that a
// comparison finds what changed. It promises that a scope removes every name that its viewer may not see. It makes no
// decision about placement: fragmentation comes from the allocator's fit.
package model

import "time"

// Node is a node as the console shows it.
type Node struct {
	Name string `json:"name"`
	Pool string `json:"pool,omitempty"`
	// State is ready, not ready, not heard from, or cordoned. Reason explains each but the first.
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	Driver string `json:"driver,omitempty"`
	Agent  string `json:"agent,omitempty"`
	Config Config `json:"config"`
	GPUs   []GPU  `json:"gpus"`
}

// Config is what the node says of its applied config.
type Config struct {
	SHA256  string   `json:"sha256,omitempty"`
	Errors  []string `json:"errors,omitempty"`
	Pending []string `json:"pending,omitempty"`
}

// GPU is one GPU. Memory is in bytes.
type GPU struct {
	UUID  string `json:"uuid"`
	Index int    `json:"index"`
	Model string `json:"model,omitempty"`
	// Health is healthy, suspect, unhealthy, lost or unknown; Cordoned is the reason of a cordon. Problem is a sentence
	// on why the GPU takes no grant; empty if it does.
	Health   string `json:"health"`
	Problem  string `json:"problem,omitempty"`
	Cordoned bool   `json:"cordoned,omitempty"`
	// Mode is shared, whole, mig or empty for what the GPU gives.
	Mode   string  `json:"mode,omitempty"`
	Memory Memory  `json:"memory"`
	MIG    *MIG    `json:"mig,omitempty"`
	Shares []Share `json:"shares,omitempty"`
	// Fragmentation is the percent of typical requests for which the free capacity is too small; 0 on an idle GPU.
	Fragmentation int      `json:"fragmentation,omitempty"`
	Utilization   *uint32  `json:"utilization,omitempty"`
	Levels        []string `json:"levels,omitempty"`
}

// Memory has a GPU's amounts. Unknown is true for a GPU that uses the system's memory; then Capacity, Allocatable and
// Free mean nothing.
type Memory struct {
	Unknown     bool    `json:"unknown,omitempty"`
	Capacity    int64   `json:"capacity"`
	Allocatable int64   `json:"allocatable"`
	Free        int64   `json:"free"`
	FreePercent int     `json:"freePercent"`
	Used        *uint64 `json:"used,omitempty"`
}

// MIG has the MIG instances of a GPU on its axis of memory slices.
type MIG struct {
	Slices    int        `json:"slices"`
	Instances []Instance `json:"instances,omitempty"`
}

// Instance is a MIG instance. Free instances have no grant.
type Instance struct {
	Profile string `json:"profile"`
	Start   int    `json:"start"`
	Slices  int    `json:"slices"`
	Managed bool   `json:"managed"`
	Free    bool   `json:"free"`
}

// Share is what a grant has of the GPU. Namespace, Pod and Container are empty for a process, and for a pod that the
// viewer may not see; Hidden is true for the latter.
type Share struct {
	Grant     string  `json:"grant,omitempty"`
	Namespace string  `json:"namespace,omitempty"`
	Pod       string  `json:"pod,omitempty"`
	Container string  `json:"container,omitempty"`
	Profile   string  `json:"profile,omitempty"`
	State     string  `json:"state"`
	Level     string  `json:"level"`
	Memory    int64   `json:"memory"`
	Percent   int     `json:"percent"`
	Whole     bool    `json:"whole,omitempty"`
	MIG       string  `json:"mig,omitempty"`
	Start     int     `json:"start,omitempty"`
	Used      *uint64 `json:"used,omitempty"`
	Hidden    bool    `json:"hidden,omitempty"`
}

// Pod is a pod that requests GPUs of Kerf.
type Pod struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"`
	Priority  int32  `json:"priority,omitempty"`
	// Needs is the request in the words of its author; Problem says why it cannot be read.
	Needs   string `json:"needs,omitempty"`
	Problem string `json:"problem,omitempty"`
	// Reason is the scheduler's or the agent's sentence on why the pod is pending; empty for one that is not.
	Reason  string            `json:"reason,omitempty"`
	Pending bool              `json:"pending,omitempty"`
	Since   string            `json:"since,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// stamp is a time for JSON; empty for the zero time.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
