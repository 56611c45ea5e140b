// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// runKueue has TestKueue run.
var runKueue = flag.Bool("kueue", false, "run TestKueue, for which Kueue is built: minutes the first time")

const (
	kueueNamespace  = "kueue-system"
	kueueDeployment = "kueue-controller-manager"
	// workloads are Kueue's; Kubernetes has others of this name.
	workloads = "workloads.kueue.x-k8s.io"
	// applyRecipe is the last command of the page: the test applies the recipe without its Job, and for its own
	// namespace.
	applyRecipe = "kubectl apply -f deploy/recipes/kueue.yaml\n"
	applyClaims = "kubectl apply -f deploy/recipes/kueue-claims.yaml\n"
)

var isJob = regexp.MustCompile(`(?m)^kind: Job$`)

// quota is Kueue on the node, with the recipe's configuration, and the recipe's queue in the test's namespace.
type quota struct {
	*testCase
	// job is the recipe's.
	job *batchv1.Job
}

// withQuota installs Kueue as its project has people install it, and then the recipe as docs/use/kueue.md has it, until
// the test ends.
func (e *testCase) withQuota() *quota {
	e.Helper()
	q := &quota{testCase: e, job: &batchv1.Job{}}
	all, recipe := e.operator("kueue"), q.recipe()
	e.Cleanup(func() { q.remove(all, recipe) })
	eventually(e, "Kueue's manifest", func() error { return e.apply(all) })
	e.operatorReady(kueueNamespace, kueueDeployment)
	q.typed("Set it up", applyRecipe, " namespace team ")
	eventually(e, "the recipe", func() error { return e.apply(recipe) })
	return q
}

// typed types the commands of a section of the page without the last one. namespace is how they name the namespace of
// the page, in place of which they get the test's. It is empty if they name none.
func (q *quota) typed(section, last, namespace string) {
	q.Helper()
	page, err := os.ReadFile(filepath.Join(q.node.env["REPO"], "docs/use/kueue.md"))
	if err != nil {
		q.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "\n## "+section+"\n")
	_, after, _ = strings.Cut(after, "\n```\n")
	block, _, _ := strings.Cut(after, "```\n")
	commands, found := strings.CutSuffix(block, last)
	if !found || namespace != "" && strings.Count(commands, namespace) != 1 {
		q.Fatalf("docs/use/kueue.md has other commands than are expected here:\n%s", block)
	}
	ctx, cancel := context.WithTimeout(background(), commandTime)
	defer cancel()
	script := fmt.Sprintf("export KUBECONFIG=%q PATH=%q:$PATH\n", q.node.env["KUBECONFIG"], q.node.env["BIN"]) +
		strings.Replace(commands, " team ", " "+q.namespace+" ", 1)
	shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	shell.Dir = q.node.env["REPO"]
	if out, err := shell.CombinedOutput(); err != nil {
		q.Fatalf("%v:\n%s\n%s", err, script, out)
	}
}

// recipe is the recipe's manifest for the test's namespace, without its Job, which it keeps.
func (q *quota) recipe() string {
	q.Helper()
	text, err := os.ReadFile(filepath.Join(q.node.env["REPO"], "deploy/recipes/kueue.yaml"))
	if err != nil {
		q.Fatal(err)
	}
	var docs []string
	for doc := range strings.SplitSeq(strings.ReplaceAll(string(text), "namespace: team\n", "namespace: "+q.namespace+
		"\n"), "\n---\n") {
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

// remove ends everything in an order in which nothing waits for a finalizer that no controller removes: what Kueue
// counts, the queue, its webhooks, Kueue.
func (q *quota) remove(all, recipe string) {
	if q.Failed() {
		q.Logf("Kueue's last words:\n%s", tail(q.said(), 20))
		q.Logf("what there is:\n%s", q.kubectl("", "get", "clusterqueues,localqueues,jobs,pods,"+workloads, "-n",
			q.namespace, "-o", "wide").out)
	}
	mind := func(r result) {
		if r.err != nil {
			q.Error(r)
		}
	}
	mind(q.kubectl("", "delete", "jobs,pods", "--all", "--wait=false", "-n", q.namespace))
	if err := poll("an end of all that is charged", func() error {
		if r := q.kubectl("", "get", workloads+",pods", "-n", q.namespace, "-o", "name"); r.err != nil || r.out != "" {
			return fmt.Errorf("there are %v", r)
		}
		return nil
	}); err != nil {
		q.Error(err)
	}
	mind(q.kubectl(recipe, "delete", "--ignore-not-found", "--timeout=60s", "-f", "-"))
	for _, kind := range []string{"mutating", "validating"} {
		mind(q.kubectl("", "delete", "--ignore-not-found", kind+"webhookconfiguration",
			"kueue-"+kind+"-webhook-configuration"))
	}
	mind(q.kubectl(all, "delete", "--ignore-not-found", "--timeout=150s", "-f", "-"))
}
