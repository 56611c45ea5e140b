// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// good is a containerd that lacks nothing.
func good() Report {
	return Report{
		Name: NameContainerd, Version: "2.4.2", CRI: Yes, NRI: Yes, CDI: Yes,
		CDIDirs:      []string{"/etc/cdi", "/var/run/cdi"},
		CgroupDriver: CgroupSystemd, DefaultRuntime: "runc",
		Handlers: []Handler{{Name: "runc", Type: runc, ContainerAnnotations: []string{"io.kubernetes.cri.*"}}},
	}
}

func TestVerdict(t *testing.T) {
	nvidia := Handler{Name: "nvidia", Type: runc, Binary: "/usr/bin/nvidia-container-runtime.cdi"}
	as := func(name, version string) func(*Report) {
		return func(r *Report) { r.Name, r.Version = name, version }
	}
	tests := map[string]struct {
		change  func(*Report)
		toolkit Answer
		dir     string
		// blocked and warned are the keys, in order; text is in the first problem.
		blocked, warned []string
		text            string
	}{
		"good":             {change: func(*Report) {}},
		"good with cri-o":  {change: as(NameCRIO, "1.34.2")},
		"1.7.30 is enough": {change: as(NameContainerd, "1.7.30")},
		"1.7.24": {change: as(NameContainerd, "1.7.24-0ubuntu1"), blocked: []string{"runtime-old"},
			text: "update to containerd 1.7.30"},
		"2.1 is enough": {change: as(NameContainerd, "2.1.0")},
		"2.0": {change: as(NameContainerd, "2.0.14"), blocked: []string{"runtime-old"},
			text: "drops the CDI devices"},
		"1.6": {change: as(NameContainerd, "1.6.20~ds1"), blocked: []string{"runtime-old"},
			text: "install containerd 2.1"},
		"1.6 without nri and cdi is one problem": {
			change: func(r *Report) { r.Version, r.NRI, r.CDI = "1.6.1", No, No }, blocked: []string{"runtime-old"},
		},
		"old cri-o":       {change: as(NameCRIO, "1.33.1"), blocked: []string{"runtime-old"}, text: "CRI-O 1.34"},
		"no version":      {change: as(NameContainerd, "devel"), warned: []string{"version-unknown"}, text: `"devel"`},
		"another runtime": {change: as("frakti", "3.1"), blocked: []string{"runtime-unknown"}, text: "frakti"},
		"docker's": {change: func(r *Report) { r.CRI = No }, blocked: []string{"cri-off"},
			text: "disabled_plugins"},
		"nri off in 1.7": {change: func(r *Report) { r.Version, r.NRI = "1.7.32", No }, blocked: []string{"nri-off"},
			text: `plugins."io.containerd.nri.v1.nri"`},
		"nri off in cri-o": {
			change: func(r *Report) { r.Name, r.Version, r.NRI = NameCRIO, "1.35.1", No }, blocked: []string{"nri-off"},
			text: "enable_nri = true",
		},
		"nri unknown": {change: func(r *Report) { r.NRI = Unknown }},
		"cdi off in 1.7": {change: func(r *Report) { r.Version, r.CDI = "1.7.32", No },
			blocked: []string{"cdi-off"}, text: `plugins."io.containerd.grpc.v1.cri"`},
		"cdi off in 2.1": {change: func(r *Report) { r.Version, r.CDI = "2.1.2", No },
			blocked: []string{"cdi-off"}, text: `plugins."io.containerd.cri.v1.runtime"`},
		"specs where it looks": {change: func(*Report) {}, dir: "/run/cdi/"},
		"specs elsewhere": {change: func(*Report) {}, dir: "/opt/cdi", blocked: []string{"cdi-dir"},
			text: `"/opt/cdi"`},
		"dirs unknown": {change: func(r *Report) { r.CDIDirs = nil }, dir: "/opt/cdi"},
		"nvidia by default": {
			change:  func(r *Report) { r.Handlers, r.DefaultRuntime = append(r.Handlers, nvidia), "nvidia" },
			toolkit: Yes, blocked: []string{"nvidia-default"},
			text: "accept-nvidia-visible-devices-envvar-when-unprivileged = false",
		},
		"nvidia by default, unknown": {
			change:  func(r *Report) { r.Handlers, r.DefaultRuntime = append(r.Handlers, nvidia), "nvidia" },
			toolkit: Unknown, blocked: []string{"nvidia-default"}, text: "torn file",
		},
		"nvidia by default, closed": {
			change:  func(r *Report) { r.Handlers, r.DefaultRuntime = append(r.Handlers, nvidia), "nvidia" },
			toolkit: No,
		},
		"nvidia next to": {change: func(r *Report) { r.Handlers = append(r.Handlers, nvidia) }, toolkit: Yes,
			warned: []string{"nvidia-handler-nvidia"}, text: "RuntimeClass"},
		"all annotations": {
			change:  func(r *Report) { r.Handlers[0].PodAnnotations = []string{"io.x/*", "*"} },
			blocked: []string{"annotations-runc"}, text: `"*"`,
		},
		"cdi annotations": {change: func(r *Report) { r.Handlers[0].ContainerAnnotations = []string{"cdi.k8s.io/*"} },
			blocked: []string{"annotations-runc"}},
		"our annotation": {change: func(r *Report) { r.Handlers[0].PodAnnotations = []string{"kerf.dev/gra?t"} },
			blocked: []string{"annotations-runc"}},
		"cri-o's prefix": {change: func(r *Report) { r.Handlers[0].PodAnnotations = []string{"cdi."} },
			blocked: []string{"annotations-runc"}},
		"blocking first": {
			change: func(r *Report) {
				r.Handlers = append(r.Handlers, nvidia)
				r.Handlers[0].PodAnnotations = []string{"*"}
			},
			toolkit: Yes, blocked: []string{"annotations-runc"}, warned: []string{"nvidia-handler-nvidia"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := good()
			tt.change(&r)
			toolkit := Toolkit{Path: ToolkitPath, Env: tt.toolkit}
			if tt.toolkit == Unknown {
				toolkit.Problem = "torn file"
			}
			var blocked, warned []string
			problems := Verdict(r, toolkit, tt.dir)
			for _, p := range problems {
				if p.Blocking {
					blocked = append(blocked, p.Key)
				} else {
					warned = append(warned, p.Key)
				}
				if p.Sentence == "" || p.Remedy == "" || strings.Contains(p.String(), "\n") {
					t.Errorf("problem without its words: %+v", p)
				}
			}
			if diff := cmp.Diff([2][]string{tt.blocked, tt.warned}, [2][]string{blocked, warned}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if tt.text != "" && !strings.Contains(problems[0].String(), tt.text) {
				t.Errorf("%q is not in %q", tt.text, problems[0])
			}
			for i := 1; i < len(problems); i++ {
				if problems[i].Blocking && !problems[i-1].Blocking {
					t.Errorf("warnings first: %v", problems)
				}
			}
		})
	}
}

func TestDefault(t *testing.T) {
	r := good()
	if h, ok := r.Default(); !ok || h.Name != "runc" {
		t.Errorf("got %+v, %t", h, ok)
	}
	r.DefaultRuntime, r.Handlers = "", []Handler{{}}
	if h, ok := r.Default(); ok {
		t.Errorf("got %+v", h)
	}
}
