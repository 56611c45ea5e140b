// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kerf-gpu/kerf/sharing/dra"
)

// TestClaimTemplates: deploy/dra has no unknown field, each template names a class of the chart, a node takes its
// parameters, and docs/use/dra.md shows the pod.
func TestClaimTemplates(t *testing.T) {
	classes, templates := map[string]bool{}, map[string]bool{}
	for _, doc := range documents(t, filepath.Join(root, "deploy/variants/dra.yaml")) {
		if c, is := decode(t, "dra.yaml", doc).(*resourceapi.DeviceClass); is {
			classes[c.Name] = true
		}
	}
	var pods []*corev1.Pod
	for _, file := range []string{"share.yaml", "templates.yaml", "monitoring.yaml"} {
		for _, doc := range documents(t, filepath.Join(root, "deploy/dra", file)) {
			switch o := decode(t, file, doc).(type) {
			case *corev1.Pod:
				pods = append(pods, o)
			case *resourceapi.ResourceClaimTemplate:
				templates[o.Name] = true
				checkClaim(t, o.Name, o.Spec.Spec.Devices, classes)
			}
		}
	}
	if len(templates) < 10 || len(pods) != 1 || len(classes) < 3 {
		t.Fatalf("templates %v, %d pods, classes %v", templates, len(pods), classes)
	}
	for _, c := range pods[0].Spec.ResourceClaims {
		if !templates[*c.ResourceClaimTemplateName] {
			t.Errorf("the pod names template %q", *c.ResourceClaimTemplateName)
		}
	}
	_, manifest, _ := strings.Cut(read(t, "deploy/dra/share.yaml"), "docs/use/dra.md explains it.\n")
	if manifest == "" || !strings.Contains(read(t, "docs/use/dra.md"), "```yaml\n"+manifest+"```\n") {
		t.Error("docs/use/dra.md does not show deploy/dra/share.yaml")
	}
}

func checkClaim(t *testing.T, name string, c resourceapi.DeviceClaim, classes map[string]bool) {
	t.Helper()
	for _, r := range c.Requests {
		named := []string{}
		if r.Exactly != nil {
			named = append(named, r.Exactly.DeviceClassName)
		}
		for _, sub := range r.FirstAvailable {
			named = append(named, sub.DeviceClassName)
		}
		for _, class := range named {
			if !classes[class] {
				t.Errorf("template %s, request %s: no class %q", name, r.Name, class)
			}
		}
		if len(named) == 0 {
			t.Errorf("template %s, request %s names no class", name, r.Name)
		}
	}
	for _, conf := range c.Config {
		if conf.Opaque == nil || conf.Opaque.Driver != dra.Driver {
			t.Errorf("template %s has parameters of another driver", name)
		} else if _, err := dra.ParseParameters(conf.Opaque.Parameters.Raw); err != nil {
			t.Errorf("template %s: %v", name, err)
		}
	}
}
