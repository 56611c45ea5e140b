// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command kubernetes is etcd and the programs of Kubernetes in one file, called by the name of the one that is
// wanted: a link to it named kubelet is kubelet. One link step and one file of some hundred megabytes take the
// place of seven.
//
// It is for tests on one node. Importing all of them at once means that the process of each holds the others'
// package variables; nothing else of them runs.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the components' own metrics
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	name := filepath.Base(os.Args[0])
	if name == "etcd" {
		etcdmain.Main(os.Args)
		return
	}
	command := commandOf(name)
	if command == nil {
		fmt.Fprintf(os.Stderr,
			"%q is none of etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy, kubelet, "+
				"kubectl\n", name)
		os.Exit(2)
	}
	if name == "kubectl" { // it words its errors itself
		util.CheckErr(cli.RunNoErrOutput(command))
		return
	}
	os.Exit(cli.Run(command))
}

func commandOf(name string) *cobra.Command {
	switch name {
	case "kube-apiserver":
		return apiserver.NewAPIServerCommand()
	case "kube-controller-manager":
		return controllers.NewControllerManagerCommand()
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand()
	case "kube-proxy":
		return proxy.NewProxyCommand()
	case "kubelet":
		return made(kubelet.NewKubeletCommand)
	case "kubectl":
		return cmd.NewDefaultKubectlCommand()
	}
	return nil
}

// made calls the constructor of kubelet's command. Before Kubernetes 1.34 it has no argument.
func made[F func() *cobra.Command | func(context.Context) *cobra.Command](constructor F) *cobra.Command {
	switch f := any(constructor).(type) {
	case func() *cobra.Command:
		return f()
	case func(context.Context) *cobra.Command:
		return f(context.Background())
	}
	return nil
}
