// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"maps"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/runtime-tools/generate"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// specGen is what a runtime gives NRI to write the OCI spec with, as containerd 2.4 behaves.
type specGen struct {
	generate.UnderlyingGenerator // what adjustments of this plugin never need
	spec                         *specs.Spec
}

// applied is the spec of a container with its adjustment, as the container runtime makes it. If cdi is not nil, it
// resolves CDI devices.
func applied(c *api.Container, a *api.ContainerAdjustment, cdi func(*specs.Spec, []string) error) (*specs.Spec, error) {
	g := &specGen{spec: &specs.Spec{Process: &specs.Process{Env: append([]string(nil), c.GetEnv()...)},
		Annotations: map[string]string{}, Linux: &specs.Linux{}}}
	maps.Copy(g.spec.Annotations, c.GetAnnotations())
	if cdi == nil {
		cdi = func(*specs.Spec, []string) error { return nil }
	}
	return g.spec, generate.SpecGenerator(g, generate.WithCDIDeviceInjector(cdi)).Adjust(a)
}

func (g *specGen) Spec() *specs.Spec { return g.spec }

func (g *specGen) ClearProcessEnv() { g.spec.Process.Env = nil }

func (g *specGen) AddProcessEnv(name, value string) {
	for i, e := range g.spec.Process.Env {
		if strings.HasPrefix(e, name+"=") {
			g.spec.Process.Env[i] = name + "=" + value
			return
		}
	}
	g.spec.Process.Env = append(g.spec.Process.Env, name+"="+value)
}

func (g *specGen) AddAnnotation(key, value string) { g.spec.Annotations[key] = value }

func (g *specGen) RemoveAnnotation(key string) { delete(g.spec.Annotations, key) }

// envOf are the values of a variable, in order.
func envOf(s *specs.Spec, name string) []string {
	var out []string
	for _, e := range s.Process.Env {
		if key, value, _ := strings.Cut(e, "="); key == name {
			out = append(out, value)
		}
	}
	return out
}
