// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	strict "sigs.k8s.io/yaml"

	admission "k8s.io/api/admissionregistration/v1"
)

// schedulerFiles are the objects of deploy/scheduler.
func schedulerFiles(t *testing.T) []metav1.Object {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "deploy/scheduler/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("deploy/scheduler: %v, %v", files, err)
	}
	var out []metav1.Object
	for _, file := range files {
		for _, doc := range documents(t, file) {
			out = append(out, decode(t, file, doc))
		}
	}
	return out
}

// TestSchedulersRights is the list of what the scheduler may do beyond what the cluster lets every kube-scheduler do.
func TestSchedulersRights(t *testing.T) {
	subject := rbac.Subject{Kind: "ServiceAccount", Name: "kerf-scheduler", Namespace: "kerf-system"}
	lease := []string{"coordination.k8s.io"}
	var bound []string
	for _, o := range schedulerFiles(t) {
		if o.GetLabels()["app.kubernetes.io/part-of"] != "kerf" {
			t.Errorf("%T %s has no label by which it is found", o, o.GetName())
		}
		switch o := o.(type) {
		case *rbac.ClusterRole:
			want := []rbac.PolicyRule{
				{APIGroups: []string{"kerf.dev"}, Resources: []string{"gpunodes"},
					Verbs: []string{"get", "list", "watch"}},
				{APIGroups: []string{""}, Resources: []string{"pods/eviction"}, Verbs: []string{"create"}},
				{APIGroups: []string{"scheduling.k8s.io"}, Resources: []string{"podgroups"}, Verbs: []string{"get"}},
			}
			if !slices.EqualFunc(o.Rules, want, equalRule) {
				t.Errorf("rules %+v, want %+v", o.Rules, want)
			}
		case *rbac.Role:
			want := []rbac.PolicyRule{
				{APIGroups: lease, Resources: []string{"leases"}, Verbs: []string{"list", "watch"}},
				{APIGroups: lease, Resources: []string{"leases"}, Verbs: []string{"create"}},
				{APIGroups: lease, Resources: []string{"leases"}, ResourceNames: []string{"kerf-scheduler"},
					Verbs: []string{"get", "update"}},
				{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"kerf-config"},
					Verbs: []string{"list", "watch"}},
				{APIGroups: []string{""}, Resources: []string{"configmaps"},
					ResourceNames: []string{"kerf-config-last-good"}, Verbs: []string{"get", "update"}},
			}
			if !slices.EqualFunc(o.Rules, want, equalRule) {
				t.Errorf("rules in its namespace %+v, want %+v", o.Rules, want)
			}
		case *rbac.ClusterRoleBinding:
			bound = append(bound, o.RoleRef.Name)
			if !slices.Equal(o.Subjects, []rbac.Subject{subject}) {
				t.Errorf("binding %s of %+v", o.Name, o.Subjects)
			}
		case *rbac.RoleBinding:
			bound = append(bound, o.Namespace+"/"+o.RoleRef.Name)
			if !slices.Equal(o.Subjects, []rbac.Subject{subject}) {
				t.Errorf("binding %s of %+v", o.Name, o.Subjects)
			}
		}
	}
	slices.Sort(bound)
	want := []string{"kerf-scheduler", "kerf-system/kerf-scheduler",
		"kube-system/extension-apiserver-authentication-reader", "system:kube-scheduler", "system:volume-scheduler"}
	if !slices.Equal(bound, want) {
		t.Errorf("bound to %q, want %q", bound, want)
	}
	for _, p := range all[*admission.ValidatingAdmissionPolicy](t) {
		if p.Name == "kerf-placement" && !strings.Contains(p.Spec.Variables[0].Expression, "system:serviceaccount:"+
			subject.Namespace+":"+subject.Name+"'") {
			t.Errorf("it may not write its placements: %s", p.Spec.Variables[0].Expression)
		}
	}
}

func TestSchedulerHasNoMoreThanItNeeds(t *testing.T) {
	for _, o := range schedulerFiles(t) {
		d, ok := o.(*apps.Deployment)
		if !ok {
			continue
		}
		p := d.Spec.Template.Spec
		c := p.Containers[0].SecurityContext
		if p.HostPID || p.HostNetwork || p.HostIPC || !*p.SecurityContext.RunAsNonRoot ||
			p.ServiceAccountName != "kerf-scheduler" || len(p.Containers) != 1 {
			t.Errorf("pod %+v", p)
		}
		if c.Privileged != nil || !*c.ReadOnlyRootFilesystem || *c.AllowPrivilegeEscalation ||
			!slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(c.Capabilities.Add) != 0 {
			t.Errorf("security context %+v", c)
		}
		for _, v := range p.Volumes {
			if v.ConfigMap == nil {
				t.Errorf("volume %+v", v)
			}
		}
		return
	}
	t.Error("there is no Deployment")
}

// TestSchedulerConfiguration holds the configuration to what the plugin needs of it: to bind and to preempt first, to
// outweigh the others, and to be the one that counts GPUs.
func TestSchedulerConfiguration(t *testing.T) {
	type plugin struct {
		Name   string
		Weight int
	}
	type enabled struct{ Enabled, Disabled []plugin }
	var c struct {
		APIVersion, Kind         string
		PercentageOfNodesToScore int
		LeaderElection           struct {
			LeaderElect                                   bool
			ResourceLock, ResourceNamespace, ResourceName string
		}
		Profiles []struct {
			SchedulerName string
			Plugins       struct{ MultiPoint, Bind, PostFilter, PodGroupPostFilter, PlacementGenerate enabled }
			PluginConfig  []struct {
				Name string
				Args map[string]any
			}
		}
	}
	for _, o := range schedulerFiles(t) {
		if m, ok := o.(*corev1.ConfigMap); ok && m.Name == "kerf-scheduler" {
			if err := strict.UnmarshalStrict([]byte(m.Data["scheduler.yaml"]), &c); err != nil {
				t.Fatal(err)
			}
		}
	}
	if c.Kind != "KubeSchedulerConfiguration" || c.PercentageOfNodesToScore != 100 || len(c.Profiles) != 1 ||
		c.Profiles[0].SchedulerName != "kerf-scheduler" {
		t.Fatalf("configuration %+v", c)
	}
	if e := c.LeaderElection; !e.LeaderElect || e.ResourceNamespace != "kerf-system" ||
		e.ResourceName != "kerf-scheduler" {
		t.Errorf("leader election %+v", e)
	}
	p := c.Profiles[0]
	for what, e := range map[string]enabled{"multiPoint": p.Plugins.MultiPoint, "bind": p.Plugins.Bind,
		"postFilter": p.Plugins.PostFilter, "podGroupPostFilter": p.Plugins.PodGroupPostFilter} {
		if len(e.Enabled) != 1 || e.Enabled[0].Name != "Kerf" {
			t.Errorf("%s: %+v", what, e)
		}
	}
	if p.Plugins.MultiPoint.Enabled[0].Weight != 100 {
		t.Errorf("weight %d", p.Plugins.MultiPoint.Enabled[0].Weight)
	}
	if d := p.Plugins.PlacementGenerate.Disabled; len(d) != 1 || d[0].Name != "TopologyPlacementGenerator" {
		t.Errorf("who says where a gang is tried in addition to Kerf: not disabled are all but %+v", d)
	}
	ignored := false
	for _, one := range p.PluginConfig {
		groups, _ := one.Args["ignoredResourceGroups"].([]any)
		ignored = ignored || one.Name == "NodeResourcesFit" && len(groups) == 1 && groups[0] == "kerf.dev"
	}
	if !ignored {
		t.Error("units of a node are counted in addition to the GPUs")
	}
}
