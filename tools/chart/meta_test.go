// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/lint"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// TestMetadata: the chart has what Artifact Hub shows of it, in the forms that its linter takes.
func TestMetadata(t *testing.T) {
	chart, err := loader.Load(filepath.Join(deploy, "chart"))
	if err != nil {
		t.Fatal(err)
	}
	m := chart.Metadata
	if err := m.Validate(); err != nil {
		t.Error(err)
	}
	for field, value := range map[string]string{"description": m.Description, "home": m.Home, "icon": m.Icon,
		"kubeVersion": m.KubeVersion, "appVersion": m.AppVersion, "type": m.Type} {
		if value == "" {
			t.Errorf("Chart.yaml has no %s", field)
		}
	}
	if len(m.Keywords) < 3 || len(m.Sources) == 0 || len(m.Maintainers) == 0 || m.Maintainers[0].URL == "" {
		t.Errorf("keywords %q, sources %q, maintainers %v", m.Keywords, m.Sources, m.Maintainers)
	}
	// The icon is a file of this repository.
	if _, file, is := strings.Cut(m.Icon, "/main/"); !is {
		t.Errorf("icon %q", m.Icon)
	} else if _, err := os.Stat(filepath.Join("../..", file)); err != nil {
		t.Error(err)
	}
	if m.Annotations["artifacthub.io/category"] != "ai-machine-learning" ||
		m.Annotations["artifacthub.io/license"] != "Apache-2.0" {
		t.Errorf("annotations %v", m.Annotations)
	}
	lists := map[string][]string{"links": {"name", "url"}, "crdsExamples": {"apiVersion", "kind", "spec"},
		"crds": {"kind", "version", "name", "displayName", "description"}}
	for name, keys := range lists {
		var all []values
		if err := yaml.Unmarshal([]byte(m.Annotations["artifacthub.io/"+name]), &all); err != nil || len(all) == 0 {
			t.Errorf("artifacthub.io/%s: %v, %v", name, all, err)
		}
		for _, one := range all {
			for _, key := range keys {
				if one[key] == nil {
					t.Errorf("artifacthub.io/%s: no %s in %v", name, key, one)
				}
			}
		}
	}
}

// TestLint: helm lint --strict finds nothing, with the chart's values and with each preset.
func TestLint(t *testing.T) {
	sets := presets(t)
	sets["default"] = values{}
	version, err := kubeVersion(kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	for name, set := range sets {
		for _, m := range lint.AllWithKubeVersion(filepath.Join(deploy, "chart"), set, namespace,
			&version).Messages {
			t.Errorf("%s: %s", name, m)
		}
	}
}

// TestPackagedFiles: the package has README, license and presets.
func TestPackagedFiles(t *testing.T) {
	chart, err := loader.Load(filepath.Join(deploy, "chart"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range chart.Raw {
		files[f.Name] = string(f.Data)
	}
	license, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	if files["LICENSE"] != string(license) {
		t.Error("the chart's LICENSE is not that of the repository")
	}
	for _, name := range []string{"README.md", "values.schema.json", "presets/k3s.yaml", "templates/NOTES.txt"} {
		if files[name] == "" {
			t.Errorf("the package has no %s", name)
		}
	}
}

// TestNotes: the notes name what uninstall leaves, and a command for each.
func TestNotes(t *testing.T) {
	for name, c := range map[string]struct {
		set  values
		says []string
	}{
		"default": {values{}, []string{"kubectl label node NODE kerf.dev/deploy-agent=true",
			"--set uninstall.enabled=true"}},
		"removing": {values{"uninstall": values{"enabled": true}},
			[]string{"app.kubernetes.io/name=kerf-remove", "helm uninstall kerf"}},
	} {
		files, err := renderOn(filepath.Join(deploy, "chart"), namespace, kubernetes, c.set, mutatingKind)
		if err != nil {
			t.Fatal(err)
		}
		notes := files["NOTES.txt"]
		for _, part := range append(c.says, "kubectl delete crd gpunodes.kerf.dev",
			"kubectl delete namespace kerf-system", "kubectl label node --all kerf.dev/deploy-agent-",
			"kerf.dev/allow-host-paths-", "/var/lib/kerf") {
			if !strings.Contains(notes, part) {
				t.Errorf("%s: the notes do not say %q:\n%s", name, part, notes)
			}
		}
	}
}

// TestSchedulerReplicas: the replicas spread, a drain stops one at a time, and flags can be added.
func TestSchedulerReplicas(t *testing.T) {
	set := values{"scheduler": values{"replicas": 3, "extraArgs": []any{"--feature-gates=DRADeviceTaintRules=false"}}}
	d := byName[*appsv1.Deployment](t, set)["kerf-scheduler"]
	if !slices.Contains(d.Spec.Template.Spec.Containers[0].Args, "--feature-gates=DRADeviceTaintRules=false") {
		t.Errorf("arguments %q", d.Spec.Template.Spec.Containers[0].Args)
	}
	var keys []string
	for _, c := range d.Spec.Template.Spec.TopologySpreadConstraints {
		keys = append(keys, c.TopologyKey)
		if c.LabelSelector.MatchLabels["app.kubernetes.io/name"] != "kerf-scheduler" || c.MaxSkew != 1 ||
			c.WhenUnsatisfiable != corev1.ScheduleAnyway {
			t.Errorf("constraint %+v", c)
		}
	}
	if !slices.Equal(keys, []string{"topology.kubernetes.io/zone", "kubernetes.io/hostname"}) {
		t.Errorf("the replicas spread over %q", keys)
	}
	for _, replicas := range []int{1, 2} {
		set := values{"scheduler": values{"replicas": replicas}}
		for name := range byName[*appsv1.Deployment](t, set) {
			b := byName[*policyv1.PodDisruptionBudget](t, set)[name]
			if (b != nil) != (replicas > 1) {
				t.Errorf("%s with %d replicas: budget %v", name, replicas, b)
			}
			if b != nil && b.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != name {
				t.Errorf("%s: the budget is for %v", name, b.Spec.Selector)
			}
		}
	}
}

// TestOpenShift: constraints allow what the pods of the preset ask for, and no more.
func TestOpenShift(t *testing.T) {
	for access, privileged := range map[string]string{"runtimeClass": "false", "hostLibrary": "true"} {
		set := read(t, filepath.Join(deploy, "chart/presets/openshift.yaml"))
		set["poolDefaults"].(values)["driverAccess"] = access
		text := made(t, set)["openshift/10-security.yaml"]
		constraints := values{}
		if err := yaml.Unmarshal([]byte(strings.Split(text, "\n---\n")[0]), &constraints); err != nil {
			t.Fatal(err)
		}
		if got := constraints["allowPrivilegedContainer"]; got != (privileged == "true") {
			t.Errorf("%s: allowPrivilegedContainer %v", access, got)
		}
		allowed := constraints["allowedCapabilities"].([]any)
		accounts := constraints["users"].([]any)
		for name, d := range byName[*appsv1.DaemonSet](t, set) {
			p := d.Spec.Template.Spec
			account := p.ServiceAccountName
			if account == "" {
				account = "default"
			}
			if !slices.Contains(accounts, any("system:serviceaccount:kerf-system:"+account)) {
				t.Errorf("%s runs as %s: %v", name, account, accounts)
			}
			if c := p.Containers[0].SecurityContext.Capabilities; c != nil {
				for _, one := range c.Add {
					if !slices.Contains(allowed, any(string(one))) {
						t.Errorf("%s adds %s: %v", name, one, allowed)
					}
				}
			}
		}
		if !strings.Contains(text, "name: kerf-scheduler-nonroot") {
			t.Error("the scheduler runs as user 65532, which OpenShift does not admit by default")
		}
	}
	if files := made(t, values{}); files["openshift/10-security.yaml"] != "" {
		t.Error("constraints on other clusters")
	}
}
