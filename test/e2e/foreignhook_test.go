// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sourceSpec is the node's CDI spec of nvidia.com/gpu, and foreignSpec another one that some other software put there.
const sourceSpec, foreignSpec = "/etc/cdi/nvidia.json", "/etc/cdi/foreign.json"

// limitHook is the name of NVIDIA's hook that sets a limit from the container's environment.
const limitHook = "apply-cuda-memory-limits"

// nvidiaHook is NVIDIA's program of that version which the machine suite runs, too.
func (e *testCase) nvidiaHook() string {
	e.Helper()
	path := filepath.Join(e.node.env["REPO"], ".cache/bin/nvidia-cdi-hook")
	if _, err := os.Stat(path); err != nil {
		e.Fatalf("%s is missing: run 'make toolkit' (%v)", path, err)
	}
	return path
}

// replaceSpec writes a CDI spec of the node until the test ends, and then puts back what was there.
func (e *testCase) replaceSpec(file, text string) {
	e.Helper()
	path := e.node.path(file)
	before, err := os.ReadFile(path)
	there := err == nil
	e.Cleanup(func() {
		var err error
		if there {
			err = os.WriteFile(path, before, 0o644)
		} else {
			err = os.Remove(path)
		}
		if err != nil {
			e.Error(err)
		}
	})
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		e.Fatal(err)
	}
}

// withHooks is the node's spec with NVIDIA's limit hook on each device, as its toolkit 1.20.1 makes it, and a harmless
// one by which it is seen that Kerf read it.
func (e *testCase) withHooks(hook string) string {
	e.Helper()
	text, err := os.ReadFile(e.node.path(sourceSpec))
	if err != nil {
		e.Fatal(err)
	}
	var spec map[string]any
	if err := json.Unmarshal(text, &spec); err != nil {
		e.Fatal(err)
	}
	add := func(edits map[string]any, name, path string, args ...string) {
		hooks, _ := edits["hooks"].([]any)
		edits["hooks"] = append(hooks, map[string]any{"hookName": name, "path": path, "args": args,
			"env": []string{"NVIDIA_CTK_DEBUG=false"}})
	}
	add(spec["containerEdits"].(map[string]any), "createContainer", e.node.busybox(), "true", "e2e-marker")
	for _, d := range spec["devices"].([]any) {
		device := d.(map[string]any)
		add(device["containerEdits"].(map[string]any), "createRuntime", hook,
			"nvidia-cdi-hook", limitHook, "--driver-root", e.node.env["GPUSIM_DIR"]+"/lib", "--gpu-id",
			device["name"].(string))
	}
	out, err := json.Marshal(spec)
	if err != nil {
		e.Fatal(err)
	}
	return string(out)
}

// raising is a CDI spec with a device that brings no GPU, and a hook that runs after Kerf's and lifts the container's
// limits by NVIDIA's own program, whatever variables the container has. That program needs cgroup v2 at /sys/fs/cgroup,
// and a pid of the container that the node's /proc has: that of the hook itself.
func (e *testCase) raising(hook string) string {
	e.Helper()
	var ids strings.Builder
	for _, g := range e.node.gpus(e.T) {
		ids.WriteString(" --gpu-id " + g.UUID)
	}
	bb := e.node.busybox()
	script := fmt.Sprintf(`read -r P _ </proc/self/stat; B=$(%[1]s mktemp -d) || exit 1
echo '{"process":{"env":["NVIDIA_GPU_MEMORY_REQUEST=1"]}}' >$B/config.json
echo "{\"ociVersion\":\"1.0.2\",\"id\":\"x\",\"status\":\"creating\",\"pid\":$P,\"bundle\":\"$B\"}" |
	%[1]s unshare -m %[1]s sh -c '%[1]s mount -t cgroup2 cgroup2 /sys/fs/cgroup &&
%[2]s %[3]s --driver-root %[4]s/lib%[5]s'`, bb, hook, limitHook, e.node.env["GPUSIM_DIR"], ids.String())
	out, err := json.Marshal(map[string]any{
		"cdiVersion": "0.5.0", "kind": otherResource,
		"devices": []any{map[string]any{"name": "raise", "containerEdits": map[string]any{"hooks": []any{map[string]any{
			"hookName": "createContainer", "path": bb, "args": []string{"sh", "-c", script},
			"env": []string{"TMPDIR=/tmp"},
		}}}}},
	})
	if err != nil {
		e.Fatal(err)
	}
	return string(out)
}

// TestForeignLimitHook: NVIDIA's hook that replaces a container's limit is in no spec of Kerf's, and the variables that
// it takes the limit from are empty, wherever they come from. Where other software of the node lifts the limit all the
// same, the container does not start.
func TestForeignLimitHook(t *testing.T) {
	e := beginWithAgent(t)
	hook := e.nvidiaHook()
	explicit := one("explicit", gibs(2), hold)
	explicit.containers[0].env = map[string]string{"NVIDIA_GPU_MEMORY_LIMIT": "81920"}
	if said := e.refused(explicit); !strings.Contains(said,
		"sets NVIDIA_GPU_MEMORY_LIMIT, in a pod that requests a GPU") {
		t.Errorf("refused with %q", said)
	}
	e.replaceSpec(sourceSpec, e.withHooks(hook))
	derived := func() string {
		text, err := os.ReadFile(e.node.path("/etc/cdi/kerf.dev-gpu.json"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	eventually(e, "Kerf's spec of the new one", func() error {
		if text := derived(); !strings.Contains(text, "e2e-marker") {
			return fmt.Errorf("it is %s", text)
		}
		return nil
	})
	if strings.Contains(derived(), limitHook) {
		t.Error("Kerf's spec has NVIDIA's limit hook")
	}
	const config = "limits"
	if _, err := e.client.CoreV1().ConfigMaps(e.namespace).Create(background(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: config}, Data: map[string]string{"NVIDIA_GPU_MEMORY_REQUEST": "1",
			"NVIDIA_GPU_MEMORY_LIMIT": "81920"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	hidden := one("hidden", gibs(2), "gpuload --json --alloc 4GiB --step 64MiB; "+hold)
	hidden.edit = func(p *corev1.Pod) {
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: config}}}}
	}
	p := e.create(hidden)
	p.running()
	if l := p.loads("main", 1)[0]; l.Error == nil || l.Allocated >= 2*gib {
		t.Errorf("the program got %v", l)
	}
	g := e.grantUsed(p, "main")
	if caps := p.caps("main"); caps[g.Shares[0].GPU] != 2*gib {
		t.Errorf("the driver has %v", caps)
	}
	out, _, err := p.exec("main", "env")
	for _, name := range []string{"NVIDIA_GPU_MEMORY_REQUEST", "NVIDIA_GPU_MEMORY_LIMIT"} {
		if err != nil || !strings.Contains("\n"+out, "\n"+name+"=\n") {
			t.Errorf("%s is not empty: %q, %v", name, out, err)
		}
	}
	p.delete()

	e.replaceSpec(foreignSpec, e.raising(hook))
	e.startOtherPlugin("raise")
	limits := gibs(2)
	limits[otherResource] = "1"
	raised := one("raised", limits, hold)
	raised.restart = corev1.RestartPolicyNever
	q := e.create(raised)
	q.event("Failed", "the driver's limits are not as Kerf set them", "has no limit (cap 2GiB)")
	if o := q.settled(); runs(o) {
		t.Errorf("it runs: %s", describe(o))
	}
}
