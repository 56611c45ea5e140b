// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kerf-gpu/kerf/test/documents"
)

// page is a page of the documentation whose commands the test types in order, as in one shell.
type page struct {
	e   *testCase
	dir string
	// here are names of the page in the place of which those of this cluster are typed.
	here *strings.Replacer
	// set are the variables that were set so far.
	set []string
}

// open reads a page. Its commands run in a folder with deploy/manifests and deploy/variants, like a clone of the
// repository. Only the path of the simulated driver differs.
func (e *testCase) open(name string, not map[string]string, here ...string) (page, string, []documents.Command) {
	e.Helper()
	text, err := os.ReadFile(filepath.Join(e.node.env["REPO"], "docs", name))
	if err != nil {
		e.Fatal(err)
	}
	commands, err := documents.Commands(name, string(text), not)
	if err != nil {
		e.Fatal(err)
	}
	p := page{e: e, dir: e.TempDir(), here: strings.NewReplacer(here...)}
	for _, folder := range []string{"deploy/manifests", "deploy/variants"} {
		files, err := filepath.Glob(filepath.Join(e.node.env["REPO"], folder, "*.yaml"))
		if err = errors.Join(err, os.MkdirAll(filepath.Join(p.dir, folder), 0o755)); err != nil || len(files) == 0 {
			e.Fatalf("%s: %v, %d files", folder, err, len(files))
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err == nil {
				err = os.WriteFile(filepath.Join(p.dir, folder, filepath.Base(file)),
					[]byte(simulatedCaps.Replace(string(data))), 0o644)
			}
			if err != nil {
				e.Fatal(err)
			}
		}
	}
	return p, string(text), commands
}

// types types one command, on the machine of an administrator, or on the node where it belongs there.
func (p *page) types(c documents.Command) result {
	text := p.here.Replace(c.Text)
	if name, _, ok := strings.Cut(text, "="); ok && !strings.ContainsAny(name, " \t") {
		p.set = append(p.set, text)
	}
	if onNode(text) {
		bin, driver := filepath.Join(p.e.node.env["REPO"], "bin"), p.e.node.env["GPUSIM_DIR"]+"/lib"
		return p.e.node.in("env", "PATH="+bin+":"+os.Getenv("PATH"), "LD_LIBRARY_PATH="+driver, "sh", "-euc", text)
	}
	ctx, cancel := context.WithTimeout(background(), commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", strings.Join(append(p.set, text), "\n"))
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+p.e.node.env["KUBECONFIG"],
		"PATH="+strings.Join([]string{filepath.Join(p.e.node.env["REPO"], "bin"), p.e.node.env["BIN"],
			os.Getenv("PATH")}, ":"))
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	return result{out.String(), errOut.String(), err}
}

// onNode says whether a command belongs on the node.
func onNode(text string) bool {
	for _, begin := range []string{"rm ", "kerf run ", "kerf status", "kerf metrics"} {
		if strings.HasPrefix(text, begin) {
			return true
		}
	}
	return false
}

// follow types what can be typed, each command once; it repeats read-only commands until there is something to see. It
// calls after for each.
func (p *page) follow(commands []documents.Command, after func(text string, r result)) {
	p.e.Helper()
	for _, c := range commands {
		if c.Reason != "" {
			p.e.Logf("%s, line %d, is not typed: %s: %s", c.Page, c.Line, c.Text, c.Reason)
			continue
		}
		var r result
		try := func() error {
			if r = p.types(c); r.err != nil {
				return fmt.Errorf("%s, line %d: %s: %v", c.Page, c.Line, c.Text, r)
			}
			return nil
		}
		err := error(nil)
		if looks(c.Text) {
			err = poll("what is shown by "+c.Text, try)
		} else {
			err = try()
		}
		if err != nil {
			p.e.Fatal(err)
		}
		after(c.Text, r)
	}
}

func looks(text string) bool {
	for _, begin := range []string{"kubectl logs ", "kubectl describe ", "kubectl -n kerf-system exec ",
		"kubectl -n kerf-system logs ", "kubectl kerf describe "} {
		if strings.HasPrefix(text, begin) {
			return true
		}
	}
	return false
}

// forPages makes of the images of the pages, and of what they run, what is there.
func forPages() []string {
	return []string{
		"nvcr.io/nvidia/pytorch:25.09-py3", loadImage, "nvidia/cuda:13.0.0-base-ubuntu24.04", loadImage,
		"[nvidia-smi]", "[gpuload, --alloc, 1GiB, --hold, 1h]",
		"python -c 'import torch; print(torch.cuda.mem_get_info())'", "gpuload --json",
		"python train.py", "gpuload --json", "./infer", "gpuload --json", "./job", "gpuload --json", "./pair",
		"gpuload --json",
		"torchrun --nproc-per-node 2 x.py", "gpuload --json",
	}
}

// The commands of docs/operate/install-with-kubectl.md install Kerf, give a pod its share, show and change it, and
// remove all in the end.
func TestKubectlPage(t *testing.T) {
	e := beginWithAgent(t)
	name := e.node.env["NODE_NAME"]
	first := &pod{e: e, name: "first", namespace: "default"}
	label := func(text string) { e.kubectl("", "label", "node", name, "--overwrite", text) }
	t.Cleanup(func() {
		label("nvidia.com/gpu.deploy.device-plugin-")
		if err := e.install(); err != nil {
			t.Error(err)
		}
		e.waitForAgent()
	})
	p, _, commands := e.open("operate/install-with-kubectl.md", documents.Kubectl(),
		append(forPages(), "NODE", name, "registry.example/kerf/agent:dev", agentImage)...)
	t.Cleanup(func() { e.kubectl("", "delete", "pod", "-n", "default", "--ignore-not-found", "first") })
	limited := false
	p.follow(commands, func(text string, r result) {
		switch {
		case strings.HasPrefix(text, "kubectl -n kerf-system rollout status"):
			e.waitForAgent()
		case strings.HasPrefix(text, "kubectl apply -f - <<END"):
			first.running()
			e.wantHeld(first, "main", share(10*gib, 0))
		case strings.Contains(text, "kerf resize "):
			limited = true
			e.wantHeld(first, "main", share(12*gib, 0))
		case strings.HasPrefix(text, "kubectl get pods -A"):
			if !strings.Contains(r.out, "default/first") {
				t.Errorf("who uses Kerf: %q", r.out)
			}
			first.delete()
			first.released()
		case strings.HasPrefix(text, "rm "):
			if left := e.node.in("sh", "-c",
				"ls /opt/kerf /run/kerf /etc/cdi/kerf.dev-* 2>/dev/null; true").out; left != "" {
				t.Errorf("on the node is left: %s", left)
			}
		}
	})
	if !limited {
		t.Error("no grant was changed")
	}
	if r := e.kubectl("", "get", "gpunodes"); r.err == nil {
		t.Errorf("the cluster still knows of GPUNodes: %v", r)
	}
}

// The commands of docs/use/pods.md show what the page says.
func TestPodsPage(t *testing.T) {
	e := withScheduler(t)
	files := e.TempDir()
	here := append(forPages(), "node-1", e.node.env["NODE_NAME"], "-n team", "-n "+e.namespace, "team/train",
		e.namespace+"/train",
		"/etc/bash_completion.d/", files+"/", "/usr/local/bin/", files+"/")
	p, text, commands := e.open("use/pods.md", documents.Pods(), here...)
	_, pod1, _ := strings.Cut(text, "```yaml\n")
	pod1, _, _ = strings.Cut(pod1, "```")
	pod1 = strings.Replace(p.here.Replace(pod1), "image: "+loadImage, "image: "+loadImage+
		"\n    command: [gpuload, --alloc, 1GiB, --hold, 1h]", 1)
	if r := e.kubectl(pod1, "apply", "-n", e.namespace, "-f", "-"); r.err != nil {
		t.Fatal(r)
	}
	train := &pod{e: e, name: "train", namespace: e.namespace}
	e.pods = append(e.pods, train)
	train.running()
	e.wantHeld(train, "main", share(10*gib, 0))
	want := map[string]string{
		"kubectl kerf run ": "total_bytes", "agent=": "", "kubectl -n kerf-system exec ": "",
		"kubectl kerf status ": "train", "kubectl kerf top": "", "kubectl kerf mig status": "",
		"kubectl kerf describe ": "train", "kubectl kerf doctor": e.node.env["NODE_NAME"], "kubectl kerf cordon ": "",
		"kubectl kerf drain ": "", "kubectl kerf uncordon ": "", "kubectl kerf usage": "", "kerf completion ": "",
		"kubectl kerf resize ": "12GiB",
	}
	p.follow(commands, func(text string, r result) {
		if strings.Contains(text, " kerf resize ") {
			e.wantHeld(train, "main", share(12*gib, 0))
		}
		for begin, says := range want {
			if strings.HasPrefix(text, begin) {
				if !strings.Contains(r.out+r.errOut, says) {
					t.Errorf("%s says %v, want %q in it", text, r, says)
				}
				return
			}
		}
		t.Errorf("the expected result of %q is unknown", text)
	})
	for _, file := range []string{"kerf", "kubectl_complete-kerf"} {
		if info, err := os.Stat(filepath.Join(files, file)); err != nil || info.Size() == 0 {
			t.Errorf("completion %s: %v", file, err)
		}
	}
	if list, err := e.client.BatchV1().Jobs(e.namespace).List(background(), metav1.ListOptions{}); err != nil ||
		len(list.Items) != 0 {
		t.Errorf("jobs are left: %v", err)
	}
}

// The commands of docs/use/one-machine.md give programs their amounts.
func TestOneMachinePage(t *testing.T) {
	e := beginWithAgent(t)
	p, _, commands := e.open("use/one-machine.md", documents.OneMachine(), forPages()...)
	total := map[string]uint64{
		"kerf run --memory 10GiB ": 10 * gib, "kerf run --memory 40GiB --gpus 2 ": 20 * gib,
		"kerf run --percent 50 ": 0, "kerf run --gpus 2 ": 0,
	}
	want := map[string]string{"kerf status ": "", "kerf metrics ": "kerf_"}
	p.follow(commands, func(text string, r result) {
		for begin, bytes := range total {
			if !strings.HasPrefix(text, begin) {
				continue
			}
			if got := e.loadOf(r); got.Total == nil || bytes != 0 && *got.Total != bytes {
				t.Errorf("%s: the program sees %v, want %d bytes", text, got, bytes)
			}
			return
		}
		for begin, says := range want {
			if strings.HasPrefix(text, begin) {
				if !strings.Contains(r.out, says) {
					t.Errorf("%s says %v, want %q in it", text, r, says)
				}
				return
			}
		}
		t.Errorf("no result is known for %q", text)
	})
}
