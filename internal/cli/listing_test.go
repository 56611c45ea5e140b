// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/nodeclient/fakenode"
	"github.com/kerf-gpu/kerf/test/clitest"
)

// Every command that lists has kubectl's flags, and they have an effect.
func TestListingOfACluster(t *testing.T) {
	for line, want := range map[string]struct {
		has, lacks string
	}{
		"status -o name":                      {"gpunode.kerf.dev/gpu-1\n", "NODE"},
		"status -o jsonpath={.nodes[*].name}": {"gpu-1 gpu-2 gpu-3\n", "{"},
		"status -o jsonpath=.nodes[0].name":   {"gpu-1\n", "gpu-2"},
		"status -A":                           {"embed-2", "\x1b"},
		"status -n team":                      {"chat-0", "\x1b"},
		"status -n absent":                    {"gpu-1", "chat-0"},
		"status -l app=chat":                  {"chat-0", "embed-2"},
		"status -l app=chat -o wide":          {"chat-0", "embed-2"},
		"top --once -l app=chat":              {"chat-0", "embed-2"},
		"top --once -A":                       {"embed-2", "\x1b"},
		"top --once -o name":                  {"pod/chat-0\n", "NODE"},
		"top --once -o wide":                  {"GPU-gpu-1-0", "\x1b"},
		"top --once -o jsonpath={.usages[?(@.node==\"gpu-3\")].pod}": {"embed-5 chat-6", "chat-0"},
		"mig status -o name": {"gpunode.kerf.dev/gpu-1", "NODE"},
		"mig status -l app=chat -o jsonpath={.nodes[0].gpus[*].uuid}": {"GPU-gpu-1-0", "GPU-gpu-1-1"},
		"mig status -A": {"", "chat-0/x"},
	} {
		t.Run(line, func(t *testing.T) {
			f := clitest.StartCluster(t, Commands)
			selected := strings.Contains(line, "-l ")
			if selected { // the API server selects
				f.Lists["/api/v1/pods"] = []string{`{"metadata":{"namespace":"team","name":"chat-0"}}`}
			}
			out, errOut, code := f.Call(strings.Split(line, " ")...)
			if code != command.ExitOK || !strings.Contains(out, want.has) || strings.Contains(out, want.lacks) {
				t.Errorf("status %d, %s; want %q and not %q in\n%s", code, errOut, want.has, want.lacks, out)
			}
			asked := slices.ContainsFunc(f.Reads(), func(uri string) bool {
				return strings.HasPrefix(uri, "/api/v1/pods?") && strings.Contains(uri, "labelSelector=app%3Dchat")
			})
			if selected != asked {
				t.Errorf("requested the labels: %v, of %q", asked, f.Reads())
			}
		})
	}
}

func TestListingFlagsAreChecked(t *testing.T) {
	f := clitest.StartCluster(t, Commands)
	for line, want := range map[string]string{
		"status -o bars":                               "not available for a cluster",
		"status -o jsonpath={.a":                       "jsonpath={.a",
		"status -A -n team":                            "contradicts --namespace",
		"top --once -A -n team":                        "contradicts --namespace",
		"status -l a=b=c":                              "--selector",
		"mig status -o csv":                            "is not a form of output",
		"usage -l a=b --prometheus http://localhost:1": "have no effect with --prometheus",
	} {
		if _, errOut, code := f.Call(strings.Split(line, " ")...); code != command.ExitUsage ||
			!strings.Contains(errOut, want) {
			t.Errorf("%s: status %d: %s", line, code, errOut)
		}
	}
}

func TestListingOfAMachine(t *testing.T) {
	dir := t.TempDir()
	(&fakenode.Server{}).Start(t, dir).Show(clitest.Node(true, "train"))
	for line, want := range map[string]struct {
		code       int
		has, lacks string
	}{
		"status -o name":                       {command.ExitOK, "gpu/GPU-", "STATE"},
		"status -o jsonpath={.grants[*].name}": {command.ExitOK, "train\n", "{"},
		"status -n team":                       {command.ExitOK, "GPU", "train"},
		"status -l app=chat":                   {command.ExitUsage, "has no effect on one machine", "GPU"},
		"mig status -l app=chat":               {command.ExitUsage, "has no effect on one machine", "GPU"},
		"top --once -l app=chat":               {command.ExitUsage, "has no effect on one machine", "GPU"},
	} {
		p := clitest.New(nil)
		code, _ := p.App.Execute(append([]string{"--run-dir", dir}, strings.Split(line, " ")...), Commands)
		if text := p.Out.String() + p.ErrOut.String(); code != want.code || !strings.Contains(text, want.has) ||
			strings.Contains(p.Out.String(), want.lacks) {
			t.Errorf("%s: status %d; want %q and not %q in\n%s", line, code, want.has, want.lacks, text)
		}
	}
}
