// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package policies tests Kerf's admission policies on a real API server with deploy/manifests. It checks what they
// admit and reject, and the text. Run leaves nothing behind but an empty namespace in deletion.
//
// It is a package and no test, because only a suite that has an API server can run it.
package policies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	batchv1 "k8s.io/client-go/kubernetes/typed/batch/v1"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// The users as whom it is tried. Both may do everything that RBAC knows: it is the policies that refuse.
const (
	tenant    = "tenant"
	scheduler = "system:kube-scheduler"
)

// a trial is one thing that a user tries. A part of the answer is refused, empty if it must pass. A part of a warning
// that comes with it is warned, empty if there is none.
type trial struct {
	name            string
	do              func(ctx context.Context, as *user) error
	as              string
	refused, warned string
}

// warnings are those of the request in hand, as the API server sends them.
type warnings struct{ all []string }

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.all = append(w.all, text) }

// user is a connection with a user's identity.
type user struct {
	namespace string
	warnings  *warnings
	core      typedv1.CoreV1Interface
	apps      appsv1.AppsV1Interface
	batch     batchv1.BatchV1Interface
}

func connect(config *rest.Config, name, namespace string) (*user, error) {
	c := rest.CopyConfig(config)
	c.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:masters", "system:authenticated"}}
	c.QPS, c.Burst = 200, 200
	said := &warnings{}
	c.WarningHandler = said
	core, err := typedv1.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("connect as %q: %w", name, err)
	}
	apps, err := appsv1.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("connect as %q: %w", name, err)
	}
	batch, err := batchv1.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("connect as %q: %w", name, err)
	}
	return &user{namespace: namespace, warnings: said, core: core, apps: apps, batch: batch}, nil
}

// Run tries everything, as users that the administrator of config impersonates, and returns how many it
// tried. The error joins a line for each that went otherwise.
func Run(ctx context.Context, config *rest.Config) (int, error) {
	users := map[string]*user{}
	namespace := fmt.Sprintf("kerf-policies-%x", time.Now().UnixNano())
	for _, name := range []string{tenant, scheduler, "system:serviceaccount:kerf-system:kerf-scheduler"} {
		u, err := connect(config, name, namespace)
		if err != nil {
			return 0, err
		}
		users[name] = u
	}
	drop, err := prepare(ctx, users[tenant], users[scheduler])
	if err != nil {
		return 0, err
	}
	defer drop()
	var wrong []error
	all := trials()
	for _, t := range all {
		if t.as == "" {
			t.as = tenant
		}
		u := users[t.as]
		u.warnings.all = nil
		wrong = append(wrong, judge(t, t.do(ctx, u), u.warnings.all))
	}
	return len(all), errors.Join(wrong...)
}

// judge compares what came with what was to come. A refusal or a warning is a policy's only when it says so.
func judge(t trial, err error, warned []string) error {
	const by = "ValidatingAdmissionPolicy 'kerf-"
	ours := slices.DeleteFunc(slices.Clone(warned), func(w string) bool { return !strings.Contains(w, by) })
	switch {
	case err == nil && t.warned == "" && len(ours) > 0:
		return fmt.Errorf("%s, as %s: warned: %q", t.name, t.as, ours)
	case t.warned != "" && !slices.ContainsFunc(ours, func(w string) bool { return strings.Contains(w, t.warned) }):
		return fmt.Errorf("%s, as %s: the warnings are %q, want %q (%w)", t.name, t.as, warned, t.warned, err)
	case t.refused == "" && err != nil:
		return fmt.Errorf("%s, as %s: refused: %w", t.name, t.as, err)
	case t.refused == "":
		return nil
	case err == nil:
		return fmt.Errorf("%s, as %s: passed, and should be refused with %q", t.name, t.as, t.refused)
	case !strings.Contains(err.Error(), by) || !strings.Contains(err.Error(), t.refused):
		return fmt.Errorf("%s, as %s: refused with other words than %q: %w", t.name, t.as, t.refused, err)
	}
	return nil
}

// prepare makes a namespace with three pods, and waits until the policies are active, which takes the API server a
// moment.
func prepare(ctx context.Context, as, planner *user) (drop func(), err error) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: as.namespace}}
	if _, err := as.core.Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create namespace %q: %w", as.namespace, err)
	}
	drop = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		now := int64(0)
		for _, name := range []string{planned, sharing, profiled} {
			_ = as.core.Pods(as.namespace).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		}
		_ = as.core.Namespaces().Delete(ctx, as.namespace, metav1.DeleteOptions{})
	}
	for _, p := range []*corev1.Pod{
		pod(named(planned), annotated("scheduling.kerf.dev/main", "GPU-1")),
		pod(named(sharing), asks(memory, "10")),
		pod(named(profiled), asks(memory, "10"), annotated("kerf.dev/profile", "one")),
	} {
		p.Spec.SchedulerName = "no-one" // it stays as it is
		if err := insist(ctx, planner, p); err != nil {
			drop()
			return nil, err
		}
	}
	for _, sign := range signs() {
		for sign.do(ctx, as) == nil {
			if !pause(ctx) {
				drop()
				return nil, fmt.Errorf("wait for the policies: %s passes: %w", sign.name, context.Cause(ctx))
			}
		}
	}
	return drop, nil
}

// insist creates a pod: a full cluster makes the namespace's service account a moment after the namespace.
func insist(ctx context.Context, as *user, p *corev1.Pod) error {
	for {
		_, err := as.core.Pods(as.namespace).Create(ctx, p, metav1.CreateOptions{})
		if err == nil {
			return nil
		}
		if !apierrors.IsForbidden(err) || !pause(ctx) {
			return fmt.Errorf("create pod %q: %w", p.Name, err)
		}
	}
}

func pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(100 * time.Millisecond):
		return true
	}
}

// The existing pods: the scheduler has written a placement on the first one, the second requests a share, and the third
// has an additional profile.
const (
	planned  = "planned"
	sharing  = "sharing"
	profiled = "profiled"
)

// dry makes the API server go all the way and keep nothing.
var dry = []string{metav1.DryRunAll}

func create(change ...func(*corev1.Pod)) func(context.Context, *user) error {
	return func(ctx context.Context, as *user) error {
		_, err := as.core.Pods(as.namespace).Create(ctx, pod(change...), metav1.CreateOptions{DryRun: dry})
		return err
	}
}

// patch changes one of the pods, or a subresource of it.
func patch(name, change string, subresource ...string) func(context.Context, *user) error {
	return func(ctx context.Context, as *user) error {
		_, err := as.core.Pods(as.namespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(change),
			metav1.PatchOptions{DryRun: dry}, subresource...)
		return err
	}
}

// bind sends a Binding to the pod's subresource, and bindOld to the separate resource.
func bind(annotations map[string]string) func(context.Context, *user) error {
	return func(ctx context.Context, as *user) error {
		return as.core.Pods(as.namespace).Bind(ctx, binding(annotations), metav1.CreateOptions{DryRun: dry})
	}
}

func bindOld(annotations map[string]string) func(context.Context, *user) error {
	return func(ctx context.Context, as *user) error {
		return as.core.RESTClient().Post().Namespace(as.namespace).Resource("bindings").Param("dryRun",
			metav1.DryRunAll).
			Body(binding(annotations)).Do(ctx).Error()
	}
}

func binding(annotations map[string]string) *corev1.Binding {
	return &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: planned, Annotations: annotations},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "node-of-no-one"},
	}
}
