// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugin is a kube-scheduler plugin on top of the cluster state of sharing/scheduler.
//
// It promises that pods without a request for Kerf pass untouched, and that it decides by the cluster state alone. For
// pods with ResourceClaims of Kerf it only scores the nodes: the plugin DynamicResources decides where they fit.
// The code here fetches that state, queries it at each extension point, and reports the result. It decides nothing
// about CPU, memory, taints and affinity; other plugins do.
package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"

	"github.com/kerf-gpu/kerf/internal/kube/podspec"
	"github.com/kerf-gpu/kerf/scheduler/placeholder"
	"github.com/kerf-gpu/kerf/scheduler/rules"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// Name is the plugin's name in a KubeSchedulerConfiguration.
const Name = "Kerf"

// Args are the plugin's arguments in a KubeSchedulerConfiguration.
type Args struct {
	// SharingConfig is the file with the agents' configuration; empty: there is none, and no pod can name a profile.
	SharingConfig string `yaml:"sharingConfig"`
	// SharingConfigMap is the ConfigMap that the file is of, as NAMESPACE/NAME. It is watched, and the file counts
	// until it was seen; empty: the file alone counts.
	SharingConfigMap string `yaml:"sharingConfigMap"`
	// ProfileAmounts is the ConfigMap, as NAMESPACE/NAME, to which the profiles' amounts are written for the admission
	// policies; empty: none.
	ProfileAmounts string `yaml:"profileAmounts"`
	// LastGoodConfigMap is the ConfigMap, as NAMESPACE/NAME, with the last known good config, for a scheduler that
	// starts while the config has errors; empty: none.
	LastGoodConfigMap string `yaml:"lastGoodConfigMap"`
	// PlacementTimeout is how long a node may report that a pod bound to it does not fit. Then the pod is evicted, so
	// that its controller replaces it; 0: never.
	PlacementTimeout time.Duration `yaml:"placementTimeout"`
	// GangDomains are labels of nodes, the closest first. A gang stays on nodes with one value of the first label for
	// which that is possible. Empty: the policy alone decides.
	GangDomains []string `yaml:"gangDomains"`
	// Defragmentation has pods moved so that pending pods fit; off by default.
	Defragmentation DefragArgs `yaml:"defragmentation"`
	// Placeholders is the namespace of the agents. For pods that a node autoscaler adds no node for by itself, there
	// are placeholders in it; empty: none.
	Placeholders string `yaml:"placeholders"`
}

// Plugin is the plugin of one profile.
type Plugin struct {
	binder
	core      *core
	handle    fwk.Handle
	preemptor *preemptor
	claims    *claimScorer
	// domains are the labels that a gang is to be kept within.
	domains []string
	// gangs is true if kube-scheduler's feature gate has the pods of a PodGroup placed together.
	gangs bool
}

// newPlugin returns one of several plugins that share the core.
func newPlugin(c *core, handle fwk.Handle, domains []string,
	budgets func(namespace string) ([]*policyv1.PodDisruptionBudget, error)) *Plugin {
	return &Plugin{
		binder: binder{core: c, handle: handle}, core: c, handle: handle,
		preemptor: &preemptor{core: c, handle: handle, budgets: budgets}, domains: domains,
		claims: newClaimScorer(c, handle),
		gangs:  utilfeature.DefaultFeatureGate.Enabled(features.GenericWorkload),
	}
}

// sources are where the agents' configuration is.
func (a Args) sources() rules.Sources {
	return rules.Sources{File: a.SharingConfig, ConfigMap: a.SharingConfigMap, ProfileAmounts: a.ProfileAmounts,
		LastGood: a.LastGoodConfigMap}
}

// The extension points.
var (
	_ fwk.PreFilterPlugin          = (*Plugin)(nil)
	_ fwk.PreFilterExtensions      = (*Plugin)(nil)
	_ fwk.FilterPlugin             = (*Plugin)(nil)
	_ fwk.PostFilterPlugin         = (*Plugin)(nil)
	_ fwk.PodGroupPostFilterPlugin = (*Plugin)(nil)
	_ fwk.PreScorePlugin           = (*Plugin)(nil)
	_ fwk.ScorePlugin              = (*Plugin)(nil)
	_ fwk.ScoreExtensions          = (*Plugin)(nil)
	_ fwk.PlacementGeneratePlugin  = (*Plugin)(nil)
	_ fwk.PlacementScorePlugin     = (*Plugin)(nil)
	_ fwk.ReservePlugin            = (*Plugin)(nil)
	_ fwk.BindPlugin               = (*Plugin)(nil)
	_ fwk.EnqueueExtensions        = (*Plugin)(nil)
	_ fwk.SignPlugin               = (*Plugin)(nil)
)

// Factory makes plugins, as kube-scheduler's registry takes them.
type Factory = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error)

// NewFactory makes plugins that share their cluster state. register registers the first one's metrics.
func NewFactory(register rules.Register) Factory {
	var mu sync.Mutex
	var shared *core
	return func(ctx context.Context, raw runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		mu.Lock()
		defer mu.Unlock()
		args, err := readArgs(raw)
		if err != nil {
			return nil, fmt.Errorf("arguments of plugin %s: %w", Name, err)
		}
		if shared == nil {
			c, err := newCore(time.Now, register)
			if err != nil {
				return nil, fmt.Errorf("plugin %s: %w", Name, err)
			}
			seen := c.rules.Read(ctx, args.sources())
			var event func(note string)
			if of, is, ok := strings.Cut(args.SharingConfigMap, "/"); ok {
				about := &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: of, Name: is}
				event = func(note string) {
					handle.EventRecorder().Eventf(about, nil, corev1.EventTypeWarning, reasonConfigRejected,
						"Rejecting",
						"%s", note)
				}
			}
			ctx, c.cancel = context.WithCancel(ctx)
			if err := c.follow(ctx, handle); err != nil {
				return nil, errors.Join(fmt.Errorf("plugin %s: %w", Name, err), c.Close())
			}
			if err := c.rules.Watch(ctx, args.sources(), handle.ClientSet(), seen, event, c.listed); err != nil {
				return nil, errors.Join(fmt.Errorf("plugin %s: %w", Name, err), c.Close())
			}
			c.running.Go(func() { c.pacer.run(ctx, pause) })
			pods := handle.SharedInformerFactory().Core().V1().Pods().Lister()
			g := gangs{core: c, client: handle.ClientSet(), events: handle.EventRecorder,
				pods: func(namespace string) ([]*corev1.Pod, error) {
					return pods.Pods(namespace).List(labels.Everything())
				}}
			c.running.Go(func() { repeat(ctx, gangEvery, g.look) })
			if args.PlacementTimeout > 0 {
				e := evicter{core: c, after: args.PlacementTimeout, client: handle.ClientSet(),
					events: handle.EventRecorder, pod: func(namespace, name string) (*corev1.Pod, error) {
						return pods.Pods(namespace).Get(name)
					}}
				c.running.Go(func() { repeat(ctx, evictEvery, e.look) })
			}
			if err := c.defragment(ctx, handle.KubeConfig(), args.Defragmentation); err != nil {
				return nil, errors.Join(fmt.Errorf("plugin %s: %w", Name, err), c.Close())
			}
			if args.Placeholders != "" {
				made := c.placeholders(args.Placeholders, handle)
				c.beforeBinding = made.Binding
				c.running.Go(func() { repeat(ctx, placeholder.Every, made.Reconcile) })
			}
			shared = c
		}
		budgets := handle.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister()
		return newPlugin(shared, handle, args.GangDomains, func(namespace string) ([]*policyv1.PodDisruptionBudget,
			error) {
			return budgets.PodDisruptionBudgets(namespace).List(labels.Everything())
		}), nil
	}
}

// Name implements fwk.Plugin.
func (*Plugin) Name() string { return Name }

func readArgs(raw runtime.Object) (Args, error) {
	var args Args
	switch raw := raw.(type) {
	case nil:
		return args, nil
	case *runtime.Unknown:
		if len(raw.Raw) == 0 {
			return args, nil
		}
		d := yaml.NewDecoder(bytes.NewReader(raw.Raw)) // JSON is YAML
		d.KnownFields(true)
		if err := d.Decode(&args); err != nil {
			return args, err
		}
		if args.PlacementTimeout < 0 {
			return args, fmt.Errorf("placementTimeout: %v is below 0; 0s is never", args.PlacementTimeout)
		}
		if err := args.Defragmentation.check(); err != nil {
			return args, err
		}
		for field, name := range map[string]string{"sharingConfigMap": args.SharingConfigMap,
			"profileAmounts": args.ProfileAmounts, "lastGoodConfigMap": args.LastGoodConfigMap} {
			if of, is, ok := strings.Cut(name, "/"); name != "" &&
				(!ok || of == "" || is == "" || strings.Contains(is, "/")) {
				return args, fmt.Errorf("%s: %q is not NAMESPACE/NAME of a ConfigMap", field, name)
			}
		}
		return args, nil
	default:
		return args, fmt.Errorf("they are a %T", raw)
	}
}

// asks is true for a pod of which a container has a limit of Kerf's. It is quicker to tell than what the pod requests,
// and most changes of pods are none of that.
func asks(p *corev1.Pod) bool {
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			for name := range containers[i].Resources.Limits {
				if strings.HasPrefix(string(name), sharing.Domain+"/") {
					return true
				}
			}
		}
	}
	return false
}

// wantOf is what a pod requests.
func wantOf(p *corev1.Pod) (scheduler.PodRequest, bool, error) {
	w, ok, err := scheduler.PodRequestOf(podspec.Convert(p))
	w.CPU = cpuOf(p)
	return w, ok, err
}

// cpuOf is the CPU that a pod requests.
func cpuOf(p *corev1.Pod) (sum cluster.Milli) {
	for i := range p.Spec.Containers {
		r := p.Spec.Containers[i].Resources.Requests
		sum += cluster.Milli(r.Cpu().MilliValue())
	}
	return sum
}

// oneLineErrors are all errors of a pod, in one line.
func oneLineErrors(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
