// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package containerd is the one adapter to the container runtime.
//
// It reports the container runtime's version and features (Report, which Verdict evaluates for Kubernetes). As a second
// source next to NRI, it reports its containers (Containers) and their ends (Events). It also runs a container from an
// image (Create) for kerf run --image.
//
// It promises that every call ends: each has a deadline, and streams end with their context. A missing container
// runtime is no error of Open. It may come and go, and every call reports whether it reached it. Errors wrap the
// vocabulary of package sharing.
//
// It supports containerd from 1.7 on. It recognizes CRI-O and reads what CRI-O reports; CRI-O has no events and no
// images for kerf run. What is unknown is reported as unknown and never guessed.
package containerd

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// Problem is something about the container runtime that Kerf cannot work with in Kubernetes, or not safely.
type Problem struct {
	// Key names the problem for programs, such as "nri-off".
	Key string
	// Sentence says what is wrong and what follows.
	Sentence string
	// Remedy says what to do.
	Remedy string
	// Blocking is true when pods must not be started with grants; else it is a warning.
	Blocking bool
}

// String is the sentence with the remedy.
func (p Problem) String() string { return p.Sentence + "; " + p.Remedy }

const (
	restartIt = ", then restart containerd"
	enableNRI = `set disable = false under [plugins."io.containerd.nri.v1.nri"] in /etc/containerd/config.toml` +
		restartIt
	enableCDI = `set enable_cdi = true under [plugins."io.containerd.grpc.v1.cri"] in /etc/containerd/config.toml` +
		restartIt
	enableCDI2    = `set enable_cdi = true under [plugins."io.containerd.cri.v1.runtime"] in /etc/containerd/config.toml` + restartIt
	nvidiaRuntime = "nvidia-container-runtime"
)

// Verdict judges a runtime for Kubernetes. cdiDir is where Kerf's own CDI specs lie; empty leaves that out.
// It is pure: the same report gives the same problems, in the same order, the blocking ones first.
func Verdict(r Report, t Toolkit, cdiDir string) []Problem {
	var out []Problem
	add := func(blocking bool, key, sentence, remedy string) {
		out = append(out, Problem{Key: key, Sentence: sentence, Remedy: remedy, Blocking: blocking})
	}
	name := strings.TrimSpace(r.Name + " " + r.Version)
	if r.CRI == No {
		add(true, "cri-off", name+" does not serve kubelet: its CRI plugin is off",
			`take "cri" out of disabled_plugins in /etc/containerd/config.toml`+restartIt)
	}
	version, known := parseVersion(r.Version)
	old := r.tooOld(version)
	switch {
	case r.Name != NameContainerd && r.Name != NameCRIO:
		add(true, "runtime-unknown", fmt.Sprintf("%q is no container runtime that Kerf knows", name),
			"use containerd 2.1 or newer, containerd 1.7 or CRI-O")
	case !known:
		add(false, "version-unknown", fmt.Sprintf("the version %q of %s cannot be read", r.Version, r.Name),
			"see that it is containerd 2.1, 1.7.30 or CRI-O 1.34 at least")
	case old != (lack{}):
		add(true, "runtime-old", name+" is too old: "+old[0], old[1])
	}
	if old == (lack{}) {
		out = append(out, r.nriProblems(name)...)
		out = append(out, r.cdiProblems(name, version[0], cdiDir)...)
	}
	out = append(out, r.nvidiaProblems(t)...)
	out = append(out, r.mountProblems(t)...)
	out = append(out, r.annotationProblems()...)
	slices.SortStableFunc(out, func(a, b Problem) int {
		switch {
		case a.Blocking == b.Blocking:
			return 0
		case a.Blocking:
			return -1
		}
		return 1
	})
	return out
}

// lack is what a version cannot do that Kerf needs, and what to do about it.
type lack [2]string

// tooOld is what the version lacks.
func (r Report) tooOld(v release) lack {
	switch {
	case r.Name == NameContainerd:
		return lacks(v)
	case r.Name == NameCRIO && v.before(release{1, 34}):
		return lack{"its NRI does not tell plugins of CDI devices",
			"install CRI-O 1.34 or newer, with enable_nri = true"}
	}
	return lack{}
}

// lacks knows containerd by its source. From 1.7.30 and 2.1.0 on, and in no release of 2.0, its NRI gives containers
// the CDI devices that plugins name. Before, it drops them without an error.
func lacks(v release) lack {
	switch {
	case v.before(release{1, 7}):
		return lack{"it has no NRI or no CDI",
			"install containerd 2.1 or newer, or 1.7.30 with NRI and CDI switched on"}
	case v.before(release{1, 7, 30}):
		return lack{"its NRI drops the CDI devices that plugins give",
			"update to containerd 1.7.30, with NRI and CDI switched on, or to 2.1"}
	case v[0] == 2 && v[1] == 0:
		return lack{"its NRI drops the CDI devices that plugins give", "update to containerd 2.1 or newer"}
	}
	return lack{}
}

func (r Report) nriProblems(name string) []Problem {
	if r.NRI != No {
		return nil
	}
	p := Problem{
		Key: "nri-off", Blocking: true, Remedy: enableNRI,
		Sentence: name + " takes no NRI plugins, so containers cannot be given their GPUs",
	}
	if r.Name == NameCRIO {
		p.Remedy = "set enable_nri = true under [crio.nri] in a file of /etc/crio/crio.conf.d, then restart crio"
	}
	return []Problem{p}
}

func (r Report) cdiProblems(name string, major int, cdiDir string) []Problem {
	if r.CDI == No {
		p := Problem{Key: "cdi-off", Blocking: true, Remedy: enableCDI, Sentence: name +
			" does not resolve CDI names, so containers would start without guard and GPU"}
		if major >= 2 {
			p.Remedy = enableCDI2
		}
		return []Problem{p}
	}
	if cdiDir == "" || r.CDIDirs == nil {
		return nil
	}
	// /var/run is a link to /run everywhere that matters.
	same := func(d string) bool { return clean(d) == clean(cdiDir) }
	if slices.ContainsFunc(r.CDIDirs, same) {
		return nil
	}
	return []Problem{{
		Key: "cdi-dir", Blocking: true,
		Sentence: fmt.Sprintf("%s looks for CDI specs in %s, and not in %q where Kerf's are", name,
			strings.Join(r.CDIDirs, " and "), cdiDir),
		Remedy: "add it to cdi_spec_dirs of the runtime's configuration, or give kerf-agent --cdi-dir one of those",
	}}
}

func clean(dir string) string {
	if rest, ok := strings.CutPrefix(path.Clean(dir), "/var/run"); ok && (rest == "" || rest[0] == '/') {
		return "/run" + rest
	}
	return path.Clean(dir)
}

// IsNVIDIA tells whether the handler is NVIDIA's own runtime, which gives GPUs by environment variable.
func (h Handler) IsNVIDIA() bool { return strings.HasPrefix(path.Base(h.Binary), nvidiaRuntime) }

// nvidiaProblems finds the ways around every grant: a runtime that gives an image that merely says
// NVIDIA_VISIBLE_DEVICES=all every GPU.
func (r Report) nvidiaProblems(t Toolkit) []Problem {
	if t.Env == No {
		return nil
	}
	accepts := "accepts environment variables"
	if t.Env == Unknown {
		accepts = "may accept environment variables (" + t.Problem + ")"
	}
	remedy := fmt.Sprintf("in %s set accept-nvidia-visible-devices-envvar-when-unprivileged = false "+
		"(NVIDIA's own device plugin then needs accept-nvidia-visible-devices-as-volume-mounts = true)", t.Path)
	var out, others []Problem
	for _, h := range r.Handlers {
		switch {
		case !h.IsNVIDIA():
		case h.Name == r.DefaultRuntime:
			out = append(out, Problem{
				Key: "nvidia-default", Blocking: true,
				Sentence: fmt.Sprintf("the default runtime %q is NVIDIA's (%s) and %s: every image with "+
					"NVIDIA_VISIBLE_DEVICES=all would see every GPU", h.Name, h.Binary, accepts),
				Remedy: remedy + ", or make runc the default runtime",
			})
		default:
			others = append(others, Problem{
				Key: "nvidia-handler-" + h.Name,
				Sentence: fmt.Sprintf("the runtime %q is NVIDIA's (%s) and %s: a pod whose RuntimeClass names it "+
					"depends on NRI alone to be kept from every GPU", h.Name, h.Binary, accepts),
				Remedy: remedy,
			})
		}
	}
	return append(out, others...)
}

// mountProblems reports the way around the environment that NVIDIA's container runtime can have.
func (r Report) mountProblems(t Toolkit) []Problem {
	if t.Mounts != Yes || !slices.ContainsFunc(r.Handlers, Handler.IsNVIDIA) {
		return nil
	}
	return []Problem{{
		Key: "nvidia-mounts",
		Sentence: "NVIDIA's runtime takes mounts below /var/run/nvidia-container-devices for requests: a pod that " +
			"may mount /dev/null of its node there sees GPUs that it was not given",
		Remedy: "have tenants' namespaces enforce Pod Security baseline, which knows no hostPath; or, where NVIDIA's " +
			"own device plugin does not need it, set " +
			"accept-nvidia-visible-devices-as-volume-mounts = false in " + t.Path,
	}}
}

// annotationProblems finds patterns that let what a pod writes into the OCI spec under names that mean
// something to CDI or to Kerf.
func (r Report) annotationProblems() []Problem {
	var out []Problem
	for _, h := range r.Handlers {
		for _, pattern := range slices.Concat(h.PodAnnotations, h.ContainerAnnotations) {
			if !admits(pattern) {
				continue
			}
			out = append(out, Problem{
				Key: "annotations-" + h.Name, Blocking: true,
				Sentence: fmt.Sprintf(
					"the runtime %q passes annotations that match %q into containers, and with them names that are "+
						"CDI's or Kerf's", h.Name, pattern),
				Remedy: "narrow pod_annotations and container_annotations of that runtime to what it needs",
			})
			break
		}
	}
	return out
}

// admits tells whether a pattern matches a name that pods must not bring in.
func admits(pattern string) bool {
	for _, name := range []string{sharing.GrantAnnotation, "cdi.k8s.io/device"} {
		if ok, err := path.Match(pattern, name); err == nil && ok {
			return true
		}
		// CRI-O's are prefixes; and a star alone means everything, slashes too.
		if strings.HasSuffix(pattern, "*") && strings.HasPrefix(name, strings.TrimSuffix(pattern, "*")) ||
			pattern != "" && strings.HasPrefix(name, pattern) {
			return true
		}
	}
	return false
}
