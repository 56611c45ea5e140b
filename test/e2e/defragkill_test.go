// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// defragRecord is where the controller stores its state.
const defragRecord = "/api/v1/namespaces/" + kerfNamespace + "/configmaps/kerf-defrag"

// step is a request of the controller that stands for one of its steps.
type step struct {
	name string
	// is reports whether a request is the step.
	is func(method, path string, body []byte) bool
	// limit is the maxEvictionsPerPoolPerHour of the controller that comes to the step.
	limit int
	// unbound has no pod bound before the step, so that a moved pod does not run.
	unbound bool
}

// defragSteps are the steps with two moves, in their order. The first controllers may evict one pod in an hour.
func defragSteps() []step {
	// stored is a record with a phase, of which so many pods are evicted and so many run again.
	stored := func(phase string, evicted, done int) func(method, path string, body []byte) bool {
		return func(method, path string, body []byte) bool {
			has := func(text string) int { return bytes.Count(body, []byte(text)) }
			return method == http.MethodPut && path == defragRecord && has(`\"evicted\":`) == evicted &&
				has(`\"done\": true`) == done && has(`\"phase\": \"`+phase) == min(1, len(phase))
		}
	}
	cordons := func(method, path string, _ []byte) bool {
		return method == http.MethodPatch && strings.Contains(path, "/gpunodes/")
	}
	evicts := func(method, path string, _ []byte) bool {
		return method == http.MethodPost && strings.HasSuffix(path, "/eviction")
	}
	// round is the beginning of the nth round of a controller.
	round := func(n int) func(method, path string, _ []byte) bool {
		return func(method, path string, _ []byte) bool {
			if method == http.MethodGet && path == defragRecord {
				n--
			}
			return n == 0
		}
	}
	return []step{
		{name: "stored the plan", is: stored("Moving", 0, 0), limit: 1},
		{name: "cordoned GPUs", is: cordons, limit: 1},
		{name: "stored that it will evict the first pod", is: stored("Moving", 1, 0), limit: 1},
		{name: "evicted the first pod", is: evicts, limit: 1, unbound: true},
		{name: "waits for the first pod", is: round(2), limit: 1, unbound: true},
		{name: "stored that the first pod runs", is: stored("Moving", 1, 1), limit: 1},
		{name: "waits for the end of the hour", is: round(2), limit: 1},
		{name: "stored that it will evict the second pod", is: stored("Moving", 2, 1), limit: 2},
		{name: "evicted the second pod", is: evicts, limit: 2, unbound: true},
		{name: "waits for the second pod", is: round(2), limit: 2, unbound: true},
		{name: "stored that the last pod runs", is: stored("Releasing", 2, 2), limit: 2},
		{name: "uncordoned GPUs", is: cordons, limit: 2},
		{name: "stored the end", is: stored("", 0, 0), limit: 2},
	}
}

// defragController is kerf-scheduler as a process of this machine, with the config and the rights that the chart gives
// it if defragmentation is enabled. Its requests pass a proxy.
type defragController struct {
	*hollow
	config string

	proxy   *apiProxy
	mu      sync.Mutex
	next    *step
	reached chan struct{}
	// evicted are the pods whose evictions the API server was asked for, by path.
	evicted []string
}

// controller removes the scheduler of the cluster, and installs what one with a controller needs.
func (d *fragmented) controller() *defragController {
	d.Helper()
	c := &defragController{hollow: &hollow{testCase: d.testCase, by: schedulerName, groups: []string{
		"system:serviceaccounts", "system:serviceaccounts:" + kerfNamespace, "system:authenticated"}}}
	d.mustKubectl("delete", "deployment", schedulerName, "-n", kerfNamespace, "--cascade=foreground")
	d.kubectl("", "delete", "configmap", "kerf-defrag", "-n", kerfNamespace) // its evictions count for one hour
	var parts []string
	for part := range strings.SplitSeq(d.rendered("defrag"), "---\n# Source: ") {
		name, text, _ := strings.Cut(part, "\n")
		switch name {
		case "scheduler/30-scheduler.yaml":
			continue
		case "scheduler/20-config.yaml":
			c.config = text
		}
		parts = append(parts, text)
	}
	all := strings.Join(parts, "---\n")
	d.Cleanup(func() { d.kubectl(all, "delete", "--ignore-not-found", "--wait=false", "-f", "-") })
	if err := d.apply(all); err != nil {
		d.Fatal(err)
	}
	c.proxy = c.throughProxy()
	c.proxy.stop = c.stop
	return c
}

// settings are the config of a scheduler that leads until it is killed. limit 0 moves no pods.
func (c *defragController) settings(limit int) string {
	c.Helper()
	enabled := "  enabled: true\n"
	text := c.configOf(c.config)
	if !strings.Contains(text, enabled) || !strings.Contains(text, "maxEvictionsPerPoolPerHour: 2") {
		c.Fatalf("the chart's config has no defragmentation:\n%s", text)
	}
	if limit == 0 {
		text = strings.Replace(text, enabled, strings.Replace(enabled, "true", "false", 1), 1)
	}
	// A machine with much to do must not end its leader.
	return strings.NewReplacer("maxEvictionsPerPoolPerHour: 2", fmt.Sprint("maxEvictionsPerPoolPerHour: ", limit),
		"leaderElect: true", "leaderElect: true\n  leaseDuration: 120s\n  renewDeadline: 100s").Replace(text)
}

// run calls a function while a scheduler leads, and then kills it. Its lease ends with it.
func (c *defragController) run(limit int, do func()) {
	c.Helper()
	s := c.runScheduler(c.node.program(schedulerName), c.settings(limit))
	defer func() {
		s.end()
		c.endLease()
	}()
	do()
}

func (c *defragController) endLease() {
	c.Helper()
	_ = c.client.CoordinationV1().Leases(kerfNamespace).Delete(background(), schedulerName, metav1.DeleteOptions{})
}

func (c *defragController) withoutDefrag(do func()) { c.run(0, do) }

// killAtEachStep runs one controller after the other until each has come to its step.
func (c *defragController) killAtEachStep() {
	c.Helper()
	for _, s := range defragSteps() {
		c.mu.Lock()
		c.next, c.reached = &s, make(chan struct{})
		c.mu.Unlock()
		c.proxy.hold(s.unbound)
		c.run(s.limit, func() {
			select {
			case <-c.reached:
				c.Logf("killed after it %s", s.name)
			case <-time.After(*patience):
				c.Fatalf("the controller has not %s; evicted: %q", s.name, c.evictions())
			}
		})
		if n := len(c.evictions()); n > s.limit {
			c.Errorf("%s: %d pods are evicted, and an hour may have %d", s.name, n, s.limit)
		}
	}
	if n := len(c.evictions()); n != 2 {
		c.Errorf("evictions of %d pods: %q", n, c.evictions())
	}
}

// evictions are the pods that were to be evicted, each once.
func (c *defragController) evictions() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(c.evicted)))
}

// stop takes a request that is the next step. The request has its effect, and there is no answer.
func (c *defragController) stop(pass http.Handler, r *http.Request) bool {
	if r.URL.Path != defragRecord && !strings.HasSuffix(r.URL.Path, "/eviction") && r.Method != http.MethodPatch {
		return false
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return false // who asked is gone
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	c.mu.Lock()
	if strings.HasSuffix(r.URL.Path, "/eviction") {
		c.evicted = append(c.evicted, r.URL.Path)
	}
	is := c.next != nil && c.next.is(r.Method, r.URL.Path, body)
	if is {
		c.next = nil
	}
	reached := c.reached
	c.mu.Unlock()
	if is {
		pass.ServeHTTP(httptest.NewRecorder(), r)
		close(reached)
		<-r.Context().Done()
	}
	return is
}
