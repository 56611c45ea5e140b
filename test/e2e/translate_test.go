// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kerf-gpu/kerf/sharing/translate"
	"github.com/kerf-gpu/kerf/sharing/translate/translatetest"
)

// translatePolicies is the file of the chart that translates.
const translatePolicies = "mutation/translate.yaml"

// translatedNote is the annotation that says what was rounded up.
const translatedNote = "kerf.dev/translated-from"

// warnings are those that the API server gave with its answers.
type warnings struct {
	mu  sync.Mutex
	all []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// warnedOf is the warnings that the pod's creator gets.
func (e *testCase) warnedOf(p *corev1.Pod) string {
	e.Helper()
	config, heard := rest.CopyConfig(e.config), &warnings{}
	config.WarningHandler = heard
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		e.Fatal(err)
	}
	if _, err := client.CoreV1().Pods(p.Namespace).Create(background(), p,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		e.Fatal(err)
	}
	heard.mu.Lock()
	defer heard.mu.Unlock()
	return strings.Join(heard.all, "\n")
}

// Where a namespace wants it, the API server makes of a pod that was written for another tool what "kerf translate"
// makes of it: one table is tried on both. Another namespace's pods stay as they are.
func TestTranslateAtAdmission(t *testing.T) {
	e := begin(t)
	label := fmt.Sprintf(`{"metadata":{"labels":{"kerf.dev/translate":"true","e2e":%q}}}`, e.namespace)
	if _, err := e.client.CoreV1().Namespaces().Patch(background(), e.namespace, types.MergePatchType, []byte(label),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	other := e.otherNamespace()
	tried := 0
	for _, set := range []struct {
		name    string
		options translate.Options
		// sign shows that this set of policies is active, for a pod that requests one replica.
		sign string
	}{
		{"translate", translate.Options{}, "says no size"},
		{"three", translate.Options{Replicas: 3}, "33"},
		{"replicas", translate.Options{Replicas: 4, SharedByName: true}, "25"},
	} {
		options := set.options
		text := e.translator(set.name)
		t.Cleanup(func() { e.kubectl(text, "delete", "--ignore-not-found", "-f", "-") })
		if err := e.apply(text); err != nil {
			t.Fatal(err)
		}
		replica := e.podOf(translatetest.Case{
			Pod: translate.Pod{Containers: []translate.Container{{Name: translatetest.Main,
				Limits: map[string]string{"nvidia.com/gpu.shared": "1"}}}}})
		eventually(e, "the policies of "+set.name, func() error {
			made, err := e.client.CoreV1().Pods(e.namespace).Create(background(), replica,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil && strings.Contains(err.Error(), set.sign) {
				return nil
			}
			if err == nil {
				if q := made.Spec.Containers[0].Resources.Limits["kerf.dev/gpu-percent"]; q.String() == set.sign {
					return nil
				}
				err = errors.New("it is taken otherwise")
			}
			return err
		})
		// The policy that refuses may be active before the one that translates.
		first := slices.IndexFunc(translatetest.Cases(),
			func(c translatetest.Case) bool { return c.Options == options && len(c.Limits) > 0 })
		eventually(e, "the translation by "+set.name,
			func() error { return e.translated(translatetest.Cases()[first]) })
		for _, c := range translatetest.Cases() {
			if c.Options != options {
				continue
			}
			tried++
			if err := e.translated(c); err != nil {
				t.Errorf("%s, with %+v: %v", c.Name, options, err)
			}
		}
	}
	if all := len(translatetest.Cases()); tried != all {
		t.Errorf("%d of %d pods of the table were tried", tried, all)
	}
	gpumem := func(mib string) *corev1.Pod {
		return e.podOf(translatetest.Case{
			Pod: translate.Pod{Containers: []translate.Container{{Name: translatetest.Main,
				Limits: map[string]string{"nvidia.com/gpumem": mib}}}}})
	}
	eventually(e, "the warning of who requests 3000 MiB", func() error {
		if got := e.warnedOf(gpumem("3000")); !strings.Contains(got,
			"more of a GPU than it was written for: container main: 3000MiB per GPU is rounded up to 3GiB") {
			return fmt.Errorf("warnings %q", got)
		}
		return nil
	})
	if got := e.warnedOf(gpumem("4096")); strings.Contains(got, "rounded up") {
		t.Errorf("who requests 4096 MiB is warned: %s", got)
	}
	plain := e.podOf(translatetest.Cases()[1])
	plain.Namespace = other
	made, err := e.client.CoreV1().Pods(other).Create(background(), plain,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || made.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"] != resource.MustParse("2") {
		t.Errorf("in a namespace that does not want it: %v, %v", err, made)
	}
}

// otherNamespace is one more, until the test ends.
func (e *testCase) otherNamespace() string {
	e.Helper()
	made, err := e.client.CoreV1().Namespaces().Create(background(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = e.client.CoreV1().Namespaces().Delete(background(), made.Name, metav1.DeleteOptions{}) })
	eventually(e, "its service account", func() error {
		_, err := e.client.CoreV1().ServiceAccounts(made.Name).Get(background(), "default", metav1.GetOptions{})
		return err
	})
	return made.Name
}

// translator are the chart's policies with a set of values of its tests.
func (e *testCase) translator(set string) string {
	e.Helper()
	return e.chartFile(set, translatePolicies)
}

// chartFile is what one file of the chart becomes with a set of values of its tests.
func (e *testCase) chartFile(set, file string) string {
	e.Helper()
	text, err := os.ReadFile(filepath.Join(e.node.env["REPO"], "tools/chart/testdata", set+".golden.yaml"))
	if err != nil {
		e.Fatal(err)
	}
	for part := range strings.SplitSeq(string(text), "---\n# Source: ") {
		if name, rest, _ := strings.Cut(part, "\n"); name == file {
			return rest
		}
	}
	e.Fatalf("%s.golden.yaml has no %s", set, file)
	return ""
}

// podOf is the pod of a case, as a user would create it.
func (e *testCase) podOf(c translatetest.Case) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "tried", Namespace: e.namespace,
		Annotations: maps.Clone(c.Pod.Annotations)}}
	for _, one := range c.Pod.Containers {
		made := corev1.Container{Name: one.Name, Image: loadImage,
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{}}}
		for name, amount := range one.Limits {
			made.Resources.Limits[corev1.ResourceName(name)] = resource.MustParse(amount)
		}
		if one.Init {
			p.Spec.InitContainers = append(p.Spec.InitContainers, made)
		} else {
			p.Spec.Containers = append(p.Spec.Containers, made)
		}
	}
	return p
}

// translated compares what the API server makes of the pod with what is wanted.
func (e *testCase) translated(c translatetest.Case) error {
	for _, one := range c.Pod.Containers {
		for name, amount := range one.Limits {
			if _, err := resource.ParseQuantity(amount); err != nil && len(c.Refused) > 0 {
				return nil // no user can create it
			} else if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	made, err := e.client.CoreV1().Pods(e.namespace).Create(background(), e.podOf(c),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if len(c.Refused) > 0 {
		if err == nil {
			return fmt.Errorf("it is taken, and becomes %v", made.Spec.Containers[0].Resources)
		}
		if strings.Contains(err.Error(), "must be an integer") {
			return nil // of what is no number of devices, the API server says so before any policy
		}
		if !strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'kerf-translated'") ||
			!strings.Contains(err.Error(), "no counterpart in Kerf: ") {
			return fmt.Errorf("it is refused otherwise: %w", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	main := made.Spec.Containers[0]
	limits, annotations := map[string]string{}, map[string]string{}
	for name, q := range main.Resources.Limits {
		if want := main.Resources.Requests[name]; want.Cmp(q) != 0 {
			return fmt.Errorf("%s: %s is requested, and %s the limit", name, want.String(), q.String())
		}
		if name != "cpu" && name != "vendor.example/nic" {
			limits[string(name)] = q.String()
		}
	}
	for k, v := range made.Annotations {
		if _, before := c.Pod.Annotations[k]; !before || len(c.Limits) > 0 && k != "mps" && k != "team" {
			annotations[k] = v
		}
	}
	note := annotations[translatedNote]
	delete(annotations, translatedNote)
	change, err := c.Options.Pod(c.Pod)
	if err != nil {
		return err
	}
	for _, said := range change.Differences {
		if _, rounded, ok := strings.Cut(said, "is rounded up to "); ok {
			if rounded, _, _ = strings.Cut(rounded, ":"); !strings.Contains(note, "is rounded up to "+rounded) {
				return fmt.Errorf("the command says %q, and the pod %q", said, note)
			}
			note = strings.Replace(note, "is rounded up to "+rounded, "", 1)
		}
	}
	if strings.Contains(note, "rounded up") {
		return fmt.Errorf("the pod says %q more than the command", note)
	}
	if d := cmp.Diff([2]map[string]string{c.Limits, c.Annotations},
		[2]map[string]string{limits, annotations}); d != "" {
		return errors.New(d)
	}
	return nil
}
