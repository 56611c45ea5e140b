// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// profileAmounts is the ConfigMap that the admission policies read profiles from.
	profileAmounts = "kerf-profiles"
	// smallProfile is a line of the rules that the chart's set "cluster" has.
	smallProfile = "- {name: e2e-small, memory: 4GiB, percent: 10}"
)

// named is a pod that names a profile and asks for nothing.
func named(name, profile string) podSpec {
	s := one(name, nil, hold)
	s.annotations = map[string]string{"kerf.dev/profile": profile}
	return s
}

// admitted is what the API server would make of the pod.
func (e *testCase) admitted(s podSpec) (*corev1.Pod, error) {
	return e.client.CoreV1().Pods(e.namespace).Create(background(), s.object(e.namespace),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// gives is an error unless a pod that names the profile gets so many GiB now; it is a final one where it gets one of
// never.
func (e *testCase) gives(profile, gib string, never ...string) error {
	made, err := e.admitted(named("tried", profile))
	if err != nil {
		return err
	}
	has := made.Spec.Containers[0].Resources.Limits["kerf.dev/gpu-memory-gib"]
	switch {
	case slices.Contains(never, has.String()):
		return final("profile %s gives %s GiB", profile, has.String())
	case has.String() != gib:
		return fmt.Errorf("profile %s gives %s GiB, not yet %s", profile, has.String(), gib)
	}
	return nil
}

// profilesAreLive changes a profile in the ConfigMap, as an administrator does: some seconds later a pod that names it
// gets the new values, without any restart. A config with an error changes nothing. If the amounts are lost, pods that
// name a profile are refused, and no others; they come back.
func (e *testCase) profilesAreLive() {
	e.Helper()
	before := e.kerfPods()
	rules := e.readRules()
	say := func(line string) string {
		if strings.Count(rules, smallProfile) != 1 {
			e.Fatalf("the rules have not one %q: %q", smallProfile, rules)
		}
		return strings.Replace(rules, smallProfile, line, 1)
	}
	e.writeRules(say("- {name: e2e-small, memory: 6GiB, percent: 10}\n  - {name: e2e-new, percent: 30}"))
	eventually(e, "the changed profile", func() error { return e.gives("e2e-small", "6") })
	larger := e.create(named("larger", "e2e-small"))
	larger.running()
	e.wantHeld(larger, "main", share(6*gib, 10))
	if made, err := e.admitted(named("tried", "e2e-new")); err != nil ||
		made.Spec.Containers[0].Resources.Limits["kerf.dev/gpu-percent"] != resource.MustParse("30") {
		e.Errorf("a new profile: %v, %v", err, made)
	}

	refusals := e.refusedBySchedulers()
	e.writeRules(say("- {name: e2e-small, memory: 8GiB, percent: 10, mmeory: 1}"))
	eventually(e, "both schedulers to have refused it", func() error {
		if n := e.refusedBySchedulers(); n < refusals+2 {
			return fmt.Errorf("%d refusals, and %d before", n, refusals)
		}
		return e.gives("e2e-small", "6", "8")
	})
	e.writeRules(say("- {name: e2e-small, memory: 5GiB, percent: 10}"))
	eventually(e, "the next good document", func() error { return e.gives("e2e-small", "5", "8") })
	if said := e.refused(named("forgotten", "e2e-new")); !strings.Contains(said,
		`profile "e2e-new" has no amounts here`) {
		e.Errorf("a profile that is gone: %s", said)
	}

	if err := e.client.CoreV1().ConfigMaps(kerfNamespace).Delete(background(), profileAmounts,
		metav1.DeleteOptions{}); err != nil {
		e.Fatal(err)
	}
	e.withoutAmounts()
	if err := e.apply(e.chartFile("cluster", "mutation/amounts.yaml")); err != nil { // as "helm upgrade" does
		e.Fatal(err)
	}
	eventually(e, "the amounts to be written again", func() error {
		if m, err := e.client.CoreV1().ConfigMaps(kerfNamespace).Get(background(), profileAmounts,
			metav1.GetOptions{}); err != nil || m.Data["e2e-small"] == "" {
			return errors.Join(err, errors.New("nothing is there"))
		}
		return e.gives("e2e-small", "5")
	})
	if after := e.kerfPods(); !slices.Equal(before, after) {
		e.Errorf("pods of Kerf: %q, and before %q", after, before)
	}
	e.writeRules(rules)
	larger.delete()
}

// refusedBySchedulers is how often a scheduler has logged that it rejects a config.
func (e *testCase) refusedBySchedulers() int {
	e.Helper()
	r := e.kubectl("", "logs", "-n", kerfNamespace, "-l", "app.kubernetes.io/name="+schedulerName, "--tail=-1")
	if r.err != nil {
		e.Fatal(r)
	}
	return strings.Count(r.out, "config rejected, the previous one stays applied")
}

// withoutAmounts tries who is refused while the ConfigMap is away: who names a profile and nothing else.
func (e *testCase) withoutAmounts() {
	e.Helper()
	eventually(e, "refusal of a pod that names a profile", func() error {
		if _, err := e.admitted(named("tried", "e2e-small")); !apierrors.IsInvalid(err) ||
			!strings.Contains(err.Error(), "has no amounts here") {
			return errors.Join(err, errors.New("it is not refused for that"))
		}
		return nil
	})
	both := one("both", gibs(4), hold)
	both.annotations = map[string]string{"kerf.dev/profile": "e2e-small"}
	ofContainer := one("container", nil, hold)
	ofContainer.annotations = map[string]string{"profile.kerf.dev/main": "e2e-small"}
	for what, s := range map[string]podSpec{"no GPU": one("none", nil, hold),
		"amounts alone": one("amounts", gibs(4), hold), "amounts next to the profile": both} {
		if _, err := e.admitted(s); err != nil {
			e.Errorf("a pod with %s: %v", what, err)
		}
	}
	if _, err := e.admitted(ofContainer); err == nil ||
		!strings.Contains(err.Error(), `of container "main" has no amounts here`) {
		e.Errorf("a container that names a profile: %v", err)
	}
}

// kerfPods are the containers of the agent and the schedulers, and how often each was started.
func (e *testCase) kerfPods() []string {
	e.Helper()
	list, err := e.client.CoreV1().Pods(kerfNamespace).List(background(),
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name in (" + agentName + "," + schedulerName + ")"})
	if err != nil {
		e.Fatal(err)
	}
	var all []string
	for _, p := range list.Items {
		for _, c := range p.Status.ContainerStatuses {
			all = append(all, fmt.Sprintf("%s %s %d", p.Name, c.Name, c.RestartCount))
		}
	}
	slices.Sort(all)
	return all
}
