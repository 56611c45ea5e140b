// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/warning"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-base/featuregate"
)

// ownNode is the node that the agent's token names.
const ownNode = "n1"

// apiServer is the admission of an API server on which the chart was installed: its own code, without the server.
type apiServer struct {
	plugin *validating.Plugin
	made   admission.ObjectInterfaces
}

// newAPIServer installs the namespaces, and the policies that the chart makes with values.
func newAPIServer(t *testing.T, set values, namespaces ...*corev1.Namespace) *apiServer {
	t.Helper()
	return serving(t, objects(t, made(t, set)), namespaces...)
}

// serving installs the policies among objects.
func serving(t *testing.T, installed []object, namespaces ...*corev1.Namespace) *apiServer {
	t.Helper()
	var all []runtime.Object
	for _, o := range installed {
		switch p := o.Object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			p.Spec.MatchConstraints = defaulted(p.Spec.MatchConstraints)
			all = append(all, p)
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			p.Spec.MatchResources = defaulted(p.Spec.MatchResources)
			all = append(all, p)
		case *corev1.ConfigMap:
			all = append(all, p)
		}
	}
	for _, n := range namespaces {
		n.Labels = mergedLabels(n.Labels, map[string]string{"kubernetes.io/metadata.name": n.Name})
		all = append(all, n)
	}
	client := fake.NewClientset(all...)
	factory := informers.NewSharedInformerFactory(client, 0)
	plugin, err := validating.NewPlugin(nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	initializer.New(client, dynamicfake.NewSimpleDynamicClient(scheme.Scheme, all...), factory,
		authorizerfactory.NewAlwaysDenyAuthorizer(), featuregate.NewFeatureGate(),
		compatibility.DefaultBuildEffectiveVersion(), ctx.Done(), mapper).Initialize(plugin)
	plugin.SetRESTMapper(mapper)
	if err := plugin.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if !plugin.WaitForReady() {
		t.Fatal("the policies are not read")
	}
	return &apiServer{plugin: plugin, made: admission.NewObjectInterfacesFromScheme(scheme.Scheme)}
}

// defaulted is what the API server makes of fields that are left out.
func defaulted(m *admissionv1.MatchResources) *admissionv1.MatchResources {
	if m == nil {
		return nil
	}
	out := m.DeepCopy()
	if out.NamespaceSelector == nil {
		out.NamespaceSelector = &metav1.LabelSelector{}
	}
	if out.ObjectSelector == nil {
		out.ObjectSelector = &metav1.LabelSelector{}
	}
	if out.MatchPolicy == nil {
		equivalent := admissionv1.Equivalent
		out.MatchPolicy = &equivalent
	}
	for i := range out.ResourceRules {
		if rule := &out.ResourceRules[i]; rule.Scope == nil {
			everywhere := admissionv1.AllScopes
			rule.Scope = &everywhere
		}
	}
	return out
}

func mergedLabels(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, one := range all {
		maps.Copy(out, one)
	}
	return out
}

// request is a user's request to the API server. The objects are as they stand in YAML.
type request struct {
	Operation string `yaml:"op"`
	// Resource is a resource or subresource, such as pods/ephemeralcontainers.
	Resource string
	// User is "agent" for kerf-agent on ownNode, "other-agent" for one with a token of no node, "claim-controller",
	// else any user.
	User        string
	Object, Old values
}

// kinds are those of the resources that are tried.
var kinds = map[string]schema.GroupVersionKind{
	"pods": corev1.SchemeGroupVersion.WithKind("Pod"), "nodes": corev1.SchemeGroupVersion.WithKind("Node"),
	"gpunodes":               {Group: "kerf.dev", Version: "v1alpha1", Kind: "GPUNode"},
	"daemonsets":             appsv1.SchemeGroupVersion.WithKind("DaemonSet"),
	"resourceclaims":         resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"),
	"resourceslices":         resourceapi.SchemeGroupVersion.WithKind("ResourceSlice"),
	"resourceclaimtemplates": resourceapi.SchemeGroupVersion.WithKind("ResourceClaimTemplate"),
}

// answer is what the policies say to it: the refusal, and the warnings.
type answer struct {
	denied   string
	warnings []string
}

// ask has the policies judge a request.
func (s *apiServer) ask(t *testing.T, r request) answer {
	t.Helper()
	resource, sub, _ := strings.Cut(r.Resource, "/")
	gvk, known := kinds[resource]
	if !known {
		t.Fatalf("no kind is known for %s", r.Resource)
	}
	namespace := "tenant"
	if slices.Contains([]string{"nodes", "gpunodes", "resourceslices"}, resource) {
		namespace = ""
	}
	typed := func(v values) runtime.Object {
		if v == nil {
			return nil
		}
		u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(jsonOf(t, v))}
		if u.GetName() == "" {
			u.SetName("tried")
		}
		if namespace != "" && u.GetNamespace() == "" {
			u.SetNamespace(namespace)
		}
		namespace = u.GetNamespace()
		if u.SetGroupVersionKind(gvk); !scheme.Scheme.Recognizes(gvk) {
			return u // of a CustomResourceDefinition
		}
		o, err := scheme.Scheme.New(gvk)
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, o, true)
		}
		if err != nil {
			t.Fatalf("%s: %v", gvk.Kind, err)
		}
		o.GetObjectKind().SetGroupVersionKind(gvk)
		return o
	}
	object, old := typed(r.Object), typed(r.Old)
	one, err := meta.Accessor(object)
	if err != nil {
		t.Fatal(err)
	}
	attr := admission.NewAttributesRecord(object, old, gvk, namespace, one.GetName(),
		gvk.GroupVersion().WithResource(resource), sub, admission.Operation(r.Operation),
		&metav1.CreateOptions{}, false, userOf(r.User))
	var out answer
	recorder := &warnings{}
	ctx, cancel := context.WithTimeout(warning.WithWarningRecorder(t.Context(), recorder), time.Minute)
	defer cancel()
	if err := s.plugin.Validate(ctx, attr, s.made); err != nil {
		out.denied = err.Error()
	}
	out.warnings = recorder.all
	return out
}

// userOf is who asks.
func userOf(name string) user.Info {
	switch name {
	case "agent":
		return &user.DefaultInfo{Name: "system:serviceaccount:kerf-system:kerf-agent",
			Extra: map[string][]string{"authentication.kubernetes.io/node-name": {ownNode}}}
	case "other-agent":
		return &user.DefaultInfo{Name: "system:serviceaccount:kerf-system:kerf-agent"}
	case "claim-controller":
		name = "system:serviceaccount:kerf-system:kerf-claim-controller"
	case "":
		name = "tenant"
	}
	return &user.DefaultInfo{Name: name}
}

// warnings takes what the API server would send to the client.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) AddWarning(_, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// wants compares an answer with what is expected: a part of the refusal and a part of a warning, empty for none.
func (a answer) wants(denied, warned string) error {
	switch {
	case denied == "" && a.denied != "":
		return fmt.Errorf("denied: %s", a.denied)
	case denied != "" && a.denied == "":
		return fmt.Errorf("admitted, want %q (warnings %q)", denied, a.warnings)
	case denied != "" && (!strings.Contains(a.denied, denied) ||
		!strings.Contains(a.denied, "ValidatingAdmissionPolicy 'kerf-")):
		return fmt.Errorf("denied with %q, want %q", a.denied, denied)
	case warned == "" && len(a.warnings) > 0:
		return fmt.Errorf("warned: %q", a.warnings)
	case warned != "" && !slices.ContainsFunc(a.warnings, func(w string) bool { return strings.Contains(w, warned) }):
		return fmt.Errorf("warned %q, want %q", a.warnings, warned)
	}
	return nil
}

// jsonOf has the number types of JSON, as the API server reads them.
func jsonOf(t *testing.T, v values) map[string]any {
	t.Helper()
	var number func(any) any
	number = func(v any) any {
		switch v := v.(type) {
		case int:
			return int64(v)
		case values:
			out := map[string]any{}
			for k, one := range v {
				out[k] = number(one)
			}
			return out
		case []any:
			out := make([]any, len(v))
			for i, one := range v {
				out[i] = number(one)
			}
			return out
		}
		return v
	}
	return number(v).(map[string]any)
}
