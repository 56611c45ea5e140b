// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/discovery"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi/openapitest"
)

// described is a client whose discovery has the schema of Kubernetes.
type described struct{ *fake.Clientset }

func (c described) Discovery() discovery.DiscoveryInterfaces {
	return schemas{c.Clientset.Discovery()}
}

type schemas struct{ discovery.DiscoveryInterfaces }

func (schemas) OpenAPIV3() openapi.Client { return openapitest.NewEmbeddedFileClient() }

// mutators installs the mutating policies among objects in the admission of an API server.
func mutators(t *testing.T, installed []object, namespace *corev1.Namespace) *mutating.Plugin {
	t.Helper()
	all := []runtime.Object{namespace}
	for _, o := range installed {
		switch p := o.Object.(type) {
		case *admissionv1.MutatingAdmissionPolicy:
			p.Spec.MatchConstraints = defaulted(p.Spec.MatchConstraints)
			all = append(all, p)
		case *admissionv1.MutatingAdmissionPolicyBinding:
			p.Spec.MatchResources = defaulted(p.Spec.MatchResources)
			all = append(all, p)
		case *corev1.ConfigMap:
			all = append(all, p)
		}
	}
	api := described{fake.NewClientset(all...)}
	factory := informers.NewSharedInformerFactory(api, 0)
	plugin, err := mutating.NewPlugin(nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	initializer.New(api, dynamicfake.NewSimpleDynamicClient(scheme.Scheme, all...), factory,
		authorizerfactory.NewAlwaysDenyAuthorizer(), feature.DefaultFeatureGate,
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
	return plugin
}

// translation is what the API server answers to the creation of a pod.
type translation struct {
	pod      *corev1.Pod
	denied   string
	warnings []string
}

// translator is the API server's own admission, with the chart's policies for a namespace that wants translation.
type translator struct {
	server *apiServer
	plugin *mutating.Plugin
}

func newTranslator(t *testing.T, set values) translator {
	t.Helper()
	namespace, installed := tenant(map[string]string{"kerf.dev/translate": "true"}), objects(t, made(t, set))
	return translator{serving(t, installed, namespace), mutators(t, installed, namespace)}
}

// translate changes and then validates a pod.
func (s translator) translate(t *testing.T, text string) translation {
	t.Helper()
	var v values
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(jsonOf(t, v), pod, true); err != nil {
		t.Fatal(err)
	}
	pod.Name, pod.Namespace = "tried", "tenant"
	scheme.Scheme.Default(pod)
	attr := admission.NewAttributesRecord(pod, nil, corev1.SchemeGroupVersion.WithKind("Pod"), "tenant", pod.Name,
		corev1.SchemeGroupVersion.WithResource("pods"), "", admission.Create, &metav1.CreateOptions{}, false,
		userOf(""))
	recorder := &warnings{}
	ctx, cancel := context.WithTimeout(warning.WithWarningRecorder(t.Context(), recorder), time.Minute)
	defer cancel()
	var out translation
	// The schemas arrive in the background: until then the API server answers that it is unavailable.
	admit := func() error { return s.plugin.Admit(ctx, attr, s.server.made) }
	err := admit()
	for ; err != nil && strings.Contains(err.Error(), "There can be a delay"); err = admit() {
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err == nil {
		err = s.server.plugin.Validate(ctx, attr, s.server.made)
	}
	if err != nil {
		out.denied = err.Error()
	}
	out.pod, _ = attr.GetObject().(*corev1.Pod)
	out.warnings = recorder.all
	return out
}

// translated is a pod, by its limits and what follows them, and what the API server makes of it.
type translated struct {
	pod, limit, amount, scheduler, annotation, denied, warned string
	// keep is true if the chart sets no scheduler.
	keep bool
}

func translations() map[string]translated {
	const uuid = "GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f"
	return map[string]translated{
		"no GPU":            {pod: "{nvidia.com/gpu: 0, cpu: 1}"},
		"no GPU of HAMi":    {pod: "{nvidia.com/gpu: 0, nvidia.com/gpumem: 0}"},
		"no GPU of Volcano": {pod: "{volcano.sh/vgpu-number: 0}"},
		"no GPU, and an instance": {pod: "{nvidia.com/gpu: 0, nvidia.com/mig-1g.10gb: 1}",
			limit: "kerf.dev/mig-1g.10gb", amount: "1", scheduler: "kerf-scheduler"},
		"no GPU, and a part of one": {pod: "{nvidia.com/gpu: 0, nvidia.com/gpumem: 1024}", denied: "and no GPU"},
		"a GPU": {pod: "{nvidia.com/gpu: 2}", limit: "kerf.dev/gpu", amount: "2",
			scheduler: "kerf-scheduler"},
		"KAI's scheduler": {pod: "{nvidia.com/gpu: 2}\n  schedulerName: kai-scheduler", limit: "kerf.dev/gpu",
			amount: "2", scheduler: "kerf-scheduler"},
		"an unknown scheduler": {pod: "{nvidia.com/gpu: 2}\n  schedulerName: other", limit: "kerf.dev/gpu",
			amount: "2", scheduler: "other"},
		"KAI's scheduler stays": {pod: "{nvidia.com/gpu: 2}\n  schedulerName: kai-scheduler", limit: "kerf.dev/gpu",
			amount: "2", scheduler: "kai-scheduler", warned: "schedulerName kai-scheduler stays", keep: true},
		"Volcano's UUID": {pod: "{volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 2048}\n" +
			"metadata: {annotations: {volcano.sh/vgpu-use-gpuuuid: " + uuid + "}}", limit: "kerf.dev/gpu-memory-gib",
			amount: "2", scheduler: "kerf-scheduler", annotation: uuid},
		"Volcano's exclusion": {pod: "{volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 2048}\n" +
			"metadata: {annotations: {volcano.sh/vgpu-nouse-gpuuuid: " + uuid + "}}", denied: "nouse-gpuuuid"},
	}
}

// TestTranslation: the mutating policy and the validating policies, as an API server runs them.
func TestTranslation(t *testing.T) {
	withScheduler := func(set bool) translator {
		return newTranslator(t, values{"admission": values{"setScheduler": set, "translate": values{"enabled": true}}})
	}
	servers := map[bool]translator{true: withScheduler(true), false: withScheduler(false)}
	for name, tt := range translations() {
		text := "spec:\n  containers:\n  - {name: main, image: i, resources: {limits: LIMITS}}\n"
		limits, rest, _ := strings.Cut(tt.pod, "\n")
		got := servers[!tt.keep].translate(t, strings.Replace(text, "LIMITS", limits, 1)+rest+"\n")
		if tt.denied != "" || got.denied != "" {
			if tt.denied == "" || !strings.Contains(got.denied, tt.denied) {
				t.Errorf("%s: denied %q, want %q", name, got.denied, tt.denied)
			}
			continue
		}
		spec := got.pod.Spec
		for resource, q := range spec.Containers[0].Resources.Limits {
			if strings.Contains(string(resource), "/") && (string(resource) != tt.limit || q.String() != tt.amount) {
				t.Errorf("%s: %s is %s", name, resource, q.String())
			}
		}
		if _, ok := spec.Containers[0].Resources.Limits[corev1.ResourceName(tt.limit)]; tt.limit != "" && !ok {
			t.Errorf("%s: limits %v", name, spec.Containers[0].Resources.Limits)
		}
		if spec.SchedulerName != tt.scheduler || got.pod.Annotations["kerf.dev/gpu-uuid"] != tt.annotation {
			t.Errorf("%s: scheduler %q, annotations %v", name, spec.SchedulerName, got.pod.Annotations)
		}
		if warned := strings.Join(got.warnings, "\n"); !strings.Contains(warned, tt.warned) ||
			tt.warned == "" && warned != "" {
			t.Errorf("%s: warned %q", name, warned)
		}
	}
}
