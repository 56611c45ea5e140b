// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	kerfNamespace = "kerf-system"
	agentName     = "kerf-agent"
	agentSelector = "app.kubernetes.io/name=kerf-agent"
	agentImage    = "kerf.test/agent:1"
	loadImage     = "kerf.test/gpuload:1"
	// nodeLabel is what the agent's DaemonSet selects nodes by.
	nodeLabel = `{"metadata":{"labels":{"kerf.dev/deploy-agent":"true"}}}`
)

var (
	// anyAgentImage finds the agent's image in a manifest, whatever its tag.
	anyAgentImage = regexp.MustCompile(`kerf\.dev/agent:[\w.-]+`)
	// anyMode finds the pool's mode, and what precedes the list of pools.
	anyMode  = regexp.MustCompile(`\n( +)mode: \w+\n`)
	anyPools = regexp.MustCompile(`\n( +)pools:\n`)
	// anyReadiness finds the period of the readiness probe, which the tests wait for at each start of an agent.
	anyReadiness = regexp.MustCompile(`(readinessProbe:\n(?: +[^\n]+\n){3} +periodSeconds:) \d+\n`)
)

// simulatedCaps shows the agent where the simulated driver has its capability files, which are no device nodes; on a
// real node they are in /proc and /dev.
var simulatedCaps = strings.NewReplacer(
	"        - --run-dir=/run/kerf\n", "        - --run-dir=/run/kerf\n        - --nvidia-caps-root=/run/gpusim\n",
	// The flags of an earlier version.
	"        - --dir=/run/kerf\n", "        - --dir=/run/kerf\n        - --caps-root=/run/gpusim\n",
	"        volumeMounts:\n",
	"        volumeMounts:\n        - {name: gpusim, mountPath: /run/gpusim, readOnly: true}\n",
	"      volumes:\n", "      volumes:\n      - {name: gpusim, hostPath: {path: /run/gpusim, type: Directory}}\n",
)

// keepsModes is the line of the tests' rules by which no GPU's MIG mode follows demand: tests with MIG GPUs count the
// instances of these. TestMIGTurns takes it out.
const keepsModes = "    autoMIGMode: false\n"

// rulesForTests makes of the shipped rules those of the tests: the node offers whole GPUs and shares, and there are
// profiles to name.
func rulesForTests(text []byte) []byte {
	text = anyReadiness.ReplaceAll(text, []byte("${1} 1\n"))
	text = anyMode.ReplaceAll(text, []byte("\n${1}mode: auto\n${1}"+strings.TrimSpace(keepsModes)+"\n"))
	return anyPools.ReplaceAll(text, []byte("\n${1}profiles:\n${1}- {name: e2e-small, memory: 4GiB, percent: 10}\n"+
		"${1}- {name: e2e-pair, memory: 12GiB, gpuCount: 2}\n${1}pools:\n"))
}

// ofCRIO moves the paths of containerd in the agent's manifest to those of CRI-O, as the chart does.
var ofCRIO = strings.NewReplacer("/run/containerd/containerd.sock", "/var/run/crio/crio.sock",
	"/run/containerd", "/var/run/crio")

// forTests makes of a file of deploy what the tests install. It has their image and rules, and the paths of the
// simulated driver and of the container runtime.
func forTests(text []byte) string {
	return forRuntime(simulatedCaps.Replace(string(anyAgentImage.ReplaceAll(rulesForTests(text), []byte(agentImage)))))
}

// forRuntime makes of the agent's manifest that for the container runtime of the node.
func forRuntime(text string) string {
	if theNode.env["E2E_RUNTIME"] == "crio" {
		return ofCRIO.Replace(text)
	}
	return text
}

// cluster is the node's Kubernetes, seen by its administrator.
type cluster struct {
	node   *node
	config *rest.Config
	client kubernetes.Interface
}

func connect(n *node) (*cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", n.env["KUBECONFIG"])
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	config.QPS, config.Burst = 200, 400
	config.Timeout = 30 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return &cluster{node: n, config: config, client: client}, nil
}

// background is a context for one request; the client's own timeout bounds it.
func background() context.Context { return context.Background() }

// kubectl runs it as administrator.
func (c *cluster) kubectl(input string, args ...string) result {
	return commandWith(input, filepath.Join(c.node.env["BIN"], "kubectl"),
		append([]string{"--kubeconfig", c.node.env["KUBECONFIG"]}, args...)...)
}

// apply is what an administrator does with a manifest.
func (c *cluster) apply(text string) error {
	if r := c.kubectl(text, "apply", "--server-side", "--force-conflicts", "-f", "-"); r.err != nil {
		return fmt.Errorf("kubectl apply: %v", r)
	}
	return nil
}

// manifests are the files of deploy/manifests in their order, with the agent's image replaced by ours, and the
// rules by those of the tests.
func (c *cluster) manifests() ([]string, error) {
	files, err := filepath.Glob(filepath.Join(c.node.env["REPO"], "deploy/manifests/*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("there is nothing in deploy/manifests")
	}
	slices.Sort(files)
	var texts []string
	replaced, changed := false, false
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		replaced = replaced || anyAgentImage.Match(text)
		changed = changed || !bytes.Equal(rulesForTests(text), text)
		texts = append(texts, forTests(text))
	}
	if !replaced || !changed {
		return nil, fmt.Errorf("no manifest names an image like %s, or none has the rules (%s, %s)", anyAgentImage,
			anyMode, anyPools)
	}
	return texts, nil
}

// install applies the manifests and makes the node one of Kerf's. An agent whose image has changed under the
// same name is replaced.
func (c *cluster) install() error {
	texts, err := c.manifests()
	if err != nil {
		return fmt.Errorf("install the agent: %w", err)
	}
	for _, text := range texts {
		if err := c.apply(text); err != nil {
			return fmt.Errorf("install the agent: %w", err)
		}
	}
	if r := c.kubectl("", "patch", "node", c.node.env["NODE_NAME"], "-p", nodeLabel); r.err != nil {
		return fmt.Errorf("label the node: %v", r)
	}
	return c.replaceOldAgent()
}

// replaceOldAgent deletes the agent's pod if the image was loaded again after its start.
func (c *cluster) replaceOldAgent() error {
	key, err := os.ReadFile(filepath.Join(c.node.env["E2E_DIR"], "img/agent.key"))
	if err != nil {
		return fmt.Errorf("which agent is it: %w", err)
	}
	mark := filepath.Join(c.node.env["E2E_DIR"], "node/agent-installed.key")
	if old, err := os.ReadFile(mark); err == nil && bytes.Equal(old, key) {
		return nil
	}
	pods, err := c.agentPods()
	if err != nil {
		return err
	}
	for _, p := range pods {
		err := c.client.CoreV1().Pods(kerfNamespace).Delete(background(), p.Name, metav1.DeleteOptions{})
		if err != nil {
			return fmt.Errorf("replace the agent: %w", err)
		}
	}
	return os.WriteFile(mark, key, 0o644)
}

func (c *cluster) agentPods() ([]corev1.Pod, error) {
	list, err := c.client.CoreV1().Pods(kerfNamespace).List(background(),
		metav1.ListOptions{LabelSelector: agentSelector})
	if err != nil {
		return nil, fmt.Errorf("find the agent: %w", err)
	}
	return list.Items, nil
}

// agentReady returns nil when the DaemonSet's one pod is of its newest template and ready.
func (c *cluster) agentReady() error {
	ds, err := c.client.AppsV1().DaemonSets(kerfNamespace).Get(background(), agentName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	s := ds.Status
	if s.ObservedGeneration == ds.Generation && s.DesiredNumberScheduled == 1 && s.UpdatedNumberScheduled == 1 &&
		s.NumberReady == 1 {
		return c.noEndingAgent()
	}
	return fmt.Errorf("DaemonSet %s: %s", agentName, rollout(ds))
}

// noEndingAgent refuses while an agent that is being replaced is still there, and counted as ready.
func (c *cluster) noEndingAgent() error {
	pods, err := c.agentPods()
	if err != nil {
		return err
	}
	for _, p := range pods {
		if p.DeletionTimestamp != nil {
			return fmt.Errorf("%s is ending", p.Name)
		}
	}
	return nil
}

func rollout(ds *appsv1.DaemonSet) string {
	return fmt.Sprintf("generation %d of %d, wanted %d, updated %d, ready %d", ds.Status.ObservedGeneration,
		ds.Generation,
		ds.Status.DesiredNumberScheduled, ds.Status.UpdatedNumberScheduled, ds.Status.NumberReady)
}

// capacity is what the node offers of a resource and what of it may be used.
func (c *cluster) capacity(resource string) (all, usable int64, err error) {
	n, err := c.client.CoreV1().Nodes().Get(background(), c.node.env["NODE_NAME"], metav1.GetOptions{})
	if err != nil {
		return 0, 0, err
	}
	a, u := n.Status.Capacity[corev1.ResourceName(resource)], n.Status.Allocatable[corev1.ResourceName(resource)]
	return a.Value(), u.Value(), nil
}

// dnsName makes a Kubernetes name of a test's.
func dnsName(test string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, strings.TrimPrefix(test, "Test"))
	return strings.Trim(name[:min(len(name), 40)], "-")
}
