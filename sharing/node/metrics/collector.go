// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package metrics is the agent's exposition: what the node API shows, as Prometheus metrics, and counters of
// what the runtime did.
//
// It promises that an unknown value is absent, never zero, and that GPUs and living grants bound the number of series.
// Labels that a user chose (a grant's name) were validated before they reach it.
//
// It does not sample by itself: each scrape asks the node once.
package metrics

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
)

// scrapeDeadline bounds how long one scrape may wait for the driver.
const scrapeDeadline = 5 * time.Second

// Collector turns the node's state into metrics at each scrape.
type Collector struct {
	state  func(context.Context) *nodeapi.GetNodeResponse
	node   families[*nodeapi.GetNodeResponse]
	gpu    families[*nodeapi.GPU]
	health families[inState]
	states []string
	grant  families[*nodeapi.Grant]
	onGPU  families[amount]
	shared families[amount]
}

// amount is what a grant has on one GPU, with the index of the GPU.
type amount struct {
	grant *nodeapi.Grant
	index string
	*nodeapi.Share
}

// NewCollector makes a collector over a function that returns one picture of the node.
func NewCollector(state func(context.Context) *nodeapi.GetNodeResponse) *Collector {
	return &Collector{state, nodeFamilies(), gpuFamilies(), healthFamilies(), healthStates(), grantFamilies(),
		amountFamilies(), sharedFamilies()}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	c.node.describe(ch)
	c.gpu.describe(ch)
	c.health.describe(ch)
	c.grant.describe(ch)
	c.onGPU.describe(ch)
	c.shared.describe(ch)
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeDeadline)
	defer cancel()
	s := c.state(ctx)
	c.node.collect(ch, s)
	indices := make(map[string]string, len(s.GetGpus()))
	for _, g := range s.GetGpus() {
		indices[g.GetUuid()] = strconv.Itoa(int(g.GetIndex()))
		c.gpu.collect(ch, g)
		for _, state := range c.states {
			c.health.collect(ch, inState{g, state})
		}
	}
	for _, g := range s.GetGrants() {
		c.grant.collect(ch, g)
		for _, f := range g.GetShares() {
			c.onGPU.collect(ch, amount{g, indices[f.GetGpu()], f})
		}
		for _, f := range g.GetSharedCap() {
			c.shared.collect(ch, amount{g, indices[f.GetGpu()], f})
		}
	}
}

// nameOf is the grant's name, or its id where it has none.
func nameOf(g *nodeapi.Grant) string {
	if name := g.GetName(); name != "" {
		return name
	}
	return g.GetId()
}
