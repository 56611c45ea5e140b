// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// attempt is one document of testdata/admission.
type attempt struct {
	Name           string
	request        `yaml:",inline"`
	Denied, Warned string
}

// attempts are those of a file, which must tell all apart.
func attempts(t *testing.T, file string) []attempt {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/admission", file))
	if err != nil {
		t.Fatal(err)
	}
	var all []attempt
	seen := map[string]bool{}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		var a attempt
		d := yaml.NewDecoder(strings.NewReader(doc))
		d.KnownFields(true)
		if err := d.Decode(&a); err != nil {
			t.Fatalf("%s: %v\n%s", file, err, doc)
		}
		if a.Name == "" || seen[a.Name] {
			t.Errorf("%s: a second attempt %q", file, a.Name)
		}
		seen[a.Name] = true
		all = append(all, a)
	}
	return all
}

// tenant is the namespace of the user who tries something.
func tenant(labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant", Labels: labels}}
}

// cluster are the namespaces in which something is tried: a tenant's, and those of node agents.
func cluster() []*corev1.Namespace {
	all := []*corev1.Namespace{tenant(nil)}
	for _, name := range []string{"kube-system", "gpu-operator"} {
		all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return all
}

// TestAttempts has the API server's own code judge each attempt, with the policies of the default chart and of
// deploy/manifests.
func TestAttempts(t *testing.T) {
	servers := map[string]*apiServer{
		"chart":     newAPIServer(t, values{}, cluster()...),
		"manifests": newAPIServer(t, plain(), cluster()...),
	}
	for _, file := range []string{"pods.yaml", "nodes.yaml"} {
		for _, a := range attempts(t, file) {
			for name, s := range servers {
				t.Run(file+"/"+name+"/"+a.Name, func(t *testing.T) {
					if err := s.ask(t, a.request).wants(a.Denied, a.Warned); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// share is a pod of one container with a share of a GPU, whose spec has more.
func share(annotations values, spec, container values) request {
	c := values{"name": "a", "resources": values{"limits": values{"kerf.dev/gpu-memory-gib": "1"}}}
	maps.Copy(c, container)
	all := values{"containers": []any{c}}
	maps.Copy(all, spec)
	return request{Operation: "CREATE", Resource: "pods", Object: values{
		"metadata": values{"name": "p", "namespace": "tenant", "annotations": annotations}, "spec": all,
	}}
}

var (
	hostPID = values{"hostPID": true}
	strong  = values{"securityContext": values{"privileged": true}}
	lock    = values{"securityContext": values{"capabilities": values{"add": []any{"IPC_LOCK"}}}}
	limited = values{"env": []any{values{"name": "NVIDIA_GPU_MEMORY_LIMIT", "value": "1"}}}
)

// volumes are a pod's host paths.
func volumes(paths ...string) values {
	var all []any
	for i, p := range paths {
		all = append(all, values{"name": string(rune('a' + i)), "hostPath": values{"path": p}})
	}
	return values{"volumes": all}
}

// TestWhoIsLetOff: what an administrator allows by namespace, profile or value passes, and nothing besides.
func TestWhoIsLetOff(t *testing.T) {
	const baseline, notListed, sets = "keeps to the Pod Security baseline", "is not in the list",
		"sets NVIDIA_GPU_MEMORY_LIMIT"
	profile := values{"kerf.dev/profile": "trusted"}
	never := func(section string, v any) values { return values{"admission": values{"mutate": "never", section: v}} }
	for name, c := range map[string]struct {
		set    values
		labels map[string]string
		ask    request
		denied string
	}{
		"a privileged share": {ask: share(nil, nil, strong), denied: baseline},
		"in a namespace that is let off": {labels: map[string]string{"kerf.dev/allow-privileged": "true"},
			ask: share(nil, hostPID, strong)},
		"its host paths are not": {labels: map[string]string{"kerf.dev/allow-privileged": "true"},
			ask: share(nil, volumes("/usr"), strong), denied: notListed},
		"a label of another value": {labels: map[string]string{"kerf.dev/allow-privileged": "allowed"},
			ask: share(nil, nil, strong), denied: baseline},
		"host paths that are let off": {labels: map[string]string{"kerf.dev/allow-host-paths": "true"},
			ask: share(nil, volumes("/usr", "/run/kerf"), nil)},
		"its containers are not": {labels: map[string]string{"kerf.dev/allow-host-paths": "true"},
			ask: share(nil, hostPID, nil), denied: baseline},
		"no one is let off his own limit": {labels: map[string]string{"kerf.dev/allow-host-paths": "true",
			"kerf.dev/allow-privileged": "true"}, ask: share(nil, nil, limited), denied: sets},
		"a profile of the values": {set: never("privilegedProfiles", []any{"trusted"}),
			ask: share(profile, hostPID, strong)},
		"another profile": {set: never("privilegedProfiles", []any{"trusted"}),
			ask: share(values{"kerf.dev/profile": "other"}, nil, strong), denied: baseline},
		"a profile of one container besides": {set: never("privilegedProfiles", []any{"trusted"}),
			ask:    share(values{"kerf.dev/profile": "trusted", "profile.kerf.dev/a": "trusted"}, nil, strong),
			denied: baseline},
		"a capability of the values": {set: never("allowedCapabilities", []any{"IPC_LOCK"}),
			ask: share(nil, nil, lock)},
		"a capability without": {ask: share(nil, nil, lock), denied: "adds capability IPC_LOCK"},
		"a path of the values": {set: never("allowedHostPaths", []any{"/opt/models"}),
			ask: share(nil, volumes("/opt/models/x"), nil)},
		"a path of the default, with values": {set: never("allowedHostPaths", []any{"/opt/models"}),
			ask: share(nil, volumes("/data"), nil), denied: notListed},
		"Kerf's folder, whatever the values say": {set: never("allowedHostPaths", []any{"/opt", "/run"}),
			ask: share(nil, volumes("/opt/kerf/x"), nil), denied: notListed},
		"a folder above it": {set: never("allowedHostPaths", []any{"/opt", "/run"}),
			ask: share(nil, volumes("/run"), nil), denied: notListed},
		"no policies": {set: values{"admission": values{"enabled": false}}, ask: share(nil, hostPID, strong)},
	} {
		t.Run(name, func(t *testing.T) {
			if err := newAPIServer(t, c.set, tenant(c.labels)).ask(t, c.ask).wants(c.denied, ""); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPrivilegedByTheDocument: where the scheduler keeps what profiles allow, a pod that the label marks is judged by
// that.
func TestPrivilegedByTheDocument(t *testing.T) {
	installed := objects(t, made(t, values{}))
	for _, o := range installed {
		if m, is := o.Object.(*corev1.ConfigMap); is && m.Name == "kerf-profiles" {
			m.Annotations = map[string]string{"kerf.dev/sharing-config-hash": "x"}
			m.Data = map[string]string{"trusted": "memory=1 privileged", "plain": "memory=1"}
		}
	}
	s := serving(t, installed, tenant(nil))
	for profile, denied := range map[string]string{
		"trusted": "", "plain": "does not allow a pod beyond the Pod Security baseline",
		"unknown": "does not allow a pod beyond",
	} {
		r := share(values{"kerf.dev/profile": profile}, hostPID, strong)
		r.Object["metadata"].(values)["labels"] = values{"kerf.dev/privileged-by": "profile"}
		if err := s.ask(t, r).wants(denied, ""); err != nil {
			t.Errorf("%s: %v", profile, err)
		}
	}
	unmarked := share(values{"kerf.dev/profile": "trusted"}, hostPID, strong)
	if err := s.ask(t, unmarked).wants("keeps to the Pod Security baseline", ""); err != nil {
		t.Errorf("without the label: %v", err)
	}
}

// TestLargeObjects: the cost of the expressions stays within the API server's budget, also for objects as large as
// there are.
func TestLargeObjects(t *testing.T) {
	s := newAPIServer(t, values{}, tenant(nil))
	var containers, mounts, vols, env []any
	for i := range 100 {
		n := strings.Repeat("x", i%10) + string(rune('a'+i%26)) + string(rune('a'+i/26))
		env = append(env, values{"name": "E" + n, "value": "v"})
		mounts = append(mounts, values{"name": n, "mountPath": "/a/very/long/path/with/many/steps/" + n})
		vols = append(vols, values{"name": n, "hostPath": values{"path": "/data/a/very/long/path/with/many/steps/" +
			n}})
	}
	for i := range 100 {
		containers = append(containers, values{
			"name": "c" + string(rune('a'+i%26)) + string(rune('a'+i/26)), "env": env, "volumeMounts": mounts,
			"resources":       values{"limits": values{"kerf.dev/gpu-memory-gib": "1"}},
			"securityContext": values{"capabilities": values{"add": []any{"CHOWN", "CAP_KILL", "SETUID", "SETGID"}}},
		})
	}
	pod := request{Operation: "CREATE", Resource: "pods",
		Object: values{"spec": values{"containers": containers, "volumes": vols}}}
	if err := s.ask(t, pod).wants("", ""); err != nil {
		t.Errorf("a pod of 100 containers with 100 mounts and variables each: %v", err)
	}
	labels, annotations := values{}, values{}
	var images, attached []any
	for i := range 200 {
		n := "example.com/" + strings.Repeat("x", i%40) + string(rune('a'+i%26)) + string(rune('a'+i/26))
		labels[n], annotations[n] = "v", strings.Repeat("v", 500)
		images = append(images, values{"names": []any{n + "@sha256:" + strings.Repeat("0", 64), n + ":tag"},
			"sizeBytes": i})
		attached = append(attached, values{"name": n, "devicePath": "/dev/x"})
	}
	node := func(change string) values {
		l := values{"kerf.dev/enforcement-level": change}
		maps.Copy(l, labels)
		return values{"metadata": values{"name": ownNode, "labels": l, "annotations": annotations},
			"status": values{"images": images, "volumesAttached": attached}}
	}
	r := request{Operation: "UPDATE", Resource: "nodes", User: "agent", Object: node("driver"), Old: node("reactive")}
	if err := s.ask(t, r).wants("", ""); err != nil {
		t.Errorf("a node with 200 labels, annotations, images and volumes: %v", err)
	}
}
