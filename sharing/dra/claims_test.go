// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	gpuA = sharing.GPUID("GPU-aaaaaaaa-0000-4000-8000-000000000000")
	gpuB = sharing.GPUID("GPU-bbbbbbbb-0000-4000-8000-000000000000")
	uid1 = "11111111-0000-4000-8000-000000000000"
	uid2 = "22222222-0000-4000-8000-000000000000"
)

func gpus() []sharing.GPUID { return []sharing.GPUID{gpuA, gpuB} }

// share is a result of so many GiB and percent on a GPU.
func share(request string, gpu sharing.GPUID, memory, percent uint64) Result {
	return Result{Request: request, Pool: "node-1", Device: DeviceName(gpu, KindShare), ShareID: "s",
		Memory: memory * uint64(sharing.GiB), Percent: percent, StatesMemory: true}
}

func whole(request string, gpu sharing.GPUID) Result {
	return Result{Request: request, Pool: "node-1", Device: DeviceName(gpu, KindWhole)}
}

func instance(request string, gpu sharing.GPUID, profile string, start int) Result {
	name, _ := InstanceName(gpu, sharing.InstanceRef{Profile: profile, Start: start})
	return Result{Request: request, Pool: "node-1", Device: name}
}

func claim(uid, name string, results ...Result) Claim {
	return Claim{UID: uid, Namespace: "team", Name: name, Results: results}
}

// pod has the claims under their own names; each container is "name:claim/request,claim".
func pod(containers ...string) sharing.Pod {
	p := sharing.Pod{UID: "pod", Namespace: "team", Name: "train", Priority: 7}
	for _, name := range []string{"one", "two"} {
		p.Claims = append(p.Claims, sharing.PodClaim{Name: name, Claim: name})
	}
	for _, text := range containers {
		name, refs, _ := strings.Cut(text, ":")
		c := sharing.PodContainer{Name: name}
		if rest, is := strings.CutPrefix(name, "init-"); is {
			c.Name, c.Kind = rest, sharing.ContainerInit
		}
		for ref := range strings.SplitSeq(refs, ",") {
			claim, request, _ := strings.Cut(ref, "/")
			c.Claims = append(c.Claims, sharing.ContainerClaim{Name: claim, Request: request})
		}
		p.Containers = append(p.Containers, c)
	}
	return p
}

func config(parameters string, requests ...string) Config {
	return Config{Requests: requests, Parameters: []byte(
		`{"apiVersion":"gpu.kerf.dev/v1alpha1","kind":"GPUParameters"` + parameters + `}`)}
}

func ofClass(c Config) Config { c.FromClass = true; return c }

func TestRequests(t *testing.T) {
	with := func(c Claim, configs ...Config) Claim { c.Configs = configs; return c }
	for name, tc := range map[string]struct {
		pod    sharing.Pod
		claims []Claim
		// want has, for each container, "name kind request", and "with NAME" for a shared cap.
		want []string
	}{
		"one share": {pod("a:one"), []Claim{claim(uid1, "one", share("gpu", gpuA, 30, 25))},
			[]string{"a 30GiB and 25% of one GPU"}},
		"memory alone": {pod("a:one"), []Claim{claim(uid1, "one", share("gpu", gpuA, 30, 0))},
			[]string{"a 30GiB of one GPU"}},
		"a whole GPU": {pod("a:one"), []Claim{claim(uid1, "one", whole("gpu", gpuB))}, []string{"a 1 whole GPU"}},
		"a MIG instance": {pod("a:one"), []Claim{claim(uid1, "one", instance("gpu", gpuB, "1g.10gb+me", 6))},
			[]string{"a a MIG instance 1g.10gb+me"}},
		"two GPUs in one request": {pod("a:one"),
			[]Claim{claim(uid1, "one", share("gpu", gpuA, 10, 50), share("gpu", gpuB, 10, 50))},
			[]string{"a 20GiB and 100% over 2 GPUs"}},
		"two shares of one GPU are summed": {pod("a:one,two"),
			[]Claim{claim(uid1, "one", share("gpu", gpuA, 10, 20)), claim(uid2, "two", share("gpu", gpuA, 5, 10))},
			[]string{"a 15GiB and 30% of one GPU"}},
		"each container its request": {pod("a:one/x", "b:one/y"),
			[]Claim{claim(uid1, "one", share("x", gpuA, 10, 0), share("y", gpuA, 20, 0))},
			[]string{"a 10GiB of one GPU", "b 20GiB of one GPU"}},
		"two containers share one cap": {pod("a:one", "b:one"), []Claim{claim(uid1, "one", share("gpu", gpuA, 11, 25))},
			[]string{"a 5.5GiB and 13% of one GPU, together 11GiB and 25% of one GPU",
				"b 5.5GiB and 12% of one GPU, together 11GiB and 25% of one GPU with a"}},
		"an init container uses the grant of the app container": {pod("init-i:one", "a:one"),
			[]Claim{claim(uid1, "one", share("gpu", gpuA, 10, 0))}, []string{"a 10GiB of one GPU"}},
		"init containers alone": {pod("init-i:one", "init-j:one"),
			[]Claim{claim(uid1, "one", share("gpu", gpuA, 10, 0))}, []string{"i 10GiB of one GPU"}},
		"a claim of another driver": {pod("a:one,two"), []Claim{claim(uid1, "one", share("gpu", gpuA, 10, 0))},
			[]string{"a 10GiB of one GPU"}},
		"a subrequest": {pod("a:one/gpu"), []Claim{claim(uid1, "one", share("gpu/small", gpuA, 10, 0))},
			[]string{"a 10GiB of one GPU"}},
		"no container uses the claim": {pod("a:two"), []Claim{claim(uid1, "one", share("gpu", gpuA, 10, 0))}, nil},
		"equal amounts in the parameters": {pod("a:one"), []Claim{with(claim(uid1, "one", share("gpu", gpuA, 10, 25)),
			config(`,"memory":"10Gi","percent":25,"gpuCount":1,"minEnforcement":"driver"`))},
			[]string{"a 10GiB and 25% of one GPU"}},
		"parameters of the class count if the claim has none": {pod("a:one"),
			[]Claim{with(claim(uid1, "one", share("gpu", gpuA, 10, 0)),
				Config{FromClass: true, Parameters: config(`,"minEnforcement":"driver"`).Parameters})},
			[]string{"a 10GiB of one GPU"}},
	} {
		t.Run(name, func(t *testing.T) {
			asks, err := Requests(tc.pod, tc.claims, gpus())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range asks {
				text := a.Ref.Container + " " + a.Request.String()
				if a.SharedCap.GPUs > 0 {
					text += ", together " + a.SharedCap.String()
				}
				if a.With != "" {
					text += " with " + a.With
				}
				got = append(got, text)
				if err := a.Request.Validate(); err != nil || a.Priority != 7 || !sharing.OfClaims(a.Requests) ||
					len(a.Advice.GPUs) != a.Request.GPUs || !a.Advice.Exact {
					t.Errorf("%+v: %v", a, err)
				}
			}
			if strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRequestsAreRejected(t *testing.T) {
	with := func(c Claim, configs ...Config) []Claim { c.Configs = configs; return []Claim{c} }
	small := claim(uid1, "one", share("gpu", gpuA, 10, 25))
	percent := share("gpu", gpuA, 80, 25)
	percent.StatesMemory = false
	admin := share("see", gpuA, 0, 0)
	admin.Admin = true
	odd := share("gpu", gpuA, 10, 0)
	odd.Memory++
	for name, tc := range map[string]struct {
		pod    sharing.Pod
		claims []Claim
		is     error
		text   string
	}{
		"percent alone": {pod("a:one"), []Claim{claim(uid1, "one", percent)}, sharing.ErrInvalid, "states no memory"},
		"no memory": {pod("a:one"), []Claim{claim(uid1, "one", share("gpu", gpuA, 0, 25))}, sharing.ErrInvalid,
			"out of range"},
		"huge memory": {pod("a:one"), []Claim{claim(uid1, "one", share("gpu", gpuA, 1<<20, 25))}, sharing.ErrInvalid,
			"out of range"},
		"no whole GiB": {pod("a:one"), []Claim{claim(uid1, "one", odd)}, sharing.ErrInvalid, "whole GiB"},
		"too much percent": {pod("a:one"), []Claim{claim(uid1, "one", share("gpu", gpuA, 10, 101))}, sharing.ErrInvalid,
			"at most 100"},
		"too much percent together": {pod("a:one"),
			[]Claim{claim(uid1, "one", share("x", gpuA, 10, 60), share("y", gpuA, 10, 60))}, sharing.ErrInvalid,
			"120%"},
		"admin access and a share": {pod("a:one"), []Claim{claim(uid1, "one", share("gpu", gpuA, 10, 0), admin)},
			sharing.ErrUnsupported, "admin access and a GPU"},
		"an unknown GPU": {pod("a:one"), []Claim{claim(uid1, "one", share("gpu", "GPU-x", 10, 0))}, sharing.ErrNotFound,
			"no such GPU"},
		"share and whole GPU": {pod("a:one"), []Claim{claim(uid1, "one", share("x", gpuA, 10, 0), whole("y", gpuB))},
			sharing.ErrUnsupported, "one kind"},
		"other amounts per GPU": {pod("a:one"),
			[]Claim{claim(uid1, "one", share("x", gpuA, 10, 0), share("y", gpuB, 11, 0))}, sharing.ErrUnsupported,
			"differ"},
		"two MIG instances": {pod("a:one"), []Claim{claim(uid1, "one", instance("x", gpuA, "1g.10gb", 6),
			instance("y", gpuB, "1g.10gb", 6))}, sharing.ErrUnsupported, "2 MIG instances"},
		"a MIG instance by a profile": {pod("a:one"), with(claim(uid1, "one", instance("x", gpuA, "1g.10gb", 6)),
			config(`,"profile":"large"`)), sharing.ErrInvalid, "profile"},
		"a MIG instance of no profile": {pod("a:one"), []Claim{claim(uid1, "one", instance("x", gpuA, "1x", 6))},
			sharing.ErrNotFound, "no such GPU"},
		"a claim that is shared in part": {pod("a:one", "b:one,two"),
			[]Claim{small, claim(uid2, "two", share("gpu", gpuA, 10, 25))}, sharing.ErrUnsupported, "share a claim"},
		"less than 1% each": {pod("a:one", "b:one"), []Claim{claim(uid1, "one", share("gpu", gpuA, 10, 1))},
			sharing.ErrUnsupported, "1% or more"},
		"two configs":   {pod("a:one"), with(small, config(""), config("", "gpu")), sharing.ErrInvalid, "2 configs"},
		"unknown field": {pod("a:one"), with(small, config(`,"memori":"10Gi"`)), sharing.ErrInvalid, "memori"},
		"a field of profiles": {pod("a:one"), with(small, config(`,"maxBurstMemory":"10Gi"`)), sharing.ErrInvalid,
			"only a profile"},
		"zero":     {pod("a:one"), with(small, config(`,"memory":"0"`)), sharing.ErrInvalid, "memory"},
		"negative": {pod("a:one"), with(small, config(`,"percent":-1`)), sharing.ErrInvalid, "percent"},
		"huge":     {pod("a:one"), with(small, config(`,"memory":"99999Ti"`)), sharing.ErrInvalid, "memory"},
		"other amounts": {pod("a:one"), with(small, config(`,"memory":"20Gi"`)), sharing.ErrInvalid,
			"scheduler allocated"},
		"another type": {pod("a:one"), with(small, Config{Parameters: []byte(`{"kind":"GpuConfig"}`)}),
			sharing.ErrInvalid, "another type"},
		"no object": {pod("a:one"), with(small, Config{Parameters: []byte(`[]`)}), sharing.ErrInvalid, "parameters"},
		"data behind": {pod("a:one"), with(small, Config{Parameters: append(config("").Parameters, "{}"...)}),
			sharing.ErrInvalid, "data after"},
		"profile and sharing": {pod("a:one", "b:one"), with(small, config(`,"profile":"small"`)), sharing.ErrInvalid,
			"profile"},
		"two parameters": {pod("a:one,two"), []Claim{small, with(claim(uid2, "two", share("gpu", gpuA, 10, 25)),
			config(`,"minEnforcement":"driver"`))[0]}, sharing.ErrUnsupported, "different parameters"},
	} {
		t.Run(name, func(t *testing.T) {
			asks, err := Requests(tc.pod, tc.claims, gpus())
			if !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.text) || asks != nil {
				t.Errorf("got %v, %v", asks, err)
			}
		})
	}
}

// TestWholeForSeveralContainers: each container that references a whole GPU or a MIG instance has all of it.
func TestWholeForSeveralContainers(t *testing.T) {
	for name, result := range map[string]Result{
		"whole GPU": whole("x", gpuA), "MIG instance": instance("x", gpuA, "1g.10gb", 6),
	} {
		asks, err := Requests(pod("a:one", "b:one"), []Claim{claim(uid1, "one", result)}, gpus())
		if err != nil || len(asks) != 2 {
			t.Fatalf("%s: %+v, %v", name, asks, err)
		}
		for _, a := range asks {
			if a.Request.Kind == sharing.KindShared || !slices.Equal(a.Advice.GPUs, []sharing.GPUID{gpuA}) ||
				a.With != "" || a.SharedCap.GPUs != 0 || !slices.Equal(a.Requests, asks[0].Requests) {
				t.Errorf("%s: %+v", name, a)
			}
		}
	}
}

// TestAdminAccess: a claim gives the GPUs, whatever device of theirs was allocated, and no grant.
func TestAdminAccess(t *testing.T) {
	seeA, seeB := whole("see", gpuA), instance("see", gpuB, "1g.10gb", 6)
	seeA.Admin, seeB.Admin = true, true
	c := claim(uid1, "one", seeA, seeB)
	asks, err := Requests(pod("a:one", "b:two"), []Claim{c, claim(uid2, "two", share("gpu", gpuA, 10, 0))}, gpus())
	if err != nil || len(asks) != 1 || asks[0].Ref.Container != "b" {
		t.Errorf("%+v, %v", asks, err)
	}
	if got := c.ResourceRequests(); len(got) != 0 {
		t.Errorf("requests %v", got)
	}
	for i, want := range []sharing.GPUID{gpuA, gpuB} {
		if got := c.Results[i].AdminGPUs(gpus()); !slices.Equal(got, []sharing.GPUID{want}) {
			t.Errorf("result %d: %q", i, got)
		}
	}
	if got := share("gpu", gpuA, 10, 0).AdminGPUs(gpus()); got != nil {
		t.Errorf("a share gives admin access to %q", got)
	}
	all := Result{Request: "all", Device: MonitorDevice, Admin: true}
	if got := all.AdminGPUs(gpus()); !slices.Equal(got, gpus()) {
		t.Errorf("the monitor has %q", got)
	}
	if err := claim(uid1, "one", all).Check(gpus()); err != nil {
		t.Error(err)
	}
	all.Admin = false
	if err := claim(uid1, "one", all).Check(gpus()); !errors.Is(err, sharing.ErrInvalid) ||
		!strings.Contains(err.Error(), "adminAccess: true") {
		t.Errorf("without admin access: %v", err)
	}
	if s := Status(c, nil, gpus(), nil); len(s) != 2 || !s[0].Ready || s[0].Reason != ReasonAdmin || s[0].GPU != gpuA {
		t.Errorf("status %+v", s)
	}
}

// TestConfigOfASubrequest: the config of a subrequest counts if the scheduler chose that one, and the config of its
// request always.
func TestConfigOfASubrequest(t *testing.T) {
	for name, tc := range map[string]struct {
		configs []Config
		want    string
	}{
		"of the subrequest":          {[]Config{config(`,"profile":"a"`, "gpu/share")}, "a"},
		"of the request":             {[]Config{config(`,"profile":"a"`, "gpu")}, "a"},
		"of another subrequest":      {[]Config{config(`,"profile":"a"`, "gpu/whole")}, ""},
		"of another request":         {[]Config{config(`,"profile":"a"`, "other")}, ""},
		"one for each":               {[]Config{config(`,"profile":"a"`, "gpu/share"), config("", "other")}, "a"},
		"of the class of subrequest": {[]Config{ofClass(config(`,"profile":"a"`, "gpu/share"))}, "a"},
	} {
		c := claim(uid1, "one", share("gpu/share", gpuA, 10, 0), share("other", gpuB, 10, 0))
		c.Configs = tc.configs
		asks, err := Requests(pod("a:one/gpu"), []Claim{c}, gpus())
		if err != nil || len(asks) != 1 || asks[0].Request.Profile != tc.want {
			t.Errorf("%s: %+v, %v, want profile %q", name, asks, err, tc.want)
		}
	}
	c := claim(uid1, "one", share("gpu/share", gpuA, 10, 0), share("other", gpuB, 10, 0))
	for text, configs := range map[string][]Config{
		"backends":  {config(`,"backends":["mps"]`, "gpu/share")},
		"2 configs": {config(`,"profile":"a"`, "gpu/share"), config(`,"profile":"a"`, "gpu")},
	} {
		c.Configs = configs
		if err := c.Check(gpus()); !errors.Is(err, sharing.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzParameters: what is accepted is within its bounds.
func FuzzParameters(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add(config(`,"memory":"10Gi","percent":25,"gpuCount":1,"gpuModel":["*H100*"]`).Parameters)
	f.Add(config(`,"placementPolicy":"spread"`).Parameters)
	f.Add(config(`,"profile":"small","minEnforcement":"driver"`).Parameters)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParseParameters(data)
		if err != nil {
			if !errors.Is(err, sharing.ErrInvalid) {
				t.Errorf("%q: %v", data, err)
			}
			return
		}
		if p.Memory > maxMemory || p.Memory%sharing.GiB != 0 || p.GPUs < 0 || p.GPUs > sharing.MaxGPUs {
			t.Errorf("%q: %+v", data, p)
		}
	})
}
