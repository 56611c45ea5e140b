// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"slices"
	"testing"

	apps "k8s.io/api/apps/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// The manifests have a NetworkPolicy that selects the agent's pods and lets only one namespace reach the agent's port.
func TestNetworkPolicy(t *testing.T) {
	var policies []*networking.NetworkPolicy
	var agents []*apps.DaemonSet
	for _, o := range manifests(t) {
		switch o := o.Object.(type) {
		case *networking.NetworkPolicy:
			policies = append(policies, o)
		case *apps.DaemonSet:
			agents = append(agents, o)
		}
	}
	if len(policies) != 1 || len(agents) == 0 {
		t.Fatalf("%d policies for %d DaemonSets", len(policies), len(agents))
	}
	p := policies[0]
	selected, err := v1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Spec.PolicyTypes, []networking.PolicyType{networking.PolicyTypeIngress}) ||
		len(p.Spec.Ingress) != 1 {
		t.Fatalf("policy types %q, %d rules of ingress", p.Spec.PolicyTypes, len(p.Spec.Ingress))
	}
	rule := p.Spec.Ingress[0]
	if len(rule.From) != 1 ||
		rule.From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "monitoring" ||
		rule.From[0].IPBlock != nil {
		t.Errorf("peers %+v", rule.From)
	}
	for _, a := range agents {
		if a.Namespace != p.Namespace || !selected.Matches(labels.Set(a.Spec.Template.Labels)) {
			t.Errorf("the policy does not select the pods of %s/%s", a.Namespace, a.Name)
		}
		for _, c := range a.Spec.Template.Spec.Containers {
			for _, port := range c.Ports {
				if !slices.ContainsFunc(rule.Ports,
					func(r networking.NetworkPolicyPort) bool { return r.Port.IntVal == port.ContainerPort }) {
					t.Errorf("no one may reach port %d of %s", port.ContainerPort, a.Name)
				}
			}
		}
	}
}
