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
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// runNeighbors has the tests of other projects' controllers run.
var runNeighbors = flag.Bool("neighbors", false, "run the tests of programs of other projects, and build these")

var isDeployment = regexp.MustCompile(`(?m)^kind: Deployment$`)

// buildOperator returns the program of a controller of another project; its manifest lies next to it.
func (e *testCase) buildOperator(name string) string {
	e.Helper()
	ctx, cancel := context.WithTimeout(background(), 30*time.Minute) // the first time, on a small machine
	defer cancel()
	build := exec.CommandContext(ctx, e.node.script, "operator", name)
	build.Stderr = os.Stderr
	out, err := build.Output()
	if err != nil {
		e.Fatalf("node.sh operator %s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

// runsController runs a controller of another project as a program of this machine until the test ends.
func (e *testCase) runsController(program string, args ...string) {
	e.Helper()
	name := filepath.Base(program)
	out, err := os.Create(filepath.Join(e.TempDir(), name+".log"))
	if err != nil {
		e.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.node.env["KUBECONFIG"], "SYSTEM_NAMESPACE=kube-system")
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(out.Name()); e.Failed() && err == nil {
			e.Logf("the log of %s:\n%s", name, tail(string(text), 40))
		}
	})
}

// operator builds a controller of another project, and loads an image of it into the node. It returns what its project
// has people apply, with that image.
func (e *testCase) operator(name string) string {
	e.Helper()
	program, image := e.buildOperator(name), "kerf.test/"+name+":1"
	root := e.node.env["E2E_DIR"] + "/node/" + name
	e.Cleanup(func() { _ = os.RemoveAll(root) })
	if out, err := exec.Command("install", "-D", "-m", "0755", program, root+"/manager").CombinedOutput(); err != nil {
		e.Fatalf("%v: %s", err, out)
	}
	e.node.do(e.T, "image", image, root, "/manager")
	text, err := os.ReadFile(program + ".yaml")
	if err != nil {
		e.Fatal(err)
	}
	all, err := withImage(string(text), image)
	if err != nil {
		e.Fatalf("manifest of %s: %v", name, err)
	}
	return all
}

// withImage is a manifest of one Deployment, which then takes an image of this machine that names no user.
func withImage(manifest, image string) (string, error) {
	docs, found := strings.Split(manifest, "\n---\n"), 0
	for i, doc := range docs {
		if !isDeployment.MatchString(doc) {
			continue
		}
		found++
		var d appsv1.Deployment
		if err := yaml.Unmarshal([]byte(doc), &d); err != nil {
			return "", err
		}
		spec := &d.Spec.Template.Spec
		if len(spec.Containers) != 1 {
			return "", fmt.Errorf("%d containers in Deployment %s, want 1", len(spec.Containers), d.Name)
		}
		spec.Containers[0].Image, spec.Containers[0].ImagePullPolicy = image, corev1.PullNever
		if spec.SecurityContext == nil {
			spec.SecurityContext = &corev1.PodSecurityContext{}
		}
		spec.SecurityContext.RunAsUser = new(int64(65532))
		text, err := json.Marshal(d)
		if err != nil {
			return "", err
		}
		docs[i] = string(text)
	}
	if found != 1 {
		return "", fmt.Errorf("%d Deployments, want 1", found)
	}
	return strings.Join(docs, "\n---\n"), nil
}

// operatorReady waits until a controller serves.
func (e *testCase) operatorReady(namespace, deployment string) {
	e.Helper()
	eventually(e, deployment, func() error {
		d, err := e.client.AppsV1().Deployments(namespace).Get(background(), deployment, metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != 1 {
			err = fmt.Errorf("%d replicas are ready; it says:\n%s", d.Status.ReadyReplicas,
				tail(e.kubectl("", "logs", "-n", namespace, "deployment/"+deployment, "--tail=60").out, 5))
		}
		return err
	})
}

// withOperator installs a controller until the test ends. What it owns in the test's namespace, by kind, is deleted
// first, then its webhooks. Else objects would wait for a finalizer that no controller removes.
func (e *testCase) withOperator(name, namespace, deployment string, kinds string) {
	e.Helper()
	all := e.operator(name)
	e.Cleanup(func() {
		for _, args := range [][]string{{"delete", kinds, "--all", "--timeout=60s", "-n", e.namespace},
			{"delete", "pods", "--all", "--timeout=60s", "-n", e.namespace},
			{"delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "-l",
				"app.kubernetes.io/name=" + name}} {
			if r := e.kubectl("", args...); r.err != nil {
				e.Error(r)
			}
		}
		if r := e.kubectl(all, "delete", "--ignore-not-found", "--timeout=150s", "-f", "-"); r.err != nil {
			e.Error(r)
		}
	})
	eventually(e, "the manifest of "+name, func() error {
		if r := e.kubectl(all, "apply", "--server-side", "--force-conflicts", "-f", "-"); r.err != nil {
			return r.err
		}
		return nil
	})
	e.operatorReady(namespace, deployment)
}

// pageBlock is the n-th block of commands of a page, from 0: the lines between two lines of three backquotes.
func (e *testCase) pageBlock(page string, n int) string {
	e.Helper()
	text, err := os.ReadFile(filepath.Join(e.node.env["REPO"], page))
	if err != nil {
		e.Fatal(err)
	}
	var blocks []string
	inside, commands := false, false
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = !inside
			if commands = inside && line == "```\n"; commands {
				blocks = append(blocks, "")
			}
		case commands:
			blocks[len(blocks)-1] += line
		}
	}
	if n >= len(blocks) {
		e.Fatalf("%s has %d blocks of commands", page, len(blocks))
	}
	return blocks[n]
}

// typePage types commands of a page with kubectl and its plugin kerf in PATH, and with the test's namespace in place of
// "team". It returns what they printed.
func (e *testCase) typePage(commands string) string {
	e.Helper()
	ctx, cancel := context.WithTimeout(background(), 3*time.Minute)
	defer cancel()
	env, plugins := e.node.env, e.TempDir()
	if err := os.Symlink(filepath.Join(env["REPO"], "bin/kerf"), filepath.Join(plugins, "kubectl-kerf")); err != nil {
		e.Fatal(err)
	}
	script := fmt.Sprintf("export KUBECONFIG=%q PATH=%q:%q:$PATH\n", env["KUBECONFIG"], env["BIN"], plugins) +
		strings.ReplaceAll(commands, " -n team", " -n "+e.namespace)
	shell := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	shell.Dir = env["REPO"]
	out, err := shell.CombinedOutput()
	if err != nil {
		e.Fatalf("%v:\n%s\n%s", err, script, out)
	}
	return string(out)
}
