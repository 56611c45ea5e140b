// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod that no scheduler of ours has seen, or none at all, is judged and capped by the node.
func TestOtherSchedulers(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	node := e.node.env["NODE_NAME"]
	spec := one("bound", gibs(2), hold)
	spec.edit = func(p *corev1.Pod) { p.Spec.SchedulerName = "someone-elses" }
	bound := e.create(spec)
	spec = one("fixed", gibs(2), hold)
	spec.edit = func(p *corev1.Pod) { p.Spec.NodeName = node }
	fixed := e.create(spec)
	spec = one("too-much", gibs(700), hold)
	spec.edit = func(p *corev1.Pod) { p.Spec.NodeName = node }
	tooMuch := e.create(spec)
	if o := bound.get(); o.Spec.NodeName != "" {
		t.Errorf("it was bound to %s", o.Spec.NodeName)
	}
	err := e.client.CoreV1().Pods(e.namespace).Bind(background(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: bound.name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bound.running()
	fixed.running()
	e.wantHeld(bound, "main", share(2*gib, 0))
	e.wantHeld(fixed, "main", share(2*gib, 0))
	if o := tooMuch.phase(corev1.PodFailed); !strings.Contains(o.Status.Reason+o.Status.Message,
		"kerf.dev/gpu-memory-gib") {
		t.Errorf("kubelet does not tell what there is too little of: %s", describe(o))
	}
	if all := e.grantsOf(tooMuch); len(all) > 0 {
		t.Errorf("it holds %+v", all)
	}
}

// canary is a library that tells of each program into which it was loaded.
const canary = `
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void fired(void)
{
	char name[64];
	int from = open("/proc/self/comm", O_RDONLY), to = open(FIRED, O_WRONLY | O_CREAT | O_APPEND, 0666);
	ssize_t n = read(from, name, sizeof name);
	if (n > 0 && write(to, name, (size_t)n) != n)
		_exit(1);
	close(from);
	close(to);
}
`

// No process that runs as root on the node loads the libraries that a pod names for its own dynamic loader.
func TestPreloadStaysInThePod(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	dir := t.TempDir() // the node sees this machine's /tmp
	source, library, fired := filepath.Join(dir, "canary.c"), filepath.Join(dir, "canary.so"),
		filepath.Join(dir, "fired")
	if err := os.WriteFile(source, []byte(canary), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := command("gcc", "-shared", "-fPIC", `-DFIRED="`+fired+`"`, "-o", library, source); r.err != nil {
		t.Fatalf("build the canary: %v", r)
	}
	if r := e.node.in("env", "LD_PRELOAD="+library, "/bin/true"); r.err != nil {
		t.Fatalf("run the canary: %v", r)
	}
	if text, err := os.ReadFile(fired); err != nil || !strings.Contains(string(text), "true") {
		t.Fatalf("the canary does not sing: %q, %v", text, err)
	}
	if err := os.Remove(fired); err != nil {
		t.Fatal(err)
	}
	spec := one("preload", gibs(2), hold)
	spec.runtimeClass = "nvidia"
	spec.containers[0].env = map[string]string{
		"LD_PRELOAD": library, "LD_AUDIT": library, "LD_LIBRARY_PATH": dir,
		"KERF_DIR": dir, "KERF_GRANT": "k-0000000000", "KERF_MEMORY_BYTES": "1099511627776",
		"NVIDIA_VISIBLE_DEVICES": "all",
	}
	p := e.create(spec)
	p.running()
	g := e.grantUsed(p, "main")
	if caps := p.caps("main"); caps[g.Shares[0].GPU] != 2*gib {
		t.Errorf("the driver holds %v", caps)
	}
	out, _, err := p.exec("main", "env")
	for _, line := range []string{"KERF_GRANT=" + g.ID, "KERF_MEMORY_BYTES=2147483648", "NVIDIA_VISIBLE_DEVICES=void"} {
		if err != nil || !strings.Contains("\n"+out, "\n"+line+"\n") {
			t.Errorf("its environment has no %s: %q, %v", line, out, err)
		}
	}
	p.delete()
	if text, err := os.ReadFile(fired); err == nil {
		t.Errorf("the pod's library was loaded on the node by %q", text)
	}
}

// A debug container in a pod with a grant sees no GPU, whatever its spec says. Kerf refuses a privileged one.
func TestDebugContainer(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	spec := one("debugged", gibs(2), hold)
	spec.runtimeClass = "nvidia"
	p := e.create(spec)
	p.running()
	before := e.wantHeld(p, "main", share(2*gib, 0))
	debug := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debug", Image: loadImage, ImagePullPolicy: corev1.PullNever,
		Command: []string{"/bin/sh", "-c", look + "; echo end"},
		Env:     []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}},
	}}
	strong := debug
	strong.Name, strong.SecurityContext = "strong", &corev1.SecurityContext{Privileged: new(true)}
	add := func(c corev1.EphemeralContainer) error {
		o := p.get()
		o.Spec.EphemeralContainers = append(o.Spec.EphemeralContainers, c)
		_, err := e.client.CoreV1().Pods(p.namespace).UpdateEphemeralContainers(background(), p.name, o,
			metav1.UpdateOptions{})
		return err
	}
	if err := add(strong); err == nil || !strings.Contains(err.Error(), "could take off its own cap") {
		t.Errorf("a privileged debug container: %v", err)
	}
	tracing := debug
	tracing.Name, tracing.SecurityContext = "tracing",
		&corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_PTRACE"}}}
	if err := add(tracing); err == nil ||
		!strings.Contains(err.Error(), `container "tracing" adds capability SYS_PTRACE`) {
		t.Errorf("a debug container that may trace: %v", err)
	}
	if err := add(debug); err != nil {
		t.Fatal(err)
	}
	p.logged("debug", "end\n")
	if sizes, files := e.seen(p.logs("debug")); len(sizes)+len(files) > 0 {
		t.Errorf("the debug container sees %d, %q", sizes, files)
	}
	if now := e.wantHeld(p, "main", share(2*gib, 0)); now.ID != before.ID {
		t.Errorf("it had %+v, and has %+v", before, now)
	}
}
