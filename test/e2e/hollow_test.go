// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kerf-gpu/kerf/api/gpunode"
)

const (
	// hollowKey is the label and the taint of hollow nodes; its value is the test's namespace.
	hollowKey = "e2e/hollow"
	// hollowGiB is what a GPU of theirs gives.
	hollowGiB = 79
	// opaque is a resource that only kube-scheduler accounts for: four for each GPU.
	opaque = "e2e.test/quarter-gpu"
)

// hollow are nodes that are only written down: Nodes, GPUNodes and heartbeats, without machine, kubelet or agent. What
// is bound to one never runs. No pod of another test comes there.
type hollow struct {
	*testCase
	names []string
	gpus  int
	// by is the name of the scheduler for them; server is where it finds the API server, empty for where all do.
	by, server string
	// groups are those of its scheduler; empty for administrators.
	groups []string
}

// hollowNodes makes some, until the test ends.
func (e *testCase) hollowNodes(n, gpus int) *hollow {
	e.Helper()
	h := &hollow{testCase: e, gpus: gpus, by: "by-" + e.namespace}
	for i := range n {
		h.names = append(h.names, fmt.Sprintf("hollow-%s-%04d", e.namespace, i))
	}
	e.Cleanup(h.remove)
	h.all(func(i int, name string) error {
		many := resource.MustParse("1000")
		amount := func(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }
		has := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi"),
			corev1.ResourcePods: many,
			"kerf.dev/gpu":      amount(gpus), "kerf.dev/gpu-percent": amount(100 * gpus),
			"kerf.dev/gpu-memory-gib": amount(hollowGiB * gpus), opaque: amount(4 * gpus),
		}
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{hollowKey: e.namespace,
				corev1.LabelHostname: name}},
			Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: hollowKey, Value: e.namespace,
				Effect: corev1.TaintEffectNoSchedule}}},
			Status: corev1.NodeStatus{Capacity: has, Allocatable: has},
		}
		if _, err := e.client.CoreV1().Nodes().Create(background(), node, metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := h.beat(i, time.Now(), 24*time.Hour); err != nil {
			return err
		}
		return h.tell(i, func(*gpunode.Status) {})
	})
	return h
}

// all does something for each node, some at a time.
func (h *hollow) all(do func(i int, name string) error) {
	h.Helper()
	errs, next := make(chan error), make(chan int)
	const workers = 8
	for range workers {
		go func() {
			var failed error
			for i := range next {
				if err := do(i, h.names[i]); err != nil && failed == nil {
					failed = fmt.Errorf("node %s: %w", h.names[i], err)
				}
			}
			errs <- failed
		}()
	}
	for i := range h.names {
		next <- i
	}
	close(next)
	for range workers {
		if err := <-errs; err != nil {
			h.Error(err)
		}
	}
	if h.Failed() {
		h.FailNow()
	}
}

func (h *hollow) remove() {
	grace := int64(0)
	now := metav1.DeleteOptions{GracePeriodSeconds: &grace}
	// Many take longer than one call may.
	if err := poll("end of its pods", func() error {
		return h.client.CoreV1().Pods(h.namespace).DeleteCollection(background(), now, metav1.ListOptions{})
	}); err != nil {
		h.Error(err)
	}
	for _, name := range h.names {
		// Where the making has failed there is less to remove.
		_ = h.client.CoreV1().Nodes().Delete(background(), name, metav1.DeleteOptions{})
		_ = h.client.CoordinationV1().Leases(kerfNamespace).Delete(background(), "kerf-node-"+name,
			metav1.DeleteOptions{})
		_ = h.client.CoreV1().RESTClient().Delete().AbsPath("/apis/kerf.dev/v1alpha1/gpunodes/" +
			name).Do(background()).Error()
	}
}

// beat renews a node's heartbeat, as of a time, for so long.
func (h *hollow) beat(i int, at time.Time, valid time.Duration) error {
	renewed, seconds, holder := metav1.NewMicroTime(at), int32(valid/time.Second), h.names[i]
	leases := h.client.CoordinationV1().Leases(kerfNamespace)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "kerf-node-" + h.names[i]},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &renewed,
			LeaseDurationSeconds: &seconds},
	}
	if _, err := leases.Create(background(), lease, metav1.CreateOptions{}); err == nil {
		return nil
	}
	body, err := json.Marshal(map[string]any{"spec": lease.Spec})
	if err == nil {
		_, err = leases.Patch(background(), lease.Name, types.MergePatchType, body, metav1.PatchOptions{})
	}
	return err
}

func (h *hollow) gpu(i, g int) string { return fmt.Sprintf("GPU-00000000-0000-0000-%04d-%012d", i, g) }

// tell writes a node's report: all of its GPUs free, but for what change says.
func (h *hollow) tell(i int, change func(*gpunode.Status)) error {
	s := gpunode.Status{AgentVersion: "hollow", Pool: "default", Conditions: isReady(),
		Summary: gpunode.Summary{GPUs: h.gpus}}
	for g := range h.gpus {
		s.GPUs = append(s.GPUs, gpunode.GPU{
			UUID: h.gpu(i, g), Index: g, Model: "Hollow", CapacityBytes: (hollowGiB + 1) * giB,
			AllocatableBytes: hollowGiB * giB, FreeBytes: hollowGiB * giB, FreePercent: 100,
			Health: "healthy", Levels: []string{"driver"},
		})
	}
	change(&s)
	s.Fingerprint = gpunode.Fingerprint(s.Grants)
	object := map[string]any{"apiVersion": gpunode.Group + "/" + gpunode.Version, "kind": gpunode.Kind,
		"metadata": map[string]string{"name": h.names[i]}}
	for _, path := range []string{"", "/status"} {
		if path != "" {
			object["status"] = s
		}
		body, err := json.Marshal(object)
		if err != nil {
			return err
		}
		err = h.client.CoreV1().RESTClient().Patch(types.ApplyPatchType).AbsPath("/apis/kerf.dev/v1alpha1/gpunodes/"+
			h.names[i]+path).
			Param("fieldManager", "hollow").Param("force", "true").Body(body).Do(background()).Error()
		if err != nil {
			return err
		}
	}
	return nil
}

// mustTell is tell for what must work.
func (h *hollow) mustTell(i int, change func(*gpunode.Status)) {
	h.Helper()
	if err := h.tell(i, change); err != nil {
		h.Fatal(err)
	}
}

// holds is a change of a report: the node holds so much for a pod on one GPU.
func (h *hollow) holds(i, g int, p *pod, amount int) func(*gpunode.Status) {
	uid := string(p.get().UID)
	return func(s *gpunode.Status) {
		s.GPUs[g].FreeBytes -= int64(amount) * giB
		s.GPUs[g].GrantedBytes += int64(amount) * giB
		s.Grants = append(s.Grants, gpunode.Grant{ID: uid, PodUID: uid, Container: "main", Level: "driver",
			Shares: []gpunode.Share{{GPU: h.gpu(i, g), MemoryBytes: int64(amount) * giB}}})
	}
}

// pod makes one that only hollow nodes take; node is an index, or -1 for any. annotations come in pairs.
func (h *hollow) pod(name string, limits map[string]string, node int, annotations ...string) *pod {
	h.Helper()
	s := one(name, limits, hold)
	s.annotations = map[string]string{}
	for i := 0; i+1 < len(annotations); i += 2 {
		s.annotations[annotations[i]] = annotations[i+1]
	}
	s.edit = func(p *corev1.Pod) { h.confine(p, node) }
	return h.create(s)
}

func (h *hollow) confine(p *corev1.Pod, node int) {
	p.Spec.SchedulerName = h.scheduler()
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} // no kubelet renews its node lease
	p.Spec.NodeSelector = map[string]string{hollowKey: h.namespace}
	if node >= 0 {
		p.Spec.NodeSelector[corev1.LabelHostname] = h.names[node]
	}
}

// scheduler is the name of the test's own.
func (h *hollow) scheduler() string { return h.by }

// where is the GPU that a pod was bound to.
func (h *hollow) where(p *pod) string {
	h.Helper()
	return p.until("bound", func(o *corev1.Pod) error {
		if o.Spec.NodeName == "" {
			return fmt.Errorf("it waits: %s", describe(o))
		}
		return nil
	}).Annotations[planOf]
}

// started is a scheduler that runs as a process of this machine.
type started struct {
	*exec.Cmd
	log string
}

// runScheduler starts a program with a configuration until the test ends; the words KUBECONFIG in it become a file by
// which it is let in as kerf-scheduler. It serves nothing, unless args say otherwise.
func (h *hollow) runScheduler(program, config string, args ...string) *started {
	h.Helper()
	dir := h.TempDir()
	access, err := clientcmd.LoadFromFile(h.node.env["KUBECONFIG"])
	if err != nil {
		h.Fatal(err)
	}
	groups := h.groups
	if len(groups) == 0 {
		groups = []string{"system:masters"}
	}
	for _, u := range access.AuthInfos {
		u.Impersonate, u.ImpersonateGroups = "system:serviceaccount:"+kerfNamespace+":"+schedulerName, groups
	}
	for _, c := range access.Clusters {
		if h.server != "" {
			c.Server, c.CertificateAuthority, c.CertificateAuthorityData = h.server, "", nil
		}
	}
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			h.Fatal(err)
		}
		return file
	}
	kubeconfig := write("kubeconfig", encoded(h, access))
	args = append([]string{"--config=" + write("scheduler.yaml", strings.ReplaceAll(config, "KUBECONFIG", kubeconfig)),
		"--secure-port=0"}, args...)
	s := &started{exec.Command(program, args...), write("log", "")}
	out, err := os.OpenFile(s.log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		h.Fatal(err)
	}
	s.Stdout, s.Stderr, s.SysProcAttr = out, out, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.Start(); err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() {
		s.end()
		_ = out.Close()
		if text, err := os.ReadFile(s.log); err == nil && h.Failed() {
			h.Logf("the scheduler said: %s", text[max(0, len(text)-8000):])
		}
	})
	return s
}

// end ends it; it may be called twice.
func (s *started) end() {
	if s.ProcessState == nil {
		_ = s.Process.Kill()
		_ = s.Wait()
	}
}

func encoded(t testing.TB, c *clientcmdapi.Config) string {
	t.Helper()
	text, err := clientcmd.Write(*c)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// kerfScheduler is the configuration of deploy/scheduler, for pods of this test alone.
func (h *hollow) kerfScheduler() string {
	h.Helper()
	text, err := os.ReadFile(filepath.Join(h.node.env["REPO"], "deploy/scheduler/20-config.yaml"))
	if err != nil {
		h.Fatal(err)
	}
	return strings.Replace(h.configOf(string(text)), "leaderElect: true", "leaderElect: false", 1)
}

// configOf is the configuration in a ConfigMap, for pods of this test alone.
func (h *hollow) configOf(text string) string {
	h.Helper()
	var m struct{ Data map[string]string }
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		h.Fatal(err)
	}
	rules := filepath.Join(h.TempDir(), "sharing.yaml")
	if err := os.WriteFile(rules, []byte(h.readRules()), 0o600); err != nil {
		h.Fatal(err)
	}
	return strings.NewReplacer("schedulerName: kerf-scheduler", "schedulerName: "+h.scheduler(),
		"sharingConfig: /etc/kerf\n", "sharingConfig: "+rules+"\n",
		"profiles:\n", "clientConnection: {kubeconfig: KUBECONFIG, qps: 1000, burst: 2000}\nprofiles:\n").Replace(
		m.Data["scheduler.yaml"])
}

// giB is a GiB as a GPUNode counts.
const giB = int64(gib)

// isReady are the conditions of a node whose containers can start.
func isReady() []gpunode.Condition {
	return []gpunode.Condition{{Type: gpunode.ConditionReady, Status: gpunode.True}}
}
