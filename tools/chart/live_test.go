// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// byName are the rendered objects of one type.
func byName[T metav1.Object](t *testing.T, set values) map[string]T {
	t.Helper()
	out := map[string]T{}
	for _, o := range objects(t, made(t, set)) {
		if one, ok := o.Object.(T); ok {
			out[one.GetName()] = one
		}
	}
	return out
}

// The chart alone makes and removes the ConfigMap that policies read profiles from. Only the scheduler fills it, and
// the scheduler may do nothing else to it.
func TestProfileAmountsAreTheSchedulers(t *testing.T) {
	for name, c := range map[string]struct {
		set  values
		live bool
	}{
		"as it is":       {values{}, true},
		"no scheduler":   {read(t, "testdata/alone.yaml"), false},
		"nothing filled": {values{"admission": values{"mutate": "never"}}, false},
		"no policies":    {values{"admission": values{"enabled": false}}, false},
		"about to leave": {read(t, "testdata/remove.yaml"), true}, // with the scheduler, which would miss it
	} {
		m, is := byName[*corev1.ConfigMap](t, c.set)["kerf-profiles"]
		if is != c.live {
			t.Errorf("%s: there is a ConfigMap: %t", name, is)
		}
		if is && (len(m.Data) != 0 || len(m.BinaryData) != 0 || len(m.Annotations) != 0) {
			t.Errorf("%s: an upgrade would write over what the scheduler wrote: %+v", name, m)
		}
		var rights []string
		if role, is := byName[*rbac.Role](t, c.set)["kerf-scheduler"]; is {
			for _, r := range role.Rules {
				if slices.Contains(r.Resources, "configmaps") &&
					!slices.Equal(r.ResourceNames, []string{"kerf-config"}) &&
					!slices.Equal(r.ResourceNames, []string{"kerf-config-last-good"}) {
					rights = append(rights, slices.Concat(r.ResourceNames, r.Verbs)...)
				}
			}
		}
		if want := map[bool][]string{true: {"kerf-profiles", "get", "update"}}[c.live]; !slices.Equal(rights, want) {
			t.Errorf("%s: the scheduler's rights to ConfigMaps are %q, want %q", name, rights, want)
		}
	}
}

// The chart alone makes and removes the copy of the last good rules. Only the scheduler fills it, and its flags name
// it.
func TestLastGoodRulesAreTheSchedulers(t *testing.T) {
	const name = "kerf-config-last-good"
	for what, c := range map[string]struct {
		set   values
		there bool
	}{
		"as it is":       {values{}, true},
		"no policies":    {values{"admission": values{"enabled": false}}, true},
		"about to leave": {read(t, "testdata/remove.yaml"), true},
		"no scheduler":   {read(t, "testdata/alone.yaml"), false},
	} {
		maps := byName[*corev1.ConfigMap](t, c.set)
		m, is := maps[name]
		if is != c.there {
			t.Errorf("%s: there is a ConfigMap: %t", what, is)
		}
		if !is {
			continue
		}
		if len(m.Data) != 0 || len(m.BinaryData) != 0 || len(m.Annotations) != 0 {
			t.Errorf("%s: an upgrade would write over what the scheduler wrote: %+v", what, m)
		}
		if text := maps["kerf-scheduler"].Data["scheduler.yaml"]; !strings.Contains(text, "lastGoodConfigMap: "+
			namespace+"/"+name+"\n") {
			t.Errorf("%s: the scheduler does not get it:\n%s", what, text)
		}
		for role, r := range byName[*rbac.Role](t, c.set) {
			for _, rule := range r.Rules {
				if slices.Contains(rule.ResourceNames, name) &&
					(role != "kerf-scheduler" || !slices.Equal(rule.Verbs, []string{"get", "update"})) {
					t.Errorf("%s: role %s may %q it", what, role, rule.Verbs)
				}
			}
		}
	}
}

// The API server fetches a parameter before it asks whether a policy is for the object. So a policy that has one lets
// pods be when it is missing, or is bound to those alone that cannot be judged without it.
func TestMissingParameterStopsNobodyElse(t *testing.T) {
	set := values{"dra": values{"enabled": true}}
	params := 0
	judge := func(name string, fails admission.FailurePolicyType, ref *admission.ParamRef,
		match *admission.MatchResources) {
		t.Helper()
		params++
		if ref == nil || ref.Name != "kerf-profiles" || ref.Namespace != namespace {
			t.Errorf("%s reads %+v", name, ref)
			return
		}
		few := match != nil && match.ObjectSelector != nil && len(match.ObjectSelector.MatchLabels) > 0
		lets := *ref.ParameterNotFoundAction == admission.AllowAction && fails == admission.Ignore
		stops := *ref.ParameterNotFoundAction == admission.DenyAction && fails == admission.Fail
		if !lets && !stops || stops != few {
			t.Errorf("%s: without its parameter it does %s, on a failure %s, and is bound to few: %t", name,
				*ref.ParameterNotFoundAction, fails, few)
		}
	}
	changing := byName[*admission.MutatingAdmissionPolicyBinding](t, set)
	for name, p := range byName[*admission.MutatingAdmissionPolicy](t, set) {
		if p.Spec.ParamKind != nil {
			judge(name, *p.Spec.FailurePolicy, changing[name].Spec.ParamRef, changing[name].Spec.MatchResources)
		}
	}
	refusing := byName[*admission.ValidatingAdmissionPolicyBinding](t, set)
	for name, p := range byName[*admission.ValidatingAdmissionPolicy](t, set) {
		if p.Spec.ParamKind != nil {
			judge(name, *p.Spec.FailurePolicy, refusing[name].Spec.ParamRef, refusing[name].Spec.MatchResources)
		}
	}
	if params != 3 {
		t.Errorf("%d policies have a parameter", params)
	}
}

// TestNoRightWithoutItsPolicy: where the agent may write to the API server what RBAC cannot narrow to its own node, the
// policy that does so is there, whatever the values. Without the policies for pods, the right to patch Nodes is gone as
// well.
func TestNoRightWithoutItsPolicy(t *testing.T) {
	off := func(more values) values {
		set := values{"admission": values{"enabled": false}}
		maps.Copy(set, more)
		return set
	}
	marks, evicts := values{"agent": values{"nodeHealth": true}}, values{"agent": values{"allowEviction": true}}
	for name, c := range map[string]struct {
		set     values
		patches bool // Nodes
	}{
		"as it is":                        {values{}, true},
		"no labels":                       {values{"agent": values{"nodeLabels": false}}, false},
		"everything":                      {read(t, "testdata/all.yaml"), true},
		"the least":                       {read(t, "testdata/least.yaml"), false},
		"no policies for pods":            {off(nil), false},
		"no policies, and node health":    {off(marks), true},
		"no policies, and eviction":       {off(evicts), false},
		"policies, and node health":       {marks, true},
		"policies, eviction":              {evicts, true},
		"the agents are about to go away": {read(t, "testdata/remove.yaml"), true},
	} {
		policies, bound := byName[*admission.ValidatingAdmissionPolicy](t, c.set),
			byName[*admission.ValidatingAdmissionPolicyBinding](t, c.set)
		held := func(policy string) bool {
			p, b := policies[policy], bound[policy]
			return p != nil && *p.Spec.FailurePolicy == admission.Fail && b != nil &&
				slices.Equal(b.Spec.ValidationActions, []admission.ValidationAction{admission.Deny})
		}
		patches := false
		var rules []rbac.PolicyRule
		for role, r := range byName[*rbac.ClusterRole](t, c.set) {
			if strings.HasPrefix(role, "kerf-agent") {
				rules = append(rules, r.Rules...)
			}
		}
		rules = append(rules, byName[*rbac.Role](t, c.set)["kerf-agent"].Rules...)
		for _, r := range rules {
			writes := slices.ContainsFunc(r.Verbs, func(v string) bool {
				return v != "get" && v != "list" &&
					v != "watch"
			})
			for _, resource := range r.Resources {
				policy := map[string]string{
					"nodes": "kerf-nodes", "nodes/status": "kerf-nodes", "leases": "kerf-gpunodes",
					"gpunodes":        "kerf-gpunodes",
					"gpunodes/status": "kerf-gpunodes", "pods": "kerf-evict", "resourceslices": "kerf-resourceslices",
				}[resource]
				switch {
				case !writes || resource == "events":
				// The API server lets a driver write the status of a claim only for devices of the same node.
				case resource == "resourceclaims/driver" || resource == "resourceclaims/status":
				case policy == "":
					t.Errorf("%s: the agent may %s %s, and no policy is known that holds it to its node", name, r.Verbs,
						resource)
				case !held(policy):
					t.Errorf("%s: the agent may %s %s without the policy %s", name, r.Verbs, resource, policy)
				}
				patches = patches || writes && resource == "nodes"
			}
		}
		if patches != c.patches {
			t.Errorf("%s: the agent may patch Nodes: %t, want %t", name, patches, c.patches)
		}
	}
}

// TestFlagsFollowRights: no flag has the agent do what it has no right to.
func TestFlagsFollowRights(t *testing.T) {
	for name, c := range map[string]struct {
		set    values
		labels bool
	}{
		"as it is": {values{}, true}, "no labels": {values{"agent": values{"nodeLabels": false}}, false},
		"no policies for pods": {values{"admission": values{"enabled": false}}, false},
	} {
		if has := strings.Contains(made(t, c.set)["agent/30-agent.yaml"], "- --node-labels\n"); has != c.labels {
			t.Errorf("%s: the agent is set to label its node: %t, want %t", name, has, c.labels)
		}
	}
}
