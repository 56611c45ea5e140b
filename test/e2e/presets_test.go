// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kerf-gpu/kerf/test/documents"
)

// postRender makes this program a post-renderer of Helm. Its value is the folder of the simulated driver, with the
// names of the device files that a privileged pod gets.
var postRender = flag.String("post-render", "", "act as a post-renderer of Helm")

// presets are those that TestPresets installs with. "make e2e-presets" installs with all.
var presets = flag.String("presets", "kubeadm,k3s,cos", "presets that TestPresets installs with")

// renderForSimulator changes what the chart renders: the agent gets the folder of the simulated driver, and privileged
// pods get the simulated device files.
func renderForSimulator(in io.Reader, out io.Writer) int {
	text, err := io.ReadAll(in)
	if err != nil {
		return 1
	}
	words := strings.Fields(*postRender)
	var made strings.Builder
	for part := range strings.SplitAfterSeq(string(anyReadiness.ReplaceAll(text, []byte("${1} 1\n"))), "---\n") {
		switch {
		case strings.Contains(part, "templates/agent/30-agent.yaml"):
			part = simulatedCaps.Replace(part)
			fallthrough
		case strings.Contains(part, "templates/remove/remove.yaml"):
			if strings.Contains(part, "privileged: true") {
				part = mountDevices(part, words[0], words[1:])
			}
		}
		made.WriteString(part)
	}
	if _, err := io.WriteString(out, made.String()); err != nil {
		return 1
	}
	return 0
}

// presetPaths are the values of a preset that the test looks into.
type presetPaths struct {
	PoolDefaults struct {
		Paths struct{ Hook, CDI string }
	}
}

// system is a node with a node system, which has joined the cluster, and the preset for it.
type system struct {
	*testCase
	name   string
	values presetPaths
}

// A new administrator installs Kerf on a node of each system. kubectl kerf doctor names the preset, and the chart with
// the preset serves a pod with a cap. After the removal nothing is left. Each node has sockets and folders where its
// system has them, and the same folders are read-only or noexec.
func TestPresets(t *testing.T) {
	e := begin(t)
	e.freshParams()
	e.withoutManifests()
	t.Cleanup(func() {
		if r := e.kubectl("", "apply", "-f", filepath.Join(e.node.env["CONF"], "cluster.yaml")); r.err != nil {
			t.Error(r)
		}
	})
	e.node.do(t, "helm")
	names := strings.Split(*presets, ",")
	t.Cleanup(func() {
		for number := firstSystem; number < firstSystem+min(2, len(names)); number++ {
			if err := e.endSystem(number); err != nil {
				t.Error(err)
			}
		}
	})
	next := e.startSystem(0, names[0])
	for i, name := range names {
		coming := next
		if i+1 < len(names) {
			next = e.startSystem(i+1, names[i+1])
		}
		up := <-coming
		t.Run(name, func(t *testing.T) {
			s := e.joined(t, name, up)
			if name == "openshift" {
				s.withConstraints()
			}
			s.install()
			s.serves()
			s.remove()
		})
	}
}

// firstSystem and the number after it are the numbers of the nodes with a node system. While a test runs on one, the
// other one ends and starts again with the next system.
const firstSystem = 2

// upSystem is a node that has joined the cluster, or why it has not.
type upSystem struct {
	env string
	err error
}

// startSystem brings the i-th node up with a node system, in the place of the one before the last.
func (e *testCase) startSystem(i int, name string) <-chan upSystem {
	number, done := firstSystem+i%2, make(chan upSystem, 1)
	go func() {
		var s upSystem
		if i >= 2 {
			s.err = e.endSystem(number)
		}
		if s.err == nil {
			_, s.err = e.systemScript(number, name, "up")
		}
		if s.err == nil {
			s.env, s.err = e.systemScript(number, name, "env")
		}
		done <- s
	}()
	return done
}

// endSystem ends a node with a node system.
func (e *testCase) endSystem(number int) error {
	err := e.client.CoreV1().Nodes().Delete(background(), fmt.Sprint("node-", number), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) { // it did not come up
		err = nil
	}
	return errors.Join(err, e.nodeScript(number, "down"))
}

// withoutManifests removes what the tests have installed, until the test ends.
func (e *testCase) withoutManifests() {
	e.Helper()
	texts, err := e.manifests()
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if err := e.cluster.install(); err != nil {
			e.Error(err)
		}
		e.waitForAgent()
	})
	if r := e.kubectl("", "label", "node", e.node.env["NODE_NAME"], "kerf.dev/deploy-agent-"); r.err != nil {
		e.Fatal(r)
	}
	if r := e.kubectl(strings.Join(texts, "\n---\n"), "delete", "--ignore-not-found", "-f", "-"); r.err != nil {
		e.Fatal(r)
	}
}

// joined begins the test of a node that has joined the cluster.
func (e *testCase) joined(t *testing.T, name string, up upSystem) *system {
	t.Helper()
	if up.err != nil {
		t.Fatal(up.err)
	}
	t.Cleanup(func() { // last, so that the next node has no part in a failure
		if t.Failed() {
			e.kubectl("", "label", "node", "-l", "kerf.dev/deploy-agent", "kerf.dev/deploy-agent-")
			command(filepath.Join(e.node.env["BIN"], "helm"), "uninstall", "kerf", "--namespace", kerfNamespace,
				"--kubeconfig", e.node.env["KUBECONFIG"])
			e.kubectl("", "delete", "--ignore-not-found", "crd", "gpunodes.kerf.dev")
		}
	})
	c := *e.cluster
	c.node = &node{script: e.node.script, env: settings(up.env)}
	s := &system{testCase: beginOn(t, &c), name: name}
	text, err := os.ReadFile(s.file())
	if err == nil {
		err = yaml.Unmarshal(text, &s.values)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// file is the preset.
func (s *system) file() string {
	return filepath.Join(s.node.env["REPO"], "deploy/chart/presets", s.name+".yaml")
}

// try types commands of the administrator, as in one shell in the folder of the sources.
func (s *system) try(text string) result {
	p := page{e: s.testCase, dir: s.node.env["REPO"], here: strings.NewReplacer()}
	return p.types(documents.Command{Text: text})
}

// types types commands that must succeed.
func (s *system) types(text string) string {
	s.Helper()
	r := s.try(text)
	if r.err != nil {
		s.Fatalf("%s: %v", text, r)
	}
	return r.out
}

// helm types a command of Helm that changes the release. The simulator's part is added.
func (s *system) helm(command string) {
	s.Helper()
	program, err := os.Executable()
	if err != nil {
		s.Fatal(err)
	}
	devices := s.node.env["GPUSIM_DIR"] + " nvidiactl"
	for _, g := range s.node.gpus(s.T) {
		devices += fmt.Sprint(" nvidia", g.Minor)
	}
	s.types(fmt.Sprintf("helm %s --namespace kerf-system --post-renderer %q --post-renderer-args=-post-render=%q",
		command, program, devices))
}

// install does what docs/operate/install.md and docs/operate/nodes.md say, with the preset that kerf doctor names.
func (s *system) install() {
	s.Helper()
	class := filepath.Join(theNode.env["CONF"], "cluster.yaml")
	if s.node.env["RUNTIME_CLASS"] == "yes" {
		s.types("kubectl apply -f " + class)
	} else {
		s.types("kubectl delete --ignore-not-found runtimeclass nvidia")
	}
	name, file := s.node.env["NODE_NAME"], "deploy/chart/presets/"+s.name+".yaml"
	s.wantPreset(name, file)
	s.types("kubectl apply -f deploy/manifests/00-namespace.yaml")
	s.helm("install kerf deploy/chart -f " + file + " --set image.registry=kerf.test --set-string image.tag=1")
	if _, err := s.client.CoreV1().Nodes().Patch(background(), name, types.StrategicMergePatchType, []byte(nodeLabel),
		metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
	s.waitForAgent()
	eventually(s.testCase, "a node that serves pods", func() error { // the agent reports it a moment later
		if r := s.try("kubectl kerf doctor"); r.err != nil || !strings.Contains(r.out, name+" serves pods") {
			return fmt.Errorf("kubectl kerf doctor: %v", r)
		}
		return nil
	})
	if s.name == "openshift" {
		s.admitted()
	}
	// Kerf admits the Job on its nodes.
	s.wantPreset(name, file)
}

// wantPreset lets kerf doctor examine the node, which has all that the preset names.
func (s *system) wantPreset(node, file string) {
	s.Helper()
	out := s.types("kubectl kerf doctor --node " + node + " --image kerf.test/agent:1")
	s.types("kubectl wait --for=delete pod -A -l app.kubernetes.io/name=kerf-doctor --timeout=60s")
	if !strings.HasPrefix(out, node+" needs preset "+s.name+": ") ||
		!strings.HasSuffix(out, "; the node has the sockets of this preset\n  helm install -f "+file+"\n") {
		s.Fatalf("kubectl kerf doctor prints %q, want preset %s", out, s.name)
	}
}

// serves runs a pod with a cap on the node. It can allocate up to its cap.
func (s *system) serves() {
	s.Helper()
	p := s.create(one("capped", gibs(10), "gpuload --json --alloc 9GiB; gpuload --json --alloc 11GiB; "+hold))
	p.running()
	lines := p.loads("main", 2)
	if l := lines[0]; l.Error != nil || l.Total == nil || *l.Total != 10*gib {
		s.Errorf("9 of 10 GiB: %v", l)
	}
	if l := lines[1]; l.Error == nil {
		s.Errorf("11 of 10 GiB: %v", l)
	}
	s.wantHeld(p, "main", share(10*gib, 0))
	p.delete()
	p.released()
}

// remove goes the way of docs/operate/install.md.
func (s *system) remove() {
	s.Helper()
	s.helm("upgrade kerf deploy/chart --reset-then-reuse-values --set uninstall.enabled=true " +
		"--set uninstall.deleteAuditLog=true")
	s.types("kubectl -n kerf-system rollout status daemonset/kerf-remove --timeout 2m")
	if s.name == "openshift" {
		s.admitted()
	}
	s.types("helm uninstall kerf --namespace kerf-system && kubectl delete crd gpunodes.kerf.dev && " +
		"kubectl delete namespace kerf-system")
	paths := s.values.PoolDefaults.Paths
	s.nothingLeft(paths.Hook, paths.CDI)
	s.types("kubectl label node -l kerf.dev/deploy-agent kerf.dev/deploy-agent-")
}
