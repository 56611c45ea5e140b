// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A ResourceQuota counts GiB of GPU memory as it counts any resource: what is beyond it is refused when it is created.
func TestQuota(t *testing.T) {
	t.Parallel()
	e := begin(t)
	const counted = "requests.kerf.dev/gpu-memory-gib"
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "gpus"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: resource.MustParse("3")}}}
	quotas := e.client.CoreV1().ResourceQuotas(e.namespace)
	if _, err := quotas.Create(background(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(e, "the quota is counted", func() error {
		q, err := quotas.Get(background(), quota.Name, metav1.GetOptions{})
		if err == nil && len(q.Status.Hard) == 0 {
			err = errors.New("it has no status")
		}
		return err
	})
	// No scheduler places it: what counts is that it is there.
	e.create(podSpec{name: "first", containers: []container{{run: hold, limits: gibs(2)}},
		edit: func(p *corev1.Pod) { p.Spec.SchedulerName = "no-one" }})
	if said := e.refused(one("second", gibs(2), hold)); !strings.Contains(said, "exceeded quota: gpus") ||
		!strings.Contains(said, counted+"=2") {
		t.Errorf("refused with %q", said)
	}
}
