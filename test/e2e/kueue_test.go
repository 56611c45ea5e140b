// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// runKueue has TestKueue run.
var runKueue = flag.Bool("kueue", false, "run TestKueue, for which Kueue is built: minutes the first time")

const (
	kueueNamespace  = "kueue-system"
	kueueDeployment = "kueue-controller-manager"
	kueueImage      = "kerf.test/kueue:1"
	// managed is the label of namespaces in which nothing runs without a queue.
	managed = "kueue.x-k8s.io/managed-namespace"
)

var (
	// The kinds of object that are looked for in a manifest.
	isConfigMap = regexp.MustCompile(`(?m)^kind: ConfigMap$`)
	isJob       = regexp.MustCompile(`(?m)^kind: Job$`)
	// What is otherwise where there is no registry: the image here names no user.
	kueueChanges = map[string]string{
		`(?m)^( +)image: \S+/kueue:\S+$`:    "${1}image: " + kueueImage,
		`(?m)^( +)imagePullPolicy: Always$`: "${1}imagePullPolicy: Never",
		`(?m)^( +)runAsNonRoot: true$`:      "${1}runAsNonRoot: true\n${1}runAsUser: 65532",
	}
)

// quota is Kueue on the node, with the recipe's configuration, and the recipe's queue in the test's namespace.
type quota struct {
	*testCase
	// job is the recipe's.
	job *batchv1.Job
}

// withQuota installs Kueue as its project has people install it, and then the recipe, until the test ends.
func (e *testCase) withQuota() *quota {
	e.Helper()
	q := &quota{testCase: e, job: &batchv1.Job{}}
	program := e.buildKueue()
	q.loadImage(program)
	all, recipe := q.manifest(program+".yaml"), q.recipe()
	e.Cleanup(func() { q.remove(all, recipe) })
	eventually(e, "Kueue's manifest", func() error { return e.apply(all) })
	eventually(e, "Kueue", func() error {
		d, err := e.client.AppsV1().Deployments(kueueNamespace).Get(background(), kueueDeployment, metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != 1 {
			err = fmt.Errorf("%d replicas are ready; it says:\n%s", d.Status.ReadyReplicas, tail(q.said(), 5))
		}
		return err
	})
	label := fmt.Sprintf(`{"metadata":{"labels":{%q:"true"}}}`, managed)
	if _, err := e.client.CoreV1().Namespaces().Patch(background(), e.namespace, types.MergePatchType, []byte(label), metav1.PatchOptions{}); err != nil {
		e.Fatal(err)
	}
	eventually(e, "the recipe", func() error { return e.apply(recipe) })
	return q
}

// buildKueue returns the program; its manifest lies beside it.
func (e *testCase) buildKueue() string {
	e.Helper()
	ctx, cancel := context.WithTimeout(background(), 30*time.Minute) // the first time, on a small machine
	defer cancel()
	build := exec.CommandContext(ctx, e.node.script, "kueue")
	build.Stderr = os.Stderr
	out, err := build.Output()
	if err != nil {
		e.Fatalf("node.sh kueue: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// loadImage makes the image that Kueue's Dockerfile makes: the program alone.
func (q *quota) loadImage(program string) {
	q.Helper()
	root := q.node.env["E2E_DIR"] + "/node/kueue"
	q.Cleanup(func() { _ = os.RemoveAll(root) })
	if out, err := exec.Command("install", "-D", "-m", "0755", program, root+"/manager").CombinedOutput(); err != nil {
		q.Fatalf("%v: %s", err, out)
	}
	q.node.do(q.T, "image", kueueImage, root, "/manager")
}

// manifest is Kueue's with the recipe's configuration.
func (q *quota) manifest(file string) string {
	q.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		q.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(q.node.env["REPO"], "deploy/recipes/kueue-config.yaml"))
	if err != nil {
		q.Fatal(err)
	}
	ours, err := json.Marshal(corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "kueue-manager-config", Namespace: kueueNamespace},
		Data:       map[string]string{"controller_manager_config.yaml": string(config)},
	})
	if err != nil {
		q.Fatal(err)
	}
	var docs []string
	found := 0
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		if isConfigMap.MatchString(doc) && strings.Contains(doc, "\n  name: kueue-manager-config\n") {
			doc, found = string(ours), found+1
		}
		docs = append(docs, doc)
	}
	if found != 1 {
		q.Fatalf("Kueue's manifest has %d times the ConfigMap kueue-manager-config", found)
	}
	all := strings.Join(docs, "\n---\n")
	for what, by := range kueueChanges {
		pattern := regexp.MustCompile(what)
		if n := len(pattern.FindAllString(all, -1)); n != 1 {
			q.Fatalf("Kueue's manifest has %d times %s", n, what)
		}
		all = pattern.ReplaceAllString(all, by)
	}
	return all
}

// recipe is the recipe's manifest for the test's namespace, without its Job, which it keeps.
func (q *quota) recipe() string {
	q.Helper()
	text, err := os.ReadFile(filepath.Join(q.node.env["REPO"], "deploy/recipes/kueue.yaml"))
	if err != nil {
		q.Fatal(err)
	}
	var docs []string
	for doc := range strings.SplitSeq(strings.ReplaceAll(string(text), "namespace: team\n", "namespace: "+q.namespace+"\n"), "\n---\n") {
		if !isJob.MatchString(doc) {
			docs = append(docs, doc)
		} else if err := yaml.Unmarshal([]byte(doc), q.job); err != nil {
			q.Fatal(err)
		}
	}
	if q.job.Name == "" || len(docs) < 3 {
		q.Fatalf("the recipe has %d objects, and the Job %q", len(docs), q.job.Name)
	}
	return strings.Join(docs, "\n---\n")
}

// said is what Kueue has written.
func (q *quota) said() string {
	return q.kubectl("", "logs", "-n", kueueNamespace, "deployment/"+kueueDeployment, "--tail=60").out
}

// remove ends everything in an order in which nothing waits for a finalizer that nobody takes off: what Kueue counts, the
// queue, its webhooks, Kueue.
func (q *quota) remove(all, recipe string) {
	if q.Failed() {
		q.Logf("Kueue's last words:\n%s", tail(q.said(), 20))
		q.Logf("what there is:\n%s", q.kubectl("", "get", "clusterqueues,localqueues,workloads,jobs,pods", "-n", q.namespace, "-o", "wide").out)
	}
	mind := func(r result) {
		if r.err != nil {
			q.Error(r)
		}
	}
	mind(q.kubectl("", "delete", "jobs,pods", "--all", "--wait=false", "-n", q.namespace))
	if err := poll("an end of all that is charged", func() error {
		if r := q.kubectl("", "get", "workloads,pods", "-n", q.namespace, "-o", "name"); r.err != nil || r.out != "" {
			return fmt.Errorf("there are %v", r)
		}
		return nil
	}); err != nil {
		q.Error(err)
	}
	mind(q.kubectl(recipe, "delete", "--ignore-not-found", "--timeout=60s", "-f", "-"))
	for _, kind := range []string{"mutating", "validating"} {
		mind(q.kubectl("", "delete", "--ignore-not-found", kind+"webhookconfiguration", "kueue-"+kind+"-webhook-configuration"))
	}
	mind(q.kubectl(all, "delete", "--ignore-not-found", "--timeout=150s", "-f", "-"))
}
