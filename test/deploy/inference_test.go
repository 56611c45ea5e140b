// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"bytes"
	"maps"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	strict "sigs.k8s.io/yaml"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/cli/explain"
	"github.com/kerf-gpu/kerf/sharing"
)

// deployments are the Deployments of a file, by name.
func deployments(t *testing.T, file string) map[string]appsv1.Deployment {
	t.Helper()
	out := map[string]appsv1.Deployment{}
	for doc := range strings.SplitSeq(read(t, file), "\n---\n") {
		var d appsv1.Deployment
		if err := strict.UnmarshalStrict([]byte(doc), &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if d.APIVersion != "apps/v1" || d.Kind != "Deployment" || d.Name == "" {
			t.Fatalf("%s: %+v", file, d.TypeMeta)
		}
		out[d.Name] = d
	}
	return out
}

// TestTwoModelsFitOneGPU: in each recipe, the two models together request no more than one GPU with 80 GB has. The
// scheduler prefers the same GPU for both.
func TestTwoModelsFitOneGPU(t *testing.T) {
	for _, recipe := range []string{"two-models", "vllm", "sglang", "trtllm"} {
		models := deployments(t, "deploy/recipes/"+recipe+".yaml")
		memory, percent := int64(0), int64(0)
		for name, d := range models {
			pod := d.Spec.Template
			if pod.Spec.SchedulerName != "kerf-scheduler" || len(pod.Spec.Containers) != 1 ||
				pod.Annotations[sharing.Domain+"/placement-policy"] != "pack" ||
				pod.Annotations[sharing.Domain+"/min-enforcement"] != "userspace" ||
				!maps.Equal(pod.Labels, d.Spec.Selector.MatchLabels) {
				t.Errorf("%s: %s: %+v", recipe, name, pod)
				continue
			}
			limits := pod.Spec.Containers[0].Resources.Limits
			m, p := limits[sharing.ResourceMemory], limits[sharing.ResourcePercent]
			memory, percent = memory+m.Value(), percent+p.Value()
		}
		if len(models) != 2 || memory == 0 || memory > 79 || percent == 0 || percent > 100 {
			t.Errorf("%s: %d models, %d GiB, %d percent", recipe, len(models), memory, percent)
		}
	}
}

// TestAutoscalersScaleTheModel: HorizontalPodAutoscaler and ScaledObject scale a Deployment of the recipe, on the
// metric that the adapter makes.
func TestAutoscalersScaleTheModel(t *testing.T) {
	models := deployments(t, "deploy/recipes/two-models.yaml")
	hpa, err := autoscalerOf(read(t, "deploy/monitoring/autoscaling/hpa.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ref := hpa.Spec.ScaleTargetRef
	target, known := models[ref.Name]
	if !known || ref.Kind != target.Kind || ref.APIVersion != target.APIVersion || hpa.Namespace != target.Namespace {
		t.Errorf("%+v, %+v", ref, target.ObjectMeta)
	}
	m := hpa.Spec.Metrics
	if len(m) != 1 || m[0].Pods.Target.AverageValue.MilliValue() != 700 ||
		!strings.Contains(read(t, "deploy/monitoring/autoscaling/prometheus-adapter.yaml"),
			"\n      as: "+m[0].Pods.Metric.Name+"\n") {
		t.Errorf("%+v", m)
	}
	keda, err := scaledObjectOf(read(t, "deploy/monitoring/autoscaling/keda.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	target, known = models[keda.Spec.ScaleTargetRef.Name]
	trigger := keda.Spec.Triggers[0]
	if !known || keda.Namespace != target.Namespace || trigger.MetricType != "Value" ||
		trigger.Metadata["threshold"] != "0.7" {
		t.Errorf("%+v", keda)
	}
}

// suggested is a comment with the command that computed the fraction in the arguments on the next line, and the memory
// of the container.
var suggested = regexp.MustCompile(`kerf suggest gpu-memory-utilization (\d+)(GiB .*)\n +args: .*(?:` +
	`--gpu-memory-utilization|--mem-fraction-static|--kv_cache_free_gpu_memory_fraction)=([\d.]+)[,\]]` +
	`(?s:.*?)kerf\.dev/gpu-memory-gib: "(\d+)"`)

// TestMemoryFractions checks that each server of the recipes uses the fraction that kerf suggest prints.
func TestMemoryFractions(t *testing.T) {
	for file, servers := range map[string]int{"two-models": 2, "kserve-vllm": 1, "vllm": 2, "sglang": 2,
		"trtllm": 2} {
		found := suggested.FindAllStringSubmatch(read(t, "deploy/recipes/"+file+".yaml"), -1)
		if len(found) != servers {
			t.Errorf("%s.yaml has %d servers with their command, want %d", file, len(found), servers)
		}
		for _, f := range found {
			var out, errOut bytes.Buffer
			a := &command.App{Out: &out, ErrOut: &errOut, Getenv: func(string) string { return "" }}
			args := append([]string{"suggest", "gpu-memory-utilization"}, strings.Fields(f[1]+f[2])...)
			if code, err := a.Execute(args, explain.Commands); code != command.ExitOK {
				t.Errorf("%s.yaml: kerf %q: status %d, %v: %s", file, args, code, err, errOut.String())
			}
			if f[1] != f[4] || strings.TrimSpace(out.String()) != f[3] {
				t.Errorf("%s.yaml: %s GiB with the fraction %s; kerf %q prints %s", file, f[4], f[3], args,
					out.String())
			}
		}
	}
}
