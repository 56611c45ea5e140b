// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

// tree is a repository in miniature, with one file of the agent's more.
func tree(code, chart string) fstest.MapFS {
	out := fstest.MapFS{
		"sharing/names.go": {Data: []byte(`package sharing

const (
	// Domain is ours.
	Domain = "kerf.dev"
	// ResourceGPU is a number of GPUs.
	ResourceGPU = Domain + "/gpu"
	// LabelNode has a node | get an agent.
	LabelNode = Domain + "/deploy-agent"
	// keyModel is globs.
	keyModel = "gpu-model"
)

// reasonGone of a pod: it is gone.
const reasonGone = "GPUGone"
`)},
		"sharing/node/metrics/m.go": {Data: []byte(`package metrics

func all(d func(name, help string, labels ...string)) {
	gpu := []string{"uuid", "index"}
	d("kerf_gpu_ok", "Whether it is.", gpu...)
	d("kerf_grants", "How many there are.", "state", "uuid")
	_ = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kerf_wait_seconds", Help: "How long it took."}, []string{"why"})
	read("kerf_wait_seconds_bucket")
}

func ofAmount() labels { return labels{[]string{"grant", "uuid"}} }

func amounts() {
	one := ofAmount()
	one.gauge("kerf_amount_bytes", "How much it is.", get)
}

func (s shape) names() []string {
	switch s {
	case byGPU:
		return []string{"gpu", "gpu_uuid"}
	}
	return nil
}

func monitor() {
	gauge(up, "kerf_gpu_up", "Whether it answers.", byGPU)
}

func grants() {
	one := labels{[]string{"grant"}}
	one.and("level", get).and("state", get).gauge("kerf_grant_facts", "What it is.", get)
}
`)},
		"cmd/kerf-agent/more.go":        {Data: []byte("package main\n" + code)},
		"deploy/chart/templates/a.yaml": {Data: []byte("kerf.dev/deploy-agent: \"true\"\n" + chart)},
	}
	for _, dir := range folders() {
		out[dir+"/doc.go"] = &fstest.MapFile{Data: []byte("package " + dir + "\n")}
	}
	return out
}

func TestPages(t *testing.T) {
	t.Parallel()
	s, err := read(tree("", ""))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := s.pages()
	if err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string][]string{
		"metrics.md": {"## kerf-agent\n", "| `kerf_gpu_ok` | gauge | uuid, index | Whether it is. |\n",
			"| `kerf_grants` | gauge | state, uuid | How many there are. |\n",
			"| `kerf_wait_seconds` | histogram | why | How long it took. |\n",
			"| `kerf_amount_bytes` | gauge | grant, uuid | How much it is. |\n",
			"| `kerf_gpu_up` | gauge | gpu, gpu_uuid | Whether it answers. |\n",
			"| `kerf_grant_facts` | gauge | grant, level, state | What it is. |\n"},
		"events.md": {"| `GPUGone` | kerf-agent | of a pod: it is gone. |\n"},
		"keys.md": {
			"| `kerf.dev/gpu` | a number of GPUs. |\n", "| `kerf.dev/deploy-agent` | has a node \\| get an agent. |\n",
			"| `kerf.dev/gpu-model` of a pod, `gpu-model.kerf.dev/CONTAINER` for one container | globs. |\n",
		},
	} {
		for _, w := range want {
			if !strings.Contains(string(pages[page]), w) {
				t.Errorf("%s: no %q in\n%s", page, w, pages[page])
			}
		}
	}
}

// A name that is used and not declared is found, wherever it stands.
func TestUndeclared(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ code, chart, want string }{
		"a metric": {"var m = make(\"kerf_more_total\")\n", "",
			"kerf_more_total in cmd/kerf-agent/more.go"},
		"a reason of an event": {"func f() { k.Event(ctx, ref, \"Other\", \"text\", true) }\n", "",
			`"Other" in cmd/kerf-agent/more.go`},
		"a reason for the recorder": {"func f() { k.Eventf(pod, nil, kind, \"Other\", \"Doing\", \"%s\", text) }\n",
			"", `"Other" in cmd/kerf-agent/more.go`},
		"a reason without a comment": {"const reasonOther = \"Other\"\n", "", "the comment of reasonOther"},
		"a key in the code": {"var l = \"kerf.dev/colour\"\n", "",
			"kerf.dev/colour in cmd/kerf-agent/more.go"},
		"a key in the chart": {"", "kerf.dev/shade: dark\n",
			"kerf.dev/shade in deploy/chart/templates/a.yaml"},
		"a label without a comment": {"const labelHue = \"kerf.dev/hue\"\n", "", "labelHue has no comment"},
		"a label with another's name": {"// A comment.\nconst labelHue = \"kerf.dev/hue\"\n", "",
			"the comment of labelHue"},
		"nothing": {"var l, m = \"kerf.dev/gpu\", \"gpu-model.kerf.dev/\"\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := read(tree(tt.code, tt.chart))
			if err != nil {
				t.Fatal(err)
			}
			switch _, err := s.pages(); {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}
