// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	strict "sigs.k8s.io/yaml"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/cli/explain"
	"github.com/kerf-gpu/kerf/sharing"
)

// scaledObject has the fields of KEDA's ScaledObject that the example uses.
type scaledObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ScaleTargetRef  struct{ Name string } `json:"scaleTargetRef"`
		MinReplicaCount int32                 `json:"minReplicaCount"`
		MaxReplicaCount int32                 `json:"maxReplicaCount"`
		CooldownPeriod  int32                 `json:"cooldownPeriod"`
		Triggers        []struct {
			Type, MetricType string
			Metadata         struct{ ServerAddress, Query, Threshold string }
		} `json:"triggers"`
	} `json:"spec"`
}

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

// TestTwoModelsFitOneGPU: the two models together request no more than one GPU with 80 GB has, and kerf-scheduler
// places both on the same GPU.
func TestTwoModelsFitOneGPU(t *testing.T) {
	models := deployments(t, "deploy/recipes/two-models.yaml")
	memory, percent := int64(0), int64(0)
	for name, d := range models {
		spec := d.Spec.Template.Spec
		if spec.SchedulerName != "kerf-scheduler" || len(spec.Containers) != 1 ||
			d.Spec.Template.Annotations[sharing.Domain+"/placement-policy"] != "pack" {
			t.Errorf("%s: %+v", name, d.Spec.Template)
			continue
		}
		limits := spec.Containers[0].Resources.Limits
		m, p := limits[sharing.ResourceMemory], limits[sharing.ResourcePercent]
		memory, percent = memory+m.Value(), percent+p.Value()
	}
	if len(models) != 2 || memory == 0 || memory > 79 || percent == 0 || percent > 100 {
		t.Errorf("%d models, %d GiB, %d percent", len(models), memory, percent)
	}
}

// TestAutoscalersScaleTheModel: HorizontalPodAutoscaler and ScaledObject decode strictly, and scale a Deployment of
// the recipe.
func TestAutoscalersScaleTheModel(t *testing.T) {
	models := deployments(t, "deploy/recipes/two-models.yaml")
	var hpa autoscalingv2.HorizontalPodAutoscaler
	if err := strict.UnmarshalStrict([]byte(read(t, "deploy/monitoring/autoscaling/hpa.yaml")), &hpa); err != nil {
		t.Fatal(err)
	}
	target := models[hpa.Spec.ScaleTargetRef.Name]
	if hpa.APIVersion != "autoscaling/v2" || hpa.Spec.ScaleTargetRef.Kind != target.Kind ||
		hpa.Spec.ScaleTargetRef.APIVersion != target.APIVersion || hpa.Namespace != target.Namespace {
		t.Errorf("%+v, %+v", hpa.Spec.ScaleTargetRef, target.ObjectMeta)
	}
	if m := hpa.Spec.Metrics; len(m) != 1 || m[0].Type != autoscalingv2.PodsMetricSourceType || m[0].Pods == nil ||
		m[0].Pods.Target.Type != autoscalingv2.AverageValueMetricType ||
		m[0].Pods.Target.AverageValue.MilliValue() != 700 {
		t.Errorf("%+v", m)
	}
	var keda scaledObject
	if err := strict.UnmarshalStrict([]byte(read(t, "deploy/monitoring/autoscaling/keda.yaml")), &keda); err != nil {
		t.Fatal(err)
	}
	target = models[keda.Spec.ScaleTargetRef.Name]
	if keda.APIVersion != "keda.sh/v1alpha1" || keda.Kind != "ScaledObject" || keda.Namespace != target.Namespace ||
		target.Name == "" || keda.Spec.MinReplicaCount < 1 || keda.Spec.MaxReplicaCount <= keda.Spec.MinReplicaCount {
		t.Errorf("%+v", keda)
	}
	if x := keda.Spec.Triggers; len(x) != 1 || x[0].Type != "prometheus" || x[0].MetricType != "Value" ||
		x[0].Metadata.ServerAddress == "" || x[0].Metadata.Threshold != "0.7" {
		t.Errorf("%+v", x)
	}
}

// suggested is a comment with the command that computed the fraction in the arguments on the next line, and the memory
// of the container.
var suggested = regexp.MustCompile(`kerf suggest gpu-memory-utilization (\d+)(GiB .*)\n +args: .*(?:` +
	`--gpu-memory-utilization|--mem-fraction-static|--kv_cache_free_gpu_memory_fraction)=([\d.]+)[,\]]` +
	`(?s:.*?)kerf\.dev/gpu-memory-gib: "(\d+)"`)

// TestMemoryFractions checks that each server of the recipes uses the fraction that kerf suggest prints.
func TestMemoryFractions(t *testing.T) {
	for file, servers := range map[string]int{"two-models": 2, "kserve-vllm": 1, "trtllm": 1} {
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
