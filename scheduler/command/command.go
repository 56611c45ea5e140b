// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package command is the command line of kerf-scheduler: kube-scheduler with a plugin, for API servers of the same
// and of older Kubernetes versions.
//
// It has the steps of the kube-scheduler of Kubernetes 1.37 (cmd/kube-scheduler/app), and two more.
//
// It emulates the version of the API server, so that no feature writes fields that the server does not know. Its
// client lists kinds that the server does not serve as empty (package unserved).
package command

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

// emulatedVersion is kube-scheduler's flag for the version that it emulates.
const emulatedVersion = "emulated-version"

// New returns the command. Its flags are those of kube-scheduler. With --version it prints the given version of Kerf
// and that of kube-scheduler.
func New(version string, plugins ...app.Option) *cobra.Command {
	opts := options.NewOptions()
	cmd := &cobra.Command{
		Use: "kerf-scheduler",
		Long: `kerf-scheduler assigns pods to nodes, and grants their GPU requests.
It is kube-scheduler with the plugin Kerf. If --emulated-version is not set, it
emulates the version of the API server.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := printVersion(cmd, version); err != nil {
				return err
			}
			return run(cmd, opts, plugins)
		},
		Args: cobra.NoArgs,
	}
	sets := opts.Flags
	verflag.AddFlags(sets.FlagSet("global"))
	globalflag.AddGlobalFlags(sets.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, f := range sets.FlagSets {
		cmd.Flags().AddFlagSet(f)
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, *sets, columns)
	return cmd
}

// printVersion prints the version of Kerf if --version requests it. With --version=raw, only kube-scheduler prints.
func printVersion(cmd *cobra.Command, version string) error {
	if f := cmd.Flags().Lookup("version"); f == nil || f.Value.String() != "true" {
		return nil
	}
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), cmd.Name(), version); err != nil {
		return fmt.Errorf("print version: %w", err)
	}
	return nil
}

// run is the scheduler, until a signal ends it or an error.
func run(cmd *cobra.Command, opts *options.Options, plugins []app.Option) error {
	verflag.PrintAndExitIfRequested()
	ctx := server.SetupSignalContext()
	if !cmd.Flags().Changed(emulatedVersion) {
		older, err := emulate(ctx, opts, retryAfter)
		if err != nil {
			return err
		}
		if older != "" {
			if err := cmd.Flags().Set(emulatedVersion, older); err != nil {
				return fmt.Errorf("emulate Kubernetes %s: %w", older, err)
			}
		}
	}
	if err := opts.ComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("set feature gates: %w", err)
	}
	gates := opts.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := logsapi.ValidateAndApply(opts.Logs, gates); err != nil {
		return fmt.Errorf("apply flags of logging: %w", err)
	}
	cliflag.PrintFlags(cmd.Flags())
	name, err := cache.NewInformerName("kube-scheduler") // as kube-scheduler, so that metrics have the same labels
	if err != nil {
		return fmt.Errorf("name informers: %w", err)
	}
	defer name.Release()
	complete, sched, err := setup(ctx, opts, name, plugins)
	if err != nil {
		return err
	}
	if mutable, ok := gates.(featuregate.MutableFeatureGate); ok {
		mutable.AddMetrics()
	}
	opts.ComponentGlobalsRegistry.AddMetrics()
	return app.Run(ctx, complete, sched)
}
