// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claimQueue is the queue of the recipe for claims.
const claimQueue = "gpu-claims"

// withClaims has Kueue count claims, as docs/use/kueue.md has it. It creates the recipe's queue in the test's
// namespace.
func (q *quota) withClaims() {
	q.Helper()
	text, err := os.ReadFile(filepath.Join(q.node.env["REPO"], "deploy/recipes/kueue-claims.yaml"))
	if err != nil {
		q.Fatal(err)
	}
	// The Job is made by the test, with another image.
	queue, _, found := strings.Cut(string(text), "\n---\napiVersion: batch/v1\nkind: Job\n")
	if !found {
		q.Fatalf("the recipe for claims has no Job:\n%s", text)
	}
	queue = strings.ReplaceAll(queue, "namespace: team\n", "namespace: "+q.namespace+"\n")
	q.Cleanup(func() {
		q.kubectl("", "delete", "jobs,pods", "--all", "--wait=false", "-n", q.namespace)
		if r := q.kubectl(queue, "delete", "--ignore-not-found", "--timeout=60s", "-f", "-"); r.err != nil {
			q.Error(r)
		}
	})
	q.typed("Quota of ResourceClaims", applyClaims, "")
	eventually(q, "the recipe for claims", func() error { return q.apply(queue) })
}

// submitTo creates a Job in the queue for claims, for the scheduler that allocates them. It does not wait.
func (q *quota) submitTo(s podSpec) {
	q.Helper()
	job := q.object(charged{podSpec: s})
	job.Labels = map[string]string{"kueue.x-k8s.io/queue-name": claimQueue}
	job.Spec.Template.Spec.SchedulerName = ""
	for i := range job.Spec.Template.Spec.Containers { // Kueue reads only requests.
		r := &job.Spec.Template.Spec.Containers[i].Resources
		maps.Copy(r.Requests, r.Limits)
	}
	// A restarted Kueue takes a moment to serve its webhooks.
	eventually(q, "creation of Job "+s.name, func() error {
		made, err := q.client.BatchV1().Jobs(q.namespace).Create(background(), job, metav1.CreateOptions{})
		if err == nil && !*made.Spec.Suspend {
			return final("Job %s is not suspended", s.name)
		}
		return err
	})
}

// lacks is what Kueue says of a Job for which a kind of claim is used up.
func lacks(resource string) string {
	return fmt.Sprintf("insufficient unused quota for kerf.dev/%s in flavor kerf-claims", resource)
}

// noPods fails the test if the Job has a pod.
func (q *quota) noPods(job string) {
	q.Helper()
	if pods, err := q.podsOf(job); err != nil || len(pods) > 0 {
		q.Errorf("Job %s has %d pods: %v", job, len(pods), err)
	}
}

// Kueue counts the memory of shares and the number of whole GPUs in claims of Jobs. A Job that does not fit into the
// quota waits, and runs once another has ended. Kueue lets no claim pass that it cannot count.
func TestKueueClaims(t *testing.T) {
	if !*runKueue {
		t.Skip("Kueue is not built for the suite: run it with make e2e-kueue")
	}
	e := beginWithDRA(t)
	q := e.withQuota()
	q.withClaims()
	gpus := e.node.gpus(t)
	// The quota of the recipe is 160 GiB, and one whole GPU.
	for i, name := range []string{"first", "second", "third"} {
		e.template(name, "60Gi", gpus[i].UUID)
		q.submitTo(byClaim(name, name, hold))
		if i < 2 {
			e.wantHeld(q.runs(name), "main", share(60*gib, 0))
		}
	}
	q.waits("Job", "third", lacks("claimed-memory"))
	q.noPods("third")
	q.end("first")
	e.wantHeld(q.runs("third"), "main", share(60*gib, 0))

	for i, name := range []string{"whole", "next"} {
		e.deviceTemplate(name, "whole.kerf.dev", gpus[4+i].UUID, "")
		q.submitTo(byClaim(name, name, hold))
		if i == 0 {
			if g := e.grantOf(q.runs(name), "main"); g.Level != "exclusive" {
				t.Errorf("the whole GPU: %+v", g)
			}
		}
	}
	// It counts as the class of whole GPUs.
	q.submitTo(one("limit", wholeGPUs(1), hold))
	for _, name := range []string{"next", "limit"} {
		q.waits("Job", name, lacks("claimed-gpus"))
		q.noPods(name)
	}
	q.end("limit")
	q.end("whole")
	q.runs("next")
	q.notCounted()
}

// notCounted has Jobs with claims that Kueue cannot count: each waits, and Kueue says why.
func (q *quota) notCounted() {
	q.Helper()
	named := byClaim("named", "first", hold)
	edit := named.edit
	named.edit = func(p *corev1.Pod) {
		edit(p)
		p.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: new("mine")}
	}
	q.submitTo(named)
	q.waits("Job", "named", "does not support use of resource claims")
	if err := q.apply(fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: either, namespace: %[1]s}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        firstAvailable:
        - {name: share, deviceClassName: share.kerf.dev, capacity: {requests: {memory: 1Gi}}}
        - {name: whole, deviceClassName: whole.kerf.dev}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: unmapped, namespace: %[1]s}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: mig.kerf.dev}}]}}}
`, q.namespace)); err != nil {
		q.Fatal(err)
	}
	for name, why := range map[string]string{"either": "FirstAvailable device selection is not supported",
		"unmapped": "DeviceClass mig.kerf.dev is not mapped"} {
		q.submitTo(byClaim(name, name, hold))
		q.waits("Job", name, why)
	}
	for _, name := range []string{"named", "either", "unmapped"} {
		q.noPods(name)
		q.end(name)
	}
}
