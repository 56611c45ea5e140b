// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// hostLibraries is where the variant looks for the driver's libraries on the node.
	hostLibraries = "/usr/lib/x86_64-linux-gnu"
	// plainClass is a runtime class whose handler is not NVIDIA's runtime.
	plainClass = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: e2e-plain}\nhandler: runc\n"
)

// shippedFile is a file of deploy as the tests install it.
func (e *testCase) shippedFile(name string) string {
	e.Helper()
	text, err := os.ReadFile(filepath.Join(e.node.env["REPO"], "deploy", name))
	if err != nil {
		e.Fatal(err)
	}
	return forTests(text)
}

// use installs this DaemonSet in place of the agent's.
func (e *testCase) use(daemonSet string) {
	e.Helper()
	if err := e.apply(daemonSet); err != nil {
		e.Fatal(err)
	}
}

// withDeviceFiles gives a privileged agent what its container runtime gives it on a real node, every device file: the
// simulated ones are sockets, which the runtime leaves out.
func (e *testCase) withDeviceFiles(daemonSet string) string {
	e.Helper()
	names := []string{"nvidiactl"}
	for _, g := range e.node.gpus(e.T) {
		names = append(names, fmt.Sprint("nvidia", g.Minor))
	}
	return mountDevices(daemonSet, e.node.env["GPUSIM_DIR"], names)
}

// mountDevices adds mounts of simulated device files to each container of a DaemonSet.
func mountDevices(daemonSet, dir string, names []string) string {
	var mounts, volumes strings.Builder
	for _, name := range names {
		fmt.Fprintf(&mounts, "        - {name: %s, mountPath: /dev/%s}\n", name, name)
		fmt.Fprintf(&volumes, "      - {name: %s, hostPath: {path: %s/dev/%s, type: Socket}}\n", name, dir, name)
	}
	return strings.NewReplacer("        volumeMounts:\n", "        volumeMounts:\n"+mounts.String(), "      volumes:\n",
		"      volumes:\n"+volumes.String()).Replace(daemonSet)
}

// driverOnHost puts the driver's libraries where a real node has them, until the test ends. This machine's own folder
// is not written to: the node sees another one over it.
func (e *testCase) driverOnHost() {
	e.Helper()
	const dir = "/run/driver-on-host" // on a tmpfs: overlays cannot be stacked high
	e.onNode(
		`mkdir -p "$1" && cp "$2"/libnvidia-ml.so.1 "$2"/libcuda.so.1 "$1" && mount -t overlay overlay -o "lowerdir=$1:$3" "$3"`,
		dir, e.node.env["GPUSIM_DIR"]+"/lib", hostLibraries)
	e.Cleanup(func() { e.onNode(`umount -l "$2" && rm -r "$1"`, dir, hostLibraries) })
}

// agentEvent waits for an event of the agent's pod that has all the words.
func (e *testCase) agentEvent(words ...string) {
	e.Helper()
	eventually(e, fmt.Sprintf("event of the agent's pod with %q", words), func() error {
		list, err := e.client.CoreV1().Events(kerfNamespace).List(background(),
			metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod"})
		if err != nil {
			return err
		}
		var all []string
		for _, ev := range list.Items {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(ev.Message, w) }) {
				return nil
			}
			all = append(all, ev.Message)
		}
		return fmt.Errorf("there are %q", all)
	})
}

// The agent without NVIDIA's runtime, as it is shipped: privileged, with the driver's libraries of the host. It gives
// what it gives in the other setting. In each of the two it is not ready while library or device files do not reach it,
// and says what to do in that setting.
func TestHostLibrary(t *testing.T) {
	e := beginWithAgent(t)
	levels := e.picture().GPUs[0].Levels
	variant, usual := e.shippedFile("variants/privileged.yaml"), e.shippedFile("manifests/30-agent.yaml")
	t.Cleanup(func() {
		e.use(usual)
		e.waitForAgent()
	})

	e.use(variant)
	e.agentEvent("hostPath type check failed", hostLibraries+"/libnvidia-ml.so.1")
	e.driverOnHost()
	eventually(e, "an agent that lacks the device files", func() error {
		return e.blocked("nvmlInit", "modprobe nvidia", "delete this pod")
	})
	e.use(e.withDeviceFiles(variant))
	e.waitForAgent()
	pods, err := e.agentPods()
	if err != nil || len(pods) != 1 {
		t.Fatalf("%d agents, %v", len(pods), err)
	}
	if s := pods[0].Spec; s.RuntimeClassName != nil || s.Containers[0].SecurityContext.Privileged == nil ||
		!*s.Containers[0].SecurityContext.Privileged {
		t.Errorf("the agent that is ready is not the privileged one: %+v", s)
	}
	if now := e.picture().GPUs[0].Levels; !slices.Equal(now, levels) {
		t.Errorf("levels %v, with NVIDIA's runtime they are %v", now, levels)
	}
	p := e.create(one("capped", gibs(10), "gpuload --json --alloc 9GiB; gpuload --json --alloc 11GiB; "+hold))
	p.running()
	lines := p.loads("main", 2)
	if l := lines[0]; l.Error != nil || l.Total == nil || *l.Total != 10*gib {
		t.Errorf("below its cap: %v", l)
	}
	if l := lines[1]; l.Error == nil {
		t.Errorf("past its cap: %v", l)
	}
	e.wantHeld(p, "main", share(10*gib, 0))
	before := e.heldBy(p)

	// A runtime class by which NVIDIA's runtime does not come: the other setting, which lacks everything.
	if err := e.apply(plainClass); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.kubectl(plainClass, "delete", "--ignore-not-found", "-f", "-") })
	e.use(strings.Replace(usual, "runtimeClassName: nvidia", "runtimeClassName: e2e-plain", 1))
	eventually(e, "an agent that lacks the library", func() error {
		return e.blocked("no usable NVIDIA management library", "nvidia-ctk runtime configure", "hostLibrary")
	})
	e.use(usual)
	e.waitForAgent()
	e.wantSame(before, p)
}
