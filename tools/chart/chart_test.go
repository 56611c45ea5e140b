// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	apps "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

const deploy = "../../deploy"

var update = flag.Bool("update", false, "write the golden files again")

// read is a file of values.
func read(t *testing.T, file string) values {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := values{}
	if err := yaml.Unmarshal(text, &out); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return out
}

// made renders the chart with values.
func made(t *testing.T, set values) map[string]string {
	t.Helper()
	files, err := render(filepath.Join(deploy, "chart"), namespace, set)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestGolden holds what the chart makes to what was looked at: all of it for the chart's own values, and for each other
// set of values what differs from that.
func TestGolden(t *testing.T) {
	plainly := made(t, values{})
	golden(t, "default", joined(plainly))
	// whole, since the end-to-end suite applies it
	golden(t, "cluster", joined(made(t, read(t, "testdata/cluster.yaml"))))
	golden(t, "cluster-without-mutation", joined(rendered(t, "v1.32.9", read(t, "testdata/cluster.yaml"))))
	sets, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range sets {
		name, isSet := strings.CutSuffix(filepath.Base(file), ".yaml")
		if !isSet || name == "cluster" || strings.HasSuffix(name, ".golden") {
			continue
		}
		differs := made(t, read(t, file))
		for f, text := range plainly {
			switch differs[f] {
			case text:
				delete(differs, f)
			case "":
				differs[f] = "# is not there\n"
			}
		}
		golden(t, name, joined(differs))
	}
}

func golden(t *testing.T, name, text string) {
	t.Helper()
	said, err := compare("testdata/"+name+".golden.yaml", text, *update)
	if err != nil {
		t.Fatal(err)
	}
	if said != "" {
		t.Errorf("%s: %s; look at it, then 'go test ./... -update' in tools/chart", name, said)
	}
}

func TestManifestsAreTheCharts(t *testing.T) {
	if err := manifests(deploy, false); err != nil {
		t.Error(err)
	}
}

// object is one of what was rendered.
type object struct {
	file string
	metav1.Object
}

// objects reads what was rendered as the API server does: unknown fields and doubled keys are errors.
func objects(t *testing.T, files map[string]string) []object {
	t.Helper()
	reader := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var out []object
	for _, file := range slices.Sorted(maps.Keys(files)) {
		for doc := range strings.SplitSeq(files[file], "\n---\n") {
			var head struct {
				APIVersion string `yaml:"apiVersion"`
				Kind       string
				Metadata   struct {
					Name, Namespace string
					Labels          map[string]string
				}
			}
			if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			// Kinds that other projects define, and the API machinery's own.
			if g, _, _ := strings.Cut(head.APIVersion, "/"); slices.Contains([]string{"monitoring.coreos.com",
				"apiextensions.k8s.io", "security.openshift.io"}, g) {
				out = append(out, object{file, &metav1.PartialObjectMetadata{
					TypeMeta: metav1.TypeMeta{APIVersion: head.APIVersion, Kind: head.Kind},
					ObjectMeta: metav1.ObjectMeta{Name: head.Metadata.Name, Namespace: head.Metadata.Namespace,
						Labels: head.Metadata.Labels},
				}})
				continue
			}
			o, _, err := reader.Decode([]byte(doc), nil, nil)
			if err != nil {
				t.Fatalf("%s: %v\n%s", file, err, doc)
			}
			out = append(out, object{file, o.(metav1.Object)})
		}
	}
	return out
}

func TestEveryObjectIsSound(t *testing.T) {
	for name, set := range map[string]values{
		"default": {}, "all": read(t, "testdata/all.yaml"), "least": read(t, "testdata/least.yaml"),
		"cluster": read(t, "testdata/cluster.yaml"),
		"remove":  read(t, "testdata/remove.yaml"), "remove-pools": read(t, "testdata/remove-pools.yaml"),
	} {
		seen := map[string]bool{}
		for _, o := range objects(t, made(t, set)) {
			kind := ""
			if r, ok := o.Object.(runtime.Object); ok {
				kind = r.GetObjectKind().GroupVersionKind().String()
			}
			key := kind + " " + o.GetNamespace() + "/" + o.GetName()
			if seen[key] {
				t.Errorf("%s: %s: a second %s", name, o.file, key)
			}
			seen[key] = true
			if o.GetLabels()["app.kubernetes.io/part-of"] != "kerf" {
				t.Errorf("%s: %s: %s has no label by which it is found", name, o.file, key)
			}
			d, ok := o.Object.(*apps.DaemonSet)
			if !ok {
				continue
			}
			if u := d.Spec.UpdateStrategy.RollingUpdate; u == nil || u.MaxSurge.String() != "0" {
				t.Errorf("%s: %s: two at a time on one node: %+v", name, key, u)
			}
			if len(d.Spec.Template.Spec.NodeSelector) == 0 {
				t.Errorf("%s: %s goes to every node", name, key)
			}
			for k, v := range d.Spec.Selector.MatchLabels {
				if d.Spec.Template.Labels[k] != v {
					t.Errorf("%s: %s does not select its own pods", name, key)
				}
			}
		}
	}
}
