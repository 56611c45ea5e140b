// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// layout says where a node system can be written: below writable, and elsewhere if it is not below readOnly.
// Files below noExec cannot be executed, except below exec.
type layout struct{ readOnly, writable, noExec, exec []string }

// systems has the facts about each node system, by preset. The end-to-end tests make nodes of them.
const systems = deploy + "/../test/e2e/node/systems"

// layoutOf reads the folders of a node system.
func layoutOf(t *testing.T, name string) layout {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(systems, name+".conf"))
	if err != nil {
		t.Fatal(err)
	}
	var l layout
	for key, list := range map[string]*[]string{"READ_ONLY": &l.readOnly, "WRITABLE": &l.writable,
		"NO_EXEC": &l.noExec, "EXEC": &l.exec} {
		_, rest, _ := strings.Cut(string(text), "\n"+key+`="`)
		value, _, _ := strings.Cut(rest, `"`)
		*list = strings.Fields(value)
	}
	return l
}

// below is the length of the longest folder of all that has p.
func below(p string, all []string) int {
	longest := -1
	for _, dir := range all {
		if p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") {
			longest = max(longest, len(dir))
		}
	}
	return longest
}

func (l layout) canWrite(p string) bool { return below(p, l.writable) >= below(p, l.readOnly) }
func (l layout) canRun(p string) bool   { return below(p, l.exec) >= below(p, l.noExec) }

func TestLayoutsTellPathsApart(t *testing.T) {
	cos := layoutOf(t, "cos")
	for p, want := range map[string][2]bool{
		"/opt/kerf": {false, true}, "/home/kubernetes/bin/kerf": {true, true}, "/var/lib/kerf": {true, false},
		"/varlib": {false, true}, "/": {false, true}, "/etc/cdi": {true, true},
	} {
		if got := [2]bool{cos.canWrite(p), cos.canRun(p)}; got != want {
			t.Errorf("%s: write, run: %v, want %v", p, got, want)
		}
	}
}

// presets are those of the chart, by name.
func presets(t *testing.T) map[string]values {
	t.Helper()
	all := map[string]values{}
	for _, file := range filesOf(t, deploy+"/chart/presets", ".yaml") {
		all[file] = read(t, filepath.Join(deploy, "chart/presets", file+".yaml"))
	}
	have, want := slices.Sorted(maps.Keys(all)), filesOf(t, systems, ".conf")
	if len(have) < 11 || !slices.Equal(have, want) {
		t.Fatalf("presets %q, systems %q", have, want)
	}
	return all
}

// filesOf are the files of a folder with an extension, without it, sorted.
func filesOf(t *testing.T, dir, extension string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+extension))
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(filepath.Base(file), extension)
	}
	return files
}

// devicePlugins is kubelet's folder of device plugins, also with another --root-dir.
const devicePlugins = "/var/lib/kubelet/device-plugins"

// fixed are host paths that no value changes. /run is a tmpfs and /var/lib writable on every node system, and the
// kernel has its cgroups in one place.
var fixed = []string{"/run/kerf", "/var/lib/kerf", "/sys/fs/cgroup", devicePlugins}

// named are the host paths that a pool's values give to DaemonSets.
func named(t *testing.T, pool values) []string {
	t.Helper()
	paths, _ := pool["paths"].(values)
	text := func(key string) string {
		s, ok := paths[key].(string)
		if !ok {
			t.Errorf("the preset has no paths.%s", key)
		}
		return s
	}
	library, _ := pool["driverLibrary"].(string)
	all := []string{library, path.Join(path.Dir(library), "libcuda.so.1"), path.Dir(text("runtimeSocket")),
		path.Dir(text("nriSocket")), text("cdi"), text("cdiSource"), text("hook"), text("toolkit"),
		path.Join(text("kubelet"), "pod-resources")}
	defaults, _ := read(t, filepath.Join(deploy, "chart/values.yaml"))["poolDefaults"].(values)
	if want, _ := defaults["paths"].(values); len(paths) != len(want) {
		t.Errorf("the preset has %d paths, the chart %d", len(paths), len(want))
	}
	return all
}

// volumesOf are the host paths that the DaemonSets of the chart mount, with those of the uninstall step.
func volumesOf(t *testing.T, set values) map[string]corev1.HostPathType {
	t.Helper()
	out := map[string]corev1.HostPathType{}
	removing := maps.Clone(set)
	removing["uninstall"] = values{"enabled": true}
	for _, s := range []values{set, removing} {
		for name, d := range byName[*appsv1.DaemonSet](t, s) {
			mounted := map[string]bool{}
			for _, m := range d.Spec.Template.Spec.Containers[0].VolumeMounts {
				if mounted[m.MountPath] {
					t.Errorf("%s mounts %s twice", name, m.MountPath)
				}
				mounted[m.MountPath] = true
			}
			for _, v := range d.Spec.Template.Spec.Volumes {
				if v.HostPath != nil {
					out[v.HostPath.Path] = *v.HostPath.Type
				}
			}
		}
	}
	return out
}

// TestPresets: each preset renders. It names a source and every host path that a DaemonSet mounts. It has no folder
// that is read-only on its node system, and the hook can be executed.
func TestPresets(t *testing.T) {
	for name, set := range presets(t) {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(deploy, "chart/presets", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), "# https://") && !strings.Contains(string(text), " https://") {
				t.Error("it names no source")
			}
			pool, _ := set["poolDefaults"].(values)
			folders := layoutOf(t, name)
			known := append(named(t, pool), fixed...)
			mounts := volumesOf(t, set)
			if len(mounts) < 9 {
				t.Errorf("%d host paths", len(mounts))
			}
			for p, kind := range mounts {
				if !slices.Contains(known, p) {
					t.Errorf("%s is not of the preset", p)
				}
				if kind != corev1.HostPathFile && !folders.canWrite(p) {
					t.Errorf("%s is read-only on this system", p)
				}
			}
			hook, _ := pool["paths"].(values)["hook"].(string)
			if _, ok := mounts[hook]; !ok || !folders.canRun(hook) {
				t.Errorf("nothing in the hook's folder %s can be executed", hook)
			}
		})
	}
}

// elsewhere has every path of a pool in another place than by default.
func elsewhere() values {
	return values{"poolDefaults": values{"driverAccess": "hostLibrary", "driverLibrary": "/x/l/libnvidia-ml.so.1",
		"seLinuxType": "super_t", "paths": values{"kubelet": "/x/k", "runtimeSocket": "/x/r/c.sock",
			"nriSocket": "/x/n/n.sock", "cdi": "/x/c", "cdiSource": "/x/s", "hook": "/x/h", "toolkit": "/x/t"}}}
}

// TestNoPathIsFixed: no default path is left in what is rendered with other paths.
func TestNoPathIsFixed(t *testing.T) {
	removing := elsewhere()
	removing["uninstall"] = values{"enabled": true}
	for _, set := range []values{elsewhere(), removing} {
		for file, text := range made(t, set) {
			if !strings.Contains(text, "kind: DaemonSet") {
				continue
			}
			text = strings.ReplaceAll(text, "path: "+devicePlugins, "")
			for _, p := range []string{"/var/lib/kubelet", "/run/containerd", "/run/nri", "/etc/cdi", "/run/cdi",
				"/opt/kerf", "/etc/nvidia-container-runtime", "/usr/lib/", "spc_t"} {
				if strings.Contains(text, p) {
					t.Errorf("%s has %s", file, p)
				}
			}
		}
	}
	for p := range volumesOf(t, elsewhere()) {
		if !strings.HasPrefix(p, "/x/") && !slices.Contains(fixed, p) {
			t.Errorf("host path %s is fixed", p)
		}
	}
}

// TestPoliciesGuardThePathsOfEachPool: the policies guard the folders of all pools, whichever node a pod comes to.
func TestPoliciesGuardThePathsOfEachPool(t *testing.T) {
	set := values{"pools": []any{values{"name": "default", "nodeSelector": values{"k": "a"}},
		values{"name": "other", "nodeSelector": values{"k": "b"},
			"paths": elsewhere()["poolDefaults"].(values)["paths"]}}}
	for _, p := range byName[*admissionv1.ValidatingAdmissionPolicy](t, set) {
		for _, v := range p.Spec.Variables {
			if v.Name != "guarded" {
				continue
			}
			for _, dir := range []string{"/opt/kerf/", "/x/h/", "/etc/cdi/", "/x/c/", "/run/cdi/", "/x/s/",
				"/var/lib/kubelet/device-plugins/", "/x/k/device-plugins/", "/run/kerf/"} {
				if !strings.Contains(v.Expression, "'"+dir+"'") {
					t.Errorf("%s guards %s and not %s", p.Name, v.Expression, dir)
				}
			}
		}
	}
	s := newAPIServer(t, set, tenant(nil))
	if err := s.ask(t, share(nil, volumes("/x/h/lib"), nil)).wants("not in the list", ""); err != nil {
		t.Error(err)
	}
	other := request{Operation: "CREATE", Resource: "pods", Object: values{"spec": values{
		"containers": []any{values{"name": "a"}}, "volumes": volumes("/x/k/device-plugins")["volumes"]}}}
	if err := s.ask(t, other).wants("", "reaches GPUs past Kerf"); err != nil {
		t.Error(err)
	}
}
