// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kerf-gpu/kerf/internal/kube/unserved"
)

// setup makes the scheduler of the options.
func setup(ctx context.Context, opts *options.Options, name *cache.InformerName, plugins []app.Option) (
	*config.CompletedConfig, *scheduler.Scheduler, error) {
	complete, err := configure(ctx, opts, name)
	if err != nil {
		return nil, nil, err
	}
	registry := make(runtime.Registry)
	for _, plugin := range plugins {
		if err := plugin(registry); err != nil {
			return nil, nil, fmt.Errorf("register plugin: %w", err)
		}
	}
	recorder := func(name string) events.EventRecorderLogger { return complete.EventBroadcaster.NewRecorder(name) }
	c := &complete.ComponentConfig
	var profiles []schedconfig.KubeSchedulerProfile
	sched, err := scheduler.New(ctx, complete.Client, complete.InformerFactory, complete.DynInformerFactory, recorder,
		scheduler.WithComponentConfigVersion(c.APIVersion),
		scheduler.WithKubeConfig(complete.KubeConfig),
		scheduler.WithProfiles(c.Profiles...),
		scheduler.WithPercentageOfNodesToScore(c.PercentageOfNodesToScore),
		scheduler.WithFrameworkOutOfTreeRegistry(registry),
		scheduler.WithPodMaxBackoffSeconds(c.PodMaxBackoffSeconds),
		scheduler.WithPodInitialBackoffSeconds(c.PodInitialBackoffSeconds),
		scheduler.WithPodMaxInUnschedulablePodsDuration(complete.PodMaxInUnschedulablePodsDuration),
		scheduler.WithExtenders(c.Extenders...),
		scheduler.WithParallelism(c.Parallelism),
		scheduler.WithBuildFrameworkCapturer(func(p schedconfig.KubeSchedulerProfile) {
			profiles = append(profiles, p)
		}),
	)
	if err != nil {
		return nil, nil, fmt.Errorf("make scheduler: %w", err)
	}
	if err := options.LogOrWriteConfig(klog.FromContext(ctx), opts.WriteConfigTo, c, profiles); err != nil {
		return nil, nil, fmt.Errorf("write config: %w", err)
	}
	return complete, sched, nil
}

// configure is the configuration of kube-scheduler with clients that list unserved kinds as empty.
func configure(ctx context.Context, opts *options.Options, name *cache.InformerName) (*config.CompletedConfig, error) {
	defaults, err := latest.Default()
	if err != nil {
		return nil, fmt.Errorf("read default config: %w", err)
	}
	opts.ComponentConfig = defaults
	if errs := opts.Validate(); len(errs) > 0 {
		return nil, utilerrors.NewAggregate(errs)
	}
	c, err := opts.Config(ctx)
	if err != nil {
		return nil, err
	}
	c.KubeConfig = rest.CopyConfig(c.KubeConfig)
	c.KubeConfig.Wrap(unserved.Wrap)
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(c.KubeConfig, "scheduler"))
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfig(c.KubeConfig)
	if err != nil {
		return nil, fmt.Errorf("make client of custom resources: %w", err)
	}
	c.Client = client
	c.InformerFactory = scheduler.NewInformerFactory(client, 0, name)
	c.DynInformerFactory = dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamicClient, 0,
		corev1.NamespaceAll, nil)
	complete := c.Complete()
	return &complete, nil
}
