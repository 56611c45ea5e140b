// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package deploy_test reads the manifests as Kubernetes does, and compares them with the documentation. Each mount and
// capability has its reason in docs/reference/agent-rights.md, and no component has a right that is not listed here.
// Other tests try the policies' decisions on an API server.
package deploy_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	rbac "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"
)

const root = "../.."

// kinds are the objects that may lie in deploy/.
func kinds() map[string]func() metav1.Object {
	return map[string]func() metav1.Object{
		"v1/Namespace":                       func() metav1.Object { return &corev1.Namespace{} },
		"v1/ServiceAccount":                  func() metav1.Object { return &corev1.ServiceAccount{} },
		"v1/ConfigMap":                       func() metav1.Object { return &corev1.ConfigMap{} },
		"apps/v1/Deployment":                 func() metav1.Object { return &apps.Deployment{} },
		"apps/v1/DaemonSet":                  func() metav1.Object { return &apps.DaemonSet{} },
		"networking.k8s.io/v1/NetworkPolicy": func() metav1.Object { return &networking.NetworkPolicy{} },
		"node.k8s.io/v1/RuntimeClass":        func() metav1.Object { return &nodev1.RuntimeClass{} },
		"resource.k8s.io/v1/DeviceClass":     func() metav1.Object { return &resourceapi.DeviceClass{} },
		"resource.k8s.io/v1/ResourceClaimTemplate": func() metav1.Object {
			return &resourceapi.ResourceClaimTemplate{}
		},
		"v1/Pod":                            func() metav1.Object { return &corev1.Pod{} },
		"rbac.authorization.k8s.io/v1/Role": func() metav1.Object { return &rbac.Role{} },
		"rbac.authorization.k8s.io/v1/RoleBinding": func() metav1.Object { return &rbac.RoleBinding{} },
		"apiextensions.k8s.io/v1/CustomResourceDefinition": func() metav1.Object {
			return &unstructured.Unstructured{}
		},
		"rbac.authorization.k8s.io/v1/ClusterRole":        func() metav1.Object { return &rbac.ClusterRole{} },
		"rbac.authorization.k8s.io/v1/ClusterRoleBinding": func() metav1.Object { return &rbac.ClusterRoleBinding{} },
		"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy": func() metav1.Object {
			return &admission.ValidatingAdmissionPolicy{}
		},
		"admissionregistration.k8s.io/v1/MutatingAdmissionPolicy": func() metav1.Object {
			return &admission.MutatingAdmissionPolicy{}
		},
		"admissionregistration.k8s.io/v1/MutatingAdmissionPolicyBinding": func() metav1.Object {
			return &admission.MutatingAdmissionPolicyBinding{}
		},
		"admissionregistration.k8s.io/v1/ValidatingAdmissionPolicyBinding": func() metav1.Object {
			return &admission.ValidatingAdmissionPolicyBinding{}
		},
	}
}

// found is an object and the file that it is in.
type found struct {
	file string
	metav1.Object
}

// manifests are the objects of deploy/manifests in the order in which kubectl applies them.
func manifests(t *testing.T) []found {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "deploy/manifests/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("deploy/manifests: %v, %v", files, err)
	}
	var out []found
	for _, file := range files {
		for _, doc := range documents(t, file) {
			out = append(out, found{filepath.Base(file), decode(t, file, doc)})
		}
	}
	return out
}

// documents splits a file.
func documents(t *testing.T, file string) [][]byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out [][]byte
	for r := yaml.NewDocumentDecoder(f); ; {
		buf := make([]byte, 1<<20)
		n, err := r.Read(buf)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out = append(out, buf[:n])
	}
}

// decode refuses what the type does not know, and what is written twice.
func decode(t *testing.T, file string, doc []byte) metav1.Object {
	t.Helper()
	var head metav1.TypeMeta
	if err := strict.Unmarshal(doc, &head); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	made, ok := kinds()[head.APIVersion+"/"+head.Kind]
	if !ok {
		t.Fatalf("%s: no kind %s/%s is expected in deploy/", file, head.APIVersion, head.Kind)
	}
	obj := made()
	if err := strict.UnmarshalStrict(doc, obj); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return obj
}

// all are the objects of one type.
func all[T metav1.Object](t *testing.T) []T {
	t.Helper()
	var out []T
	for _, m := range manifests(t) {
		if obj, ok := m.Object.(T); ok {
			out = append(out, obj)
		}
	}
	return out
}

// one is the only object of its type.
func one[T metav1.Object](t *testing.T) T {
	t.Helper()
	list := all[T](t)
	if len(list) != 1 {
		t.Fatalf("%d objects of type %T, want 1", len(list), *new(T))
	}
	return list[0]
}

// named is the object of its type with that name.
func named[T metav1.Object](t *testing.T, name string) T {
	t.Helper()
	list := all[T](t)
	i := slices.IndexFunc(list, func(o T) bool { return o.GetName() == name })
	if i < 0 {
		t.Fatalf("no object %q of type %T", name, *new(T))
	}
	return list[i]
}

func TestOrderAndNamespace(t *testing.T) {
	seen := map[string]bool{}
	for i, m := range manifests(t) {
		ns, isNamespace := m.Object.(*corev1.Namespace)
		if (i == 0) != isNamespace {
			t.Errorf("%s: object %d: the namespace, and nothing else, comes first", m.file, i)
		}
		if isNamespace && (ns.Name != "kerf-system" ||
			ns.Labels["pod-security.kubernetes.io/enforce"] != "privileged") {
			t.Errorf("%s: namespace %q with labels %v", m.file, ns.Name, ns.Labels)
		}
		if m.GetLabels()["app.kubernetes.io/part-of"] != "kerf" {
			t.Errorf("%s: %s has no label app.kubernetes.io/part-of: kerf, by which everything is found", m.file,
				m.GetName())
		}
		if name := m.GetNamespace(); name != "" && name != "kerf-system" {
			t.Errorf("%s: %s is in namespace %q", m.file, m.GetName(), name)
		}
		key := fmt.Sprintf("%T %s", m.Object, m.GetName())
		if seen[key] {
			t.Errorf("%s: a second %s", m.file, key)
		}
		seen[key] = true
	}
}

// TestRights is the list of what the agent may do at the API server. A line more is a decision: it belongs
// into docs/reference/agent-rights.md too.
func TestRights(t *testing.T) {
	want := []rbac.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
		{APIGroups: []string{"kerf.dev"}, Resources: []string{"gpunodes"}, Verbs: []string{"create", "patch", "watch"}},
		{APIGroups: []string{"kerf.dev"}, Resources: []string{"gpunodes/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "patch"}},
	}
	here := []rbac.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"kerf-config"},
			Verbs: []string{"get", "list", "watch"}},
	}
	role, bound, account := named[*rbac.ClusterRole](t, "kerf-agent"), one[*rbac.ClusterRoleBinding](t),
		one[*corev1.ServiceAccount](t)
	if role.AggregationRule != nil || !slices.EqualFunc(role.Rules, want, equalRule) {
		t.Errorf("rules %+v, want %+v", role.Rules, want)
	}
	if r := one[*rbac.Role](t); !slices.EqualFunc(r.Rules, here, equalRule) {
		t.Errorf("rules in its namespace %+v, want %+v", r.Rules, here)
	}
	subject := rbac.Subject{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}
	if bound.RoleRef.Name != role.Name || bound.RoleRef.Kind != "ClusterRole" ||
		!slices.Equal(bound.Subjects, []rbac.Subject{subject}) {
		t.Errorf("binding of %+v to %+v", bound.RoleRef, bound.Subjects)
	}
	if b := one[*rbac.RoleBinding](t); b.RoleRef.Name != one[*rbac.Role](t).Name || b.RoleRef.Kind != "Role" ||
		!slices.Equal(b.Subjects, []rbac.Subject{subject}) {
		t.Errorf("binding of %+v to %+v", b.RoleRef, b.Subjects)
	}
	if got := one[*apps.DaemonSet](t).Spec.Template.Spec.ServiceAccountName; got != account.Name {
		t.Errorf("the agent runs as %q", got)
	}
}

// TestViewer: a user who may view the cluster may read GPUNodes, and gets nothing else by Kerf. There is no other role
// for people.
func TestViewer(t *testing.T) {
	if n := len(all[*rbac.ClusterRole](t)); n != 2 {
		t.Errorf("%d cluster roles, want those of the agent and of viewers", n)
	}
	role := named[*rbac.ClusterRole](t, "kerf-viewer")
	want := []rbac.PolicyRule{{APIGroups: []string{"kerf.dev"}, Resources: []string{"gpunodes"},
		Verbs: []string{"get", "list", "watch"}}}
	if !slices.EqualFunc(role.Rules, want, equalRule) ||
		role.Labels["rbac.authorization.k8s.io/aggregate-to-view"] != "true" {
		t.Errorf("rules %+v, labels %v", role.Rules, role.Labels)
	}
}

// TestRightsByVariant holds each variant that gives the agent a right to what it says: these rights, of the agent, and
// a policy that looks at who asks.
func TestRightsByVariant(t *testing.T) {
	for name, want := range map[string]struct {
		file  string
		rules []rbac.PolicyRule
	}{
		"evict": {"evict-over-cap.yaml",
			[]rbac.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"delete"}}}},
		"node-health": {"node-health.yaml", []rbac.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch", "patch"}},
			{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
		}},
	} {
		t.Run(name, func(t *testing.T) { rightByVariant(t, name, want.file, want.rules) })
	}
}

func rightByVariant(t *testing.T, name, file string, rules []rbac.PolicyRule) {
	account := one[*corev1.ServiceAccount](t)
	file = filepath.Join(root, "deploy/variants", file)
	kinds, policies := 0, 0
	// The right to nodes is held by a policy that is there always.
	nodes := strings.HasPrefix(name, "node-") && slices.ContainsFunc(all[*admission.ValidatingAdmissionPolicy](t),
		func(p *admission.ValidatingAdmissionPolicy) bool { return p.Name == "kerf-nodes" })
	for _, doc := range documents(t, file) {
		switch obj := decode(t, file, doc).(type) {
		case *rbac.ClusterRole:
			if !slices.EqualFunc(obj.Rules, rules, equalRule) {
				t.Errorf("rules %+v, want %+v", obj.Rules, rules)
			}
		case *rbac.ClusterRoleBinding:
			if s := obj.Subjects; len(s) != 1 || s[0].Name != account.Name || s[0].Namespace != account.Namespace ||
				obj.RoleRef.Name != "kerf-agent-"+name {
				t.Errorf("binding of %+v to %+v", obj.RoleRef, s)
			}
		case *admission.ValidatingAdmissionPolicy:
			policies++
			who := obj.Spec.MatchConditions
			if len(who) != 1 || !strings.Contains(who[0].Expression, "system:serviceaccount:"+account.Namespace+":"+
				account.Name) || *obj.Spec.FailurePolicy != admission.Fail {
				t.Errorf("conditions %+v", who)
			}
		case *admission.ValidatingAdmissionPolicyBinding:
			if obj.Spec.PolicyName != "kerf-"+name || !slices.Equal(obj.Spec.ValidationActions,
				[]admission.ValidationAction{admission.Deny}) {
				t.Errorf("binding %+v", obj.Spec)
			}
		default:
			t.Errorf("%T", obj)
		}
		kinds++
	}
	if want := map[bool]int{true: 4, false: 2}[policies == 1]; kinds != want || policies == 0 && !nodes {
		t.Errorf("%d objects, %d policies: want a role and its binding, and the policy that holds it, here or in the "+
			"manifests", kinds, policies)
	}
}

func equalRule(a, b rbac.PolicyRule) bool {
	return slices.Equal(a.APIGroups, b.APIGroups) && slices.Equal(a.Resources, b.Resources) &&
		slices.Equal(a.Verbs, b.Verbs) &&
		slices.Equal(a.ResourceNames, b.ResourceNames) && len(a.NonResourceURLs) == 0
}

// warns are the policies that look at other vendors' pods, which may run on nodes without Kerf: they never deny, and a
// policy that cannot be evaluated never does either. The agent refuses on its node.
var warns = []string{"kerf-host-paths-of-others"}

// TestPoliciesDeny: a policy without its binding decides nothing, and one that fails open promises too much.
func TestPoliciesDeny(t *testing.T) {
	bound := map[string]*admission.ValidatingAdmissionPolicyBinding{}
	for _, b := range all[*admission.ValidatingAdmissionPolicyBinding](t) {
		bound[b.Spec.PolicyName] = b
	}
	policies := all[*admission.ValidatingAdmissionPolicy](t)
	for _, p := range policies {
		actions, failure := []admission.ValidationAction{admission.Deny}, admission.Fail
		if slices.Contains(warns, p.Name) {
			actions, failure = []admission.ValidationAction{admission.Warn, admission.Audit}, admission.Ignore
		}
		b := bound[p.Name]
		if b == nil || !slices.Equal(b.Spec.ValidationActions, actions) {
			t.Errorf("policy %q is not bound to %q", p.Name, actions)
		}
		if p.Spec.FailurePolicy == nil || *p.Spec.FailurePolicy != failure {
			t.Errorf("policy %q: what happens when it fails is not %q", p.Name, failure)
		}
		for _, v := range p.Spec.Validations {
			if v.Message == "" || v.Reason == nil || strings.Contains(v.Message, "\n") {
				t.Errorf("policy %q: %s has no message of one line, or no reason", p.Name, v.Expression)
			}
		}
	}
	if len(policies) != len(bound) {
		t.Errorf("%d policies, %d bindings", len(policies), len(bound))
	}
}

// TestOthersPodsAreNeverDenied: a policy that denies pods looks only at pods that name something of Kerf's, by a
// resource, by an annotation, or as its own agent. So no other vendor's pod is denied.
func TestOthersPodsAreNeverDenied(t *testing.T) {
	only := map[string]string{
		"kerf-placement":            "scheduling.kerf.dev/",
		"kerf-amounts":              "variables.asking",
		"kerf-amounts-of-templates": "variables.asking",
		"kerf-privileged":           "!variables.asks ||",
		"kerf-host-paths":           "startsWith('kerf.dev/')",
		"kerf-gpu-limits":           "startsWith('kerf.dev/')",
		"kerf-profile-alone":        "kerf.dev/profile",
		"kerf-gpunodes":             "kerf-system:kerf-agent",
		"kerf-nodes":                "kerf-system:kerf-agent",
	}
	for _, p := range all[*admission.ValidatingAdmissionPolicy](t) {
		if slices.Contains(warns, p.Name) {
			continue
		}
		by, known := only[p.Name]
		if !known {
			t.Errorf("policy %q denies: say here by what it leaves other vendors' pods alone", p.Name)
			continue
		}
		text := ""
		for _, c := range p.Spec.MatchConditions {
			text += c.Expression
		}
		for _, v := range p.Spec.Variables {
			text += v.Expression
		}
		for _, v := range p.Spec.Validations {
			if strings.HasPrefix(by, "!") && !strings.HasPrefix(v.Expression, by) {
				t.Errorf("policy %q: %s denies also others' pods", p.Name, v.Expression)
			}
			text += v.Expression
		}
		if !strings.Contains(text, by) {
			t.Errorf("policy %q does not look for %q", p.Name, by)
		}
	}
}

// TestGuardedPathsAreTheAgents: the folders that the policies guard are those that the agent guards on its node, by its
// arguments.
func TestGuardedPathsAreTheAgents(t *testing.T) {
	_, _, c := agent(t)
	own := map[string]string{"run-dir": "", "hook-dir": "", "cdi-dir": "", "kubelet-dir": ""}
	for _, a := range c.Args {
		if flag, value, ok := strings.Cut(strings.TrimPrefix(a, "--"), "="); ok {
			if _, is := own[flag]; is {
				own[flag] = value
			}
		}
	}
	for _, name := range []string{"kerf-host-paths", "kerf-host-paths-of-others"} {
		guarded := ""
		for _, v := range named[*admission.ValidatingAdmissionPolicy](t, name).Spec.Variables {
			if v.Name == "guarded" {
				guarded = v.Expression
			}
		}
		for flag, dir := range own {
			if flag == "kubelet-dir" {
				dir += "/device-plugins"
			}
			if dir == "" || !strings.Contains(guarded, "'"+dir+"/'") {
				t.Errorf("%s does not guard %s, the agent's --%s", name, dir, flag)
			}
		}
	}
}

// TestTemplatesAreJudgedAsPods holds the two policies on amounts together.
func TestTemplatesAreJudgedAsPods(t *testing.T) {
	rules := map[string]admission.ValidatingAdmissionPolicySpec{}
	for _, p := range all[*admission.ValidatingAdmissionPolicy](t) {
		rules[p.Name] = p.Spec
	}
	pods, templates := rules["kerf-amounts"], rules["kerf-amounts-of-templates"]
	if !slices.EqualFunc(pods.Validations, templates.Validations, func(a, b admission.Validation) bool {
		return a.Expression == b.Expression && a.Message == b.Message && a.MessageExpression == b.MessageExpression &&
			*a.Reason == *b.Reason
	}) || len(pods.Validations) == 0 {
		t.Error("the validations differ")
	}
	if !slices.EqualFunc(pods.Variables, templates.Variables, func(a, b admission.Variable) bool {
		return a == b || a.Name == "spec" && b.Name == "spec"
	}) {
		t.Error("the variables differ in more than where the pod's spec is")
	}
}
