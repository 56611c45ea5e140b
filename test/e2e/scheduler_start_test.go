// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lastGoodRules is the ConfigMap in which the scheduler keeps the last known good config.
const lastGoodRules = "kerf-config-last-good"

// anotherScheduler replaces a pod of the scheduler's. The new one finds the rules in its mount as they are now.
func (e *testCase) anotherScheduler() {
	e.Helper()
	if r := e.kubectl("", "delete", "pod", "-n", kerfNamespace, "-l", "app.kubernetes.io/name="+
		schedulerName); r.err != nil {
		e.Fatal(r)
	}
	e.waitForScheduler()
}

// rulesEvent waits for an event of the rules' ConfigMap.
func (e *testCase) rulesEvent(words string) {
	e.Helper()
	eventually(e, fmt.Sprintf("event of kerf-config with %q", words), func() error {
		list, err := e.client.CoreV1().Events(kerfNamespace).List(background(),
			metav1.ListOptions{
				FieldSelector: "involvedObject.kind=ConfigMap,involvedObject.name=kerf-config," +
					"reason=SharingConfigRejected"})
		if err != nil {
			return err
		}
		for _, ev := range list.Items {
			if strings.Contains(ev.Message, words) && strings.Contains(ev.Message, "mmeory") {
				return nil
			}
		}
		return fmt.Errorf("there are %d: %+v", len(list.Items), list.Items)
	})
}

// A scheduler that starts while the rules have errors applies the last known good config. If none is kept it places no
// pod that requests a GPU, says why, and goes on as soon as the rules are corrected.
func TestSchedulerStartsOnBadRules(t *testing.T) {
	e := withScheduler(t)
	rules := e.readRules()
	t.Cleanup(func() { e.writeRules(rules) })
	maps := e.client.CoreV1().ConfigMaps(kerfNamespace)
	eventually(e, "a copy of the rules", func() error {
		if m, err := maps.Get(background(), lastGoodRules, metav1.GetOptions{}); err != nil || len(m.Data) == 0 {
			return errors.Join(err, errors.New("it has none"))
		}
		return nil
	})
	e.writeRules(strings.Replace(rules, smallProfile, "- {name: e2e-small, mmeory: 4GiB, percent: 10}", 1))
	e.anotherScheduler()
	placed := byKerf(one("placed", map[string]string{"kerf.dev/gpu-memory-gib": "4", "kerf.dev/gpu-percent": "10"},
		hold))
	placed.annotations = map[string]string{"kerf.dev/profile": "e2e-small"} // which the last good rules alone have
	e.create(placed).running()
	e.rulesEvent("stays applied")

	if err := maps.Delete(background(), lastGoodRules, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.anotherScheduler()
	waits := e.create(byKerf(one("waits", gibs(4), hold)))
	waits.event("FailedScheduling", "knows no valid sharing configuration", "mmeory")
	e.rulesEvent("no earlier one is known")
	none := e.create(byKerf(one("none", nil, hold)))
	none.running()
	if o := waits.get(); o.Spec.NodeName != "" {
		t.Errorf("placed on %s without rules", o.Spec.NodeName)
	}
	e.writeRules(rules)
	waits.running()
}
