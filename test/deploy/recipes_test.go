// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

const recipes = "../../deploy/recipes"

// asked is what a node in a recipe asks of Kerf.
type asked struct {
	where               string
	limits, annotations map[string]string
}

// asks finds all that asks for GPUs in a YAML file: containers with their pod's annotations, and JupyterHub's profiles.
func asks(n *yaml.Node, annotations map[string]string, where string) (out []asked) {
	value := func(n *yaml.Node, path ...string) *yaml.Node {
		for _, key := range path {
			i := -1
			if n != nil && n.Kind == yaml.MappingNode {
				i = slices.IndexFunc(n.Content, func(c *yaml.Node) bool { return c.Value == key })
			}
			if i < 0 || i%2 != 0 {
				return nil
			}
			n = n.Content[i+1]
		}
		return n
	}
	pairs := func(n *yaml.Node) map[string]string {
		out := map[string]string{}
		if n != nil {
			for i := 0; i+1 < len(n.Content); i += 2 {
				out[n.Content[i].Value] = n.Content[i+1].Value
			}
		}
		return out
	}
	if n.Kind == yaml.MappingNode {
		if a := value(n, "metadata", "annotations"); a != nil {
			annotations = pairs(a)
		}
		if limits := value(n, "resources", "limits"); limits != nil {
			out = append(out, asked{where, pairs(limits), annotations})
		}
		if limits := value(n, "extra_resource_limits"); limits != nil {
			out = append(out, asked{where, pairs(limits), pairs(value(n, "extra_annotations"))})
		}
	}
	for _, c := range n.Content {
		out = append(out, asks(c, annotations, where)...)
	}
	return out
}

// TestRecipes: each file is YAML without a doubled key, and what its pods request, a node would take.
func TestRecipes(t *testing.T) {
	files, err := filepath.Glob(recipes + "/*.yaml")
	if err != nil || len(files) < 9 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for d, n := yaml.NewDecoder(bytes.NewReader(text)), 1; ; n++ {
			var doc yaml.Node
			if err := d.Decode(&doc); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: document %d: %v", file, n, err)
			}
			var plain any // refuses a doubled key
			if err := doc.Decode(&plain); err != nil {
				t.Errorf("%s: document %d: %v", file, n, err)
			}
			for _, a := range asks(&doc, nil, fmt.Sprintf("%s: document %d", file, n)) {
				_, ours, err := sharing.RequestFromResources(a.limits, a.annotations, "main")
				if err != nil {
					t.Errorf("%s: %v", a.where, err)
				}
				if ours {
					found++
				}
			}
		}
		byLimits := !slices.Contains([]string{"karpenter.yaml", "kueue-config.yaml", "kueue-claims.yaml",
			"kueue-claims-config.yaml"}, filepath.Base(file))
		if found == 0 && byLimits {
			t.Errorf("%s requests no GPU", file)
		}
		wantWhatRan(t, filepath.Base(file), string(text))
	}
}

// wantWhatRan requires that a recipe says what it was run with.
func wantWhatRan(t *testing.T, file, text string) {
	t.Helper()
	said, page := whatRan(t, file)
	if strings.Count(text, "\n# "+said+" docs/use/"+page+".md has what it is for") != 1 {
		t.Errorf("%s does not say what it was run with: %q", file, said)
	}
}

// whatRan is what a recipe says that it was run with, and the page that says more.
func whatRan(t *testing.T, file string) (said, page string) {
	t.Helper()
	const kubernetes = `K8S_DEFAULT=(\d+\.\d+)`
	switch {
	case strings.HasPrefix(file, "kueue"):
		return fmt.Sprintf("Run with Kueue %s on Kubernetes %s with simulated GPUs: make e2e-kueue.",
			pinned(t, "kueue/go.mod", `sigs\.k8s\.io/kueue v([\d.]+)\n`), pinned(t, "build.sh", kubernetes)), "kueue"
	case file == "jobset.yaml":
		return fmt.Sprintf("Run with JobSet %s on Kubernetes %s with simulated GPUs: make e2e-neighbors.",
			pinned(t, "jobset/go.mod", `jobset v([0-9.]+)`), pinned(t, "build.sh", kubernetes)), "jobset"
	case file == "karpenter.yaml":
		return fmt.Sprintf("Run with Karpenter %s on Kubernetes %s with simulated GPUs: make e2e-neighbors.",
			pinned(t, "karpenter/go.mod", `karpenter v([0-9.]+)`), pinned(t, "build.sh", kubernetes)), "autoscaling"
	case file == "kuberay.yaml":
		return fmt.Sprintf("Run with the operator of KubeRay %s on Kubernetes %s with simulated GPUs: "+
			"make e2e-neighbors.",
			pinned(t, "kuberay/go.mod", `ray-operator v([0-9.]+)`), pinned(t, "build.sh", kubernetes)), "ray"
	case file == "volcano.yaml":
		return fmt.Sprintf("Run with Volcano %s on Kubernetes %s with simulated GPUs: make e2e-neighbors.",
			pinned(t, "volcano/go.mod", `volcano v([0-9.]+)`), pinned(t, "build.sh", kubernetes)), "volcano"
	case file == "nomad.hcl":
		return fmt.Sprintf("Run with Nomad %s and simulated GPUs: make e2e-neighbors.",
			pinned(t, "../../../tools/nomad/go.mod", `hashicorp/nomad v([0-9.]+) `)), "nomad"
	}
	return "Rendered and validated only: the other side was not run with it.", "other-tools"
}

// pinned is the first group of a pattern in a file of test/e2e/node.
func pinned(t *testing.T, file, pattern string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../e2e/node", file))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(pattern).FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s has no %s", file, pattern)
	}
	return string(found[1])
}

// TestKueueChargesEveryKind: no resource of Kerf's is without its price, and a whole GPU costs as much as its parts
// together.
func TestKueueChargesEveryKind(t *testing.T) {
	text, err := os.ReadFile(recipes + "/kueue-config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Resources struct {
			Transformations []struct {
				Input, Strategy string
				Outputs         map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	price := map[string]string{}
	for _, x := range config.Resources.Transformations {
		if x.Strategy != "Replace" || len(x.Outputs) != 1 || price[x.Input] != "" {
			t.Errorf("%+v", x)
		}
		price[x.Input] = x.Outputs["kerf.dev/credits"]
	}
	want := map[string]string{sharing.ResourceMemory: "1", sharing.ResourcePercent: "800m", sharing.ResourceGPU: "80"}
	for _, profile := range []string{"1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"} {
		name, ok := sharing.MIGResource(profile)
		if !ok {
			t.Fatal(profile)
		}
		want[name] = regexp.MustCompile(`\.(\d+)gb`).FindStringSubmatch(profile)[1]
	}
	if !maps.Equal(price, want) {
		t.Errorf("prices %v, want %v", price, want)
	}
}

// TestRecipesOfCommands: what they run with kerf is a request, and the scripts are ones.
func TestRecipesOfCommands(t *testing.T) {
	text, err := os.ReadFile(recipes + "/nomad.hcl")
	if err != nil {
		t.Fatal(err)
	}
	wantWhatRan(t, "nomad.hcl", string(text))
	set := strings.NewReplacer("${KERF_NOMAD_MEMORY}", "20GiB", "${KERF_NOMAD_GPU}",
		"GPU-01234567-89ab-cdef-0123-456789abcdef", "${NOMAD_ALLOC_ID}", "0f9a2d6c-6a8e-5b1f-94a8-0b6f1d1c2e3f")
	var args []string
	if err := json.Unmarshal([]byte(set.Replace(string(regexp.MustCompile(`(?s)args\s*=\s*(\[.*?\])`).
		FindSubmatch(text)[1]))), &args); err != nil {
		t.Fatal(err)
	}
	flag := func(name string) string { return args[slices.Index(args, name)+1] }
	_, err = sharing.RequestFromFlags(sharing.Flags{Memory: flag("--memory"), UUIDs: []string{flag("--gpu-uuid")},
		Level: flag("--min-enforcement")})
	if err := errors.Join(err, sharing.ValidateName("--name", flag("--name"))); err != nil {
		t.Error(err)
	}
	for _, script := range []string{"slurm-prolog.sh", "slurm-epilog.sh", "slurm-job.sh"} {
		if out, err := exec.CommandContext(t.Context(), "bash", "-n", filepath.Join(recipes,
			script)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", script, err, out)
		}
	}
}
