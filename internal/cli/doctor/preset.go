// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/cli/doctor/nodejob"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/doctor/preset"
)

// nodeFlags are the flags for the preset of one node.
type nodeFlags struct {
	name, image, namespace string
	noJob                  bool
}

func (n *nodeFlags) define(c *cobra.Command) {
	c.Flags().StringVar(&n.name, "node", "", "node of the cluster whose preset the command prints")
	c.Flags().StringVar(&n.image, "image", "", "agent's image for the Job of --node (default: that of this release)")
	// It replaces the flag of all commands, which has the namespace of pods.
	c.Flags().StringVarP(&n.namespace, "namespace", "n", "",
		"namespace of the Job of --node (default: kerf-system if it exists, else default)")
	c.Flags().BoolVar(&n.noJob, "no-job", false, "with --node, run no Job: read only the Node")
}

// presetAnswer is the chart's preset for one node.
type presetAnswer struct {
	Node string `json:"node"`
	preset.Choice
	File string `json:"file"`
	// NotExamined says why the node's files were not examined; empty if they were.
	NotExamined string `json:"notExamined"`
}

// presetOfNode prints the chart's preset for a node of the cluster.
func presetOfNode(parent context.Context, a *command.App, n nodeFlags, output string) error {
	var p presetAnswer
	err := command.Interruptible(parent, func(ctx context.Context) (err error) {
		if p, err = examineNode(ctx, a, n); err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return err
	})
	if stopped, ok := errors.AsType[*command.InterruptedError](err); ok {
		return command.Exit(stopped.Code(), err)
	}
	if err != nil {
		return command.Fail(err)
	}
	text := []byte(p.text())
	if output != "" {
		if text, err = command.Encoded(output, p); err != nil {
			return command.Fail(err)
		}
	}
	if _, err = a.Out.Write(text); err != nil {
		return command.Fail(err)
	}
	if p.Doubt != "" && !n.noJob {
		return command.Fail(fmt.Errorf("preset %s of node %s is not certain: %s", p.Preset, p.Node, p.Doubt))
	}
	return nil
}

// examineNode reads the Node, examines its files with a Job, and chooses the preset.
func examineNode(ctx context.Context, a *command.App, n nodeFlags) (presetAnswer, error) {
	p := presetAnswer{Node: n.name}
	all, err := presets()
	if err != nil {
		return p, err
	}
	api, err := a.Cluster()
	if err != nil {
		return p, err
	}
	defer api.Close()
	var node corev1.Node
	if err := api.Get(ctx, "/api/v1/nodes/"+url.PathEscape(n.name), nil, &node); err != nil {
		return p, fmt.Errorf("read node %s: %w", n.name, err)
	}
	files, err := filesOf(ctx, a, api, &node, n, preset.Paths(all))
	if _, stopped := errors.AsType[*command.InterruptedError](err); stopped {
		return p, err
	}
	if err != nil {
		p.NotExamined = err.Error()
	}
	i := node.Status.NodeInfo
	p.Choice = preset.Decide(preset.System{OSImage: i.OSImage, KubeletVersion: i.KubeletVersion,
		ContainerRuntime: i.ContainerRuntimeVersion, Labels: node.Labels}, all, files)
	p.File = presetFile(p.Preset)
	return p, nil
}

// filesOf examines the files of a node. The error says why they were not examined.
func filesOf(ctx context.Context, a *command.App, api *access.Client, node *corev1.Node, n nodeFlags,
	paths []string) (*preset.Files, error) {
	if n.noJob {
		return nil, errors.New("--no-job is set")
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return nil, fmt.Errorf("the node is not ready: %s %s: %w", c.Reason, c.Message, sharing.ErrUnavailable)
		}
	}
	image, err := agentImage(a.Registry, a.Version)
	if err != nil {
		return nil, err
	}
	found, err := nodejob.Run(ctx, api, nodejob.Options{Node: n.name, Image: cmp.Or(n.image, image), Paths: paths,
		Runtime:   node.Status.NodeInfo.ContainerRuntimeVersion,
		Namespace: cmp.Or(n.namespace, a.Overrides.Context.Namespace),
		Say:       func(text string) { _, _ = fmt.Fprintf(a.ErrOut, "%s doctor: %s\n", a.Name(), text) }})
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	return &found, nil
}

// text is the answer for people.
func (p presetAnswer) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s needs preset %s: %s\n  helm install -f %s", p.Node, p.Preset, p.Reason, p.File)
	for _, s := range p.Set {
		fmt.Fprintf(&b, " --set %s=%s", s.Key, s.Value)
	}
	b.WriteString("\n")
	for _, l := range p.Lacks {
		fmt.Fprintf(&b, "  %s: %s %s; %s\n", l.Key, l.Path, l.Problem, l.Remedy)
	}
	if p.NotExamined != "" {
		fmt.Fprintf(&b, "  The files of the node were not examined: %s\n", p.NotExamined)
	}
	return b.String()
}
