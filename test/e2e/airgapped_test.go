// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kerf-gpu/kerf/test/documents"
)

const (
	installPage = "operate/install.md"
	// releaseRegistry is in a domain that is reserved for examples, so that no DNS server ever has it.
	releaseRegistry = "registry.example"
)

var releaseFiles = flag.String("release", "", "run TestAirGapped alone, on a cluster that begins without Kerf, with "+
	"the files of 'make release' in this folder, whose name is the version")

// airGap is an administrator who has the files of a release, kubectl and helm, and no registry.
type airGap struct {
	*testCase
	version string
	// files has the files of the release and no others. The node sees it, too. bin is in PATH.
	files, bin string
}

// section returns the commands of a section of the installation page, for this release and this node.
func (a *airGap) section(heading string) []documents.Command {
	a.Helper()
	text, err := os.ReadFile(filepath.Join(a.node.env["REPO"], "docs", installPage))
	if err != nil {
		a.Fatal(err)
	}
	part, err := documents.Section(string(text), heading)
	if err != nil {
		a.Fatalf("%s: %v", installPage, err)
	}
	commands, err := documents.Commands(installPage+", "+heading, part, nil)
	if err != nil {
		a.Fatal(err)
	}
	here := strings.NewReplacer("0.1.0", strings.TrimPrefix(a.version, "v"), "/usr/local/bin", a.bin, " NODE ",
		" "+a.node.env["NODE_NAME"]+" ")
	for i := range commands {
		commands[i].Text = here.Replace(commands[i].Text)
	}
	return commands
}

// types types each command in the folder of the files, ctr on the node. It calls after for each.
func (a *airGap) types(commands []documents.Command, after func(text, out string)) {
	a.Helper()
	for _, c := range commands {
		var r result
		if strings.HasPrefix(c.Text, "ctr ") {
			r = a.node.in("env", "-C", a.files, "PATH="+a.node.env["BIN"]+":"+os.Getenv("PATH"), "sh", "-euc", c.Text)
		} else {
			r = a.shell(c.Text)
		}
		if r.err != nil {
			a.Fatalf("%s, line %d: %s: %v", c.Page, c.Line, c.Text, r)
		}
		after(c.Text, r.out)
	}
}

func (a *airGap) shell(text string) result {
	ctx, cancel := context.WithTimeout(background(), commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", text)
	cmd.Dir = a.files
	helm := filepath.Join(a.TempDir(), "helm")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+a.node.env["KUBECONFIG"], "PATH="+a.bin+":"+os.Getenv("PATH"),
		"HELM_CACHE_HOME="+helm, "HELM_CONFIG_HOME="+helm, "HELM_DATA_HOME="+helm)
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	return result{out.String(), errOut.String(), err}
}

// withRelease copies the files to the node, and fails the test if the cluster has Kerf or the node its images.
func withRelease(t *testing.T) *airGap {
	t.Helper()
	e := begin(t)
	a := &airGap{testCase: e, version: filepath.Base(*releaseFiles), bin: t.TempDir(),
		files: e.node.env["E2E_DIR"] + "/node/release"}
	t.Cleanup(func() { _ = os.RemoveAll(a.files) })
	helm := strings.TrimSpace(e.node.do(t, "helm"))
	if err := errors.Join(os.RemoveAll(a.files), os.CopyFS(a.files, os.DirFS(*releaseFiles)),
		os.Symlink(helm, a.bin+"/helm"),
		os.Symlink(e.node.env["BIN"]+"/kubectl", a.bin+"/kubectl")); err != nil {
		t.Fatal(err)
	}
	if r := e.kubectl("", "get", "namespace", kerfNamespace); r.err == nil {
		t.Fatal("the cluster has Kerf already: run node.sh down")
	}
	images := e.node.in(e.node.env["BIN"]+"/ctr", "-n", "k8s.io", "images", "ls", "-q")
	if images.err != nil || strings.Contains(images.out, releaseRegistry) {
		t.Fatalf("images of the node: %v", images)
	}
	if r := e.node.in("getent", "hosts", releaseRegistry); r.err == nil {
		t.Fatalf("%s has an address: %v", releaseRegistry, r)
	}
	return a
}

// A node without a registry gets Kerf from the files of a release, by the commands of the installation page. A pod has
// its cap there, and the page's commands remove Kerf.
func TestAirGapped(t *testing.T) {
	if *releaseFiles == "" {
		t.Skip("it takes the files of a release: 'make e2e-release' runs it")
	}
	a := withRelease(t)
	versions := map[string]string{"kubectl kerf version": "kerf " + a.version + " ",
		"-- kerf-agent --version":     "kerf-agent version " + a.version,
		"-- kerf-scheduler --version": "kerf-scheduler " + a.version + "\n"}
	a.types(a.section("Install without a registry"), func(text, out string) {
		for end, says := range versions {
			if strings.HasSuffix(text, end) {
				delete(versions, end)
				if !strings.Contains(out, says) {
					t.Errorf("%s prints %q, want %q", text, out, says)
				}
			}
		}
	})
	if len(versions) > 0 {
		t.Errorf("%s lacks %v", installPage, versions)
	}
	a.waitForAgent()
	a.onlyImported()
	p := a.create(one("capped", gibs(10), "gpuload --json --alloc 11GiB; exec gpuload --json --alloc 9GiB --hold 1h"))
	p.running()
	a.wantHeld(p, "main", share(10*gib, 0))
	loads := p.loads("main", 2)
	if loads[0].Error == nil || loads[1].Error != nil || loads[1].Total == nil || *loads[1].Total != 10*gib {
		t.Errorf("11 GiB, then 9 GiB, of a cap of 10 GiB: %v", loads)
	}
	if s, err := a.status(); err != nil || s.Version != a.version {
		t.Errorf("the agent reports version %q: %v", s.Version, err)
	}
	a.removes(p)
}

// onlyImported wants each of Kerf's containers to have an image of the release, which kubelet must not pull.
func (a *airGap) onlyImported() {
	a.Helper()
	list, err := a.client.CoreV1().Pods(kerfNamespace).List(background(), metav1.ListOptions{})
	if err != nil {
		a.Fatal(err)
	}
	seen := map[string]bool{}
	for _, p := range list.Items {
		for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
			if !strings.HasPrefix(c.Image, releaseRegistry+"/") || !strings.HasSuffix(c.Image, ":"+a.version) ||
				c.ImagePullPolicy != corev1.PullNever {
				a.Errorf("%s has image %s, pulled %s", p.Name, c.Image, c.ImagePullPolicy)
			}
			seen[c.Image] = true
		}
	}
	if len(seen) != 2 {
		a.Errorf("images %v, want those of agent and scheduler", seen)
	}
}

// removes types the section about removal. The pod ends when the page has listed it.
func (a *airGap) removes(p *pod) {
	a.Helper()
	const enabled = "set uninstall.enabled=true"
	listed, cleaned := false, false
	commands := a.section("Remove")
	for i, c := range commands { // as the page says how to delete them
		commands[i].Text = strings.Replace(c.Text, enabled, enabled+" --set uninstall.deleteAuditLog=true", 1)
	}
	a.types(commands, func(text, out string) {
		switch {
		case strings.HasPrefix(text, "kubectl get pods -A"):
			if listed = strings.Contains(out, p.namespace+"/"+p.name); !listed {
				a.Errorf("the page's list of pods that use Kerf: %q", out)
			}
			p.delete()
			p.released()
		case strings.HasPrefix(text, "kubectl -n kerf-system logs"):
			if cleaned = strings.TrimSpace(out) != ""; !cleaned {
				a.Error("the pod that cleans the node says nothing")
			}
		}
	})
	if !listed || !cleaned {
		a.Errorf("pod listed: %t, node cleaned: %t", listed, cleaned)
	}
	a.nothingLeft("/opt/kerf", "/etc/cdi")
}
