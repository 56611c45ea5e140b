// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// startTaint keeps pods off a node until its agent has proven that they can start there.
const startTaint = "kerf.dev/agent-not-ready"

// rendered is what the chart makes with a set of values of its tests, with the images that were made here.
func (e *testCase) rendered(set string) string {
	e.Helper()
	if set == "cluster" && !e.mutates() {
		set = "cluster-without-mutation"
	}
	return e.renderedFrom(e.node.env["REPO"], set, agentImage, schedulerImage)
}

// A cluster with the installed chart places pods that name only a profile. After the chart is removed, and the
// processes that used a GPU have ended, nothing is left.
func TestChart(t *testing.T) {
	e := beginWithAgent(t)
	e.freshParams()
	t.Cleanup(func() {
		if err := e.install(); err != nil {
			t.Error(err)
		}
		e.waitForAgent()
	})
	all := e.rendered("cluster")
	t.Cleanup(func() { e.kubectl(all, "delete", "--ignore-not-found", "-f", "-") })
	e.taintNode()
	if err := e.apply(all); err != nil {
		t.Fatal(err)
	}
	e.deleteAgent() // the one that comes finds the taint
	e.waitForAgent()
	e.chartReady()
	e.nodeIsLabelled()
	e.helmTest()

	spec := one("named", nil, "exec gpuload --json --alloc 2GiB --hold 1h")
	spec.annotations = map[string]string{"kerf.dev/profile": "e2e-small"}
	if !e.mutates() {
		const fields = `write into resources.limits of container "main": kerf.dev/gpu-memory-gib: "4", kerf.dev/gpu-percent: "10"`
		if said := e.refused(spec); !strings.Contains(said, fields) {
			t.Errorf("refused with %q, want %q", said, fields)
		}
		notes := spec.annotations
		spec = byKerf(one("named", both(gibs(4), percent(10)), "exec gpuload --json --alloc 2GiB --hold 1h"))
		spec.annotations = notes
	}
	p := e.create(spec)
	p.running()
	o, err := e.client.CoreV1().Pods(e.namespace).Get(background(), p.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if o.Spec.SchedulerName != schedulerName {
		t.Errorf("it was placed by %s", o.Spec.SchedulerName)
	}
	e.wantHeld(p, "main", share(4*gib, 10))
	if e.mutates() {
		e.profilesAreLive()
	}
	e.keepsItsLabels()
	unknown := one("unknown", nil, hold)
	unknown.annotations = map[string]string{"kerf.dev/profile": "no-one"}
	if said := e.refused(unknown); !strings.Contains(said, `profile "no-one" has no amounts here`) {
		t.Errorf("refused with %q", said)
	}
	e.removeChart(p, all)
}

// mutates reports whether the API server lets the chart fill in pods.
func (e *testCase) mutates() bool {
	return e.serves("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy")
}

// taintNode is what a cluster does to a node that joins.
func (e *testCase) taintNode() {
	e.Helper()
	if r := e.kubectl("", "taint", "--overwrite", "node", e.node.env["NODE_NAME"],
		startTaint+"=:NoSchedule"); r.err != nil {
		e.Fatal(r)
	}
	e.Cleanup(func() { e.kubectl("", "taint", "node", e.node.env["NODE_NAME"], startTaint+"-") })
}

// chartReady waits for what is not among the manifests.
func (e *testCase) chartReady() {
	e.Helper()
	eventually(e, "monitor and schedulers", func() error {
		m, err := e.client.AppsV1().DaemonSets(kerfNamespace).Get(background(), "kerf-monitor", metav1.GetOptions{})
		if err != nil || m.Status.NumberReady != 1 {
			return fmt.Errorf("monitor: %w, %d ready", errors.Join(err), m.Status.NumberReady)
		}
		d, err := e.client.AppsV1().Deployments(kerfNamespace).Get(background(), schedulerName, metav1.GetOptions{})
		if err != nil || d.Status.ReadyReplicas != 2 {
			return fmt.Errorf("scheduler: %w, %d ready", errors.Join(err), d.Status.ReadyReplicas)
		}
		return nil
	})
}

// helmTest does what "helm test" does: it creates the objects of the chart's test, and wants the pod to succeed.
func (e *testCase) helmTest() {
	e.Helper()
	text, err := os.ReadFile(filepath.Join(e.node.env["REPO"], "tools/chart/testdata/cluster.golden.yaml"))
	if err != nil {
		e.Fatal(err)
	}
	_, part, found := strings.Cut(string(text), "# Source: tests/doctor.yaml\n")
	if !found {
		e.Fatal("the chart has no test")
	}
	part, _, _ = strings.Cut(part, "---\n# Source: ")
	part = anyAgentImage.ReplaceAllString(part, agentImage)
	defer e.kubectl(part, "delete", "--ignore-not-found", "-f", "-")
	if err := e.apply(part); err != nil {
		e.Fatal(err)
	}
	eventually(e, "the end of the chart's test", func() error {
		p, err := e.client.CoreV1().Pods(kerfNamespace).Get(background(), "kerf-test", metav1.GetOptions{})
		if err != nil || p.Status.Phase == corev1.PodSucceeded {
			return err
		}
		if p.Status.Phase == corev1.PodFailed {
			return final("the test says %s", e.kubectl("", "-n", kerfNamespace, "logs", "kerf-test").out)
		}
		return fmt.Errorf("phase %s", p.Status.Phase)
	})
}

// nodeIsLabelled waits for labels and the end of the taint, and tries what an agent's token may not.
func (e *testCase) nodeIsLabelled() {
	e.Helper()
	eventually(e, "labels of the node, and no taint", func() error {
		n, err := e.client.CoreV1().Nodes().Get(background(), e.node.env["NODE_NAME"], metav1.GetOptions{})
		if err != nil {
			return err
		}
		l := n.Labels
		if l["kerf.dev/gpu-model"] == "" || l["kerf.dev/enforcement-level"] != "driver" ||
			l["kerf.dev/mig-capable"] != "true" ||
			l["nvidia.com/gpu.count"] != "8" {
			return fmt.Errorf("labels %v", l)
		}
		if _, there := l["nvidia.com/gpu.present"]; there {
			return final("a label says that NVIDIA's device plugin may come")
		}
		if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == startTaint }) {
			return errors.New("the taint is still there")
		}
		return nil
	})
	name := e.node.env["NODE_NAME"]
	for what, c := range map[string]struct{ token, patch, want string }{
		"another label": {name, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`,
			"say which GPUs it has, and no other"},
		"another node": {"node-2", `{"metadata":{"labels":{"kerf.dev/enforcement-level":"hardware"}}}`,
			"its own node alone"},
		"a taint": {name, `{"spec":{"taints":[{"key":"theirs","effect":"NoSchedule"}]}}`,
			"and change no other"},
		"the start's taint": {name, `{"spec":{"taints":[{"key":"kerf.dev/agent-not-ready","effect":"NoSchedule"}]}}`,
			"and change no other"},
	} {
		_, err := e.asAgent(c.token).CoreV1().Nodes().Patch(background(), name, types.MergePatchType, []byte(c.patch),
			metav1.PatchOptions{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			e.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// keepsItsLabels restarts the agent while a pod has a grant. That grant is all that the agent knows of GPUs until a
// driver answers.
func (e *testCase) keepsItsLabels() {
	e.Helper()
	labels := func() map[string]string {
		n, err := e.client.CoreV1().Nodes().Get(background(), e.node.env["NODE_NAME"], metav1.GetOptions{})
		if err != nil {
			e.Fatal(err)
		}
		return n.Labels
	}
	before := labels()
	e.deleteAgent()
	e.waitForAgent()
	if d := cmp.Diff(before, labels()); d != "" {
		e.Errorf("labels of the node after the agent's restart (-before +now): %s", d)
	}
}

// removeChart goes the way of docs/operate/install.md: agents make room for what empties the nodes, which waits for who
// uses a GPU; then everything is deleted.
func (e *testCase) removeChart(user *pod, all string) {
	e.Helper()
	const remover = "kerf-remove"
	gone := e.rendered("remove")
	e.Cleanup(func() { e.kubectl("", "delete", "--ignore-not-found", "daemonset", "-n", kerfNamespace, remover) })
	if r := e.kubectl("", "delete", "daemonset", "-n", kerfNamespace, agentName, "kerf-monitor"); r.err != nil {
		e.Fatal(r)
	}
	// Of that text only the DaemonSet is new.
	_, only, _ := strings.Cut(gone, "# Source: remove/remove.yaml\n")
	if err := e.apply(only); err != nil {
		e.Fatal(err)
	}
	logs := func() string {
		return e.kubectl("", "logs", "-n", kerfNamespace, "-l", "app.kubernetes.io/name="+remover, "-c", "remove").out
	}
	eventually(e, "the remover names who it waits for", func() error {
		if said := logs(); !strings.Contains(said, e.namespace+"/"+user.name) {
			return fmt.Errorf("it says %q", said)
		}
		return nil
	})
	user.startDeletion()
	eventually(e, "the node to be emptied", func() error {
		d, err := e.client.AppsV1().DaemonSets(kerfNamespace).Get(background(), remover, metav1.GetOptions{})
		if err != nil || d.Status.NumberReady != 1 {
			return fmt.Errorf("%w, %d ready; it says %q", errors.Join(err), d.Status.NumberReady, logs())
		}
		return nil
	})
	for _, args := range [][]string{{"delete", "--ignore-not-found", "-f", "-"},
		{"delete", "daemonset", "-n", kerfNamespace, remover}, {"delete", "namespace", kerfNamespace}} {
		if r := e.kubectl(all, args...); r.err != nil {
			e.Fatal(r)
		}
	}
	e.nothingLeft("/opt/kerf", "/etc/cdi")
}

// nothingLeft looks for what Kerf could have left on the node, with the hook and the CDI specs in these folders, and
// in the cluster.
func (e *testCase) nothingLeft(hook, cdi string) {
	e.Helper()
	files := e.node.in("sh", "-c", `find "$1" /run/kerf /var/lib/kerf ! -type d
		ls "$2" /etc/cdi /run/cdi /var/lib/kubelet/device-plugins | grep kerf
		grep -E " ($1|/run/kerf|/var/lib/kerf)" /proc/self/mountinfo
		true`, "sh", hook, cdi).out
	if files != "" {
		e.Errorf("on the node is left:\n%s", files)
	}
	if l := e.node.limits(e.T); len(l) > 0 {
		e.Errorf("the driver holds %+v", l)
	}
	kinds :=
		"clusterroles,clusterrolebindings,crds,priorityclasses," +
			"validatingadmissionpolicies,validatingadmissionpolicybindings," +
			"leases,configmaps,daemonsets,deployments,rolebindings"
	if e.mutates() {
		kinds += ",mutatingadmissionpolicies,mutatingadmissionpolicybindings"
	}
	if r := e.kubectl("", "get", kinds, "-A", "-o", "name", "-l", "app.kubernetes.io/part-of=kerf"); r.err != nil ||
		r.out != "" {
		e.Errorf("in the cluster is left: %v", r)
	}
	n, err := e.client.CoreV1().Nodes().Get(background(), e.node.env["NODE_NAME"], metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	for k := range n.Labels {
		if k != "kerf.dev/deploy-agent" && (strings.HasPrefix(k, "kerf.dev/") || strings.HasPrefix(k, "nvidia.com/")) {
			e.Errorf("the node has the label %s", k)
		}
	}
}
