// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/translate"
)

// foreign is true for a resource by which another tool requests NVIDIA's GPUs.
func foreign(name string) bool { return translate.OtherToolResource(name) }

// unprefixed is a resource without the prefix of quotas.
func unprefixed(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, "requests."), "limits.")
}

const (
	remedyDRA      = "request kerf.dev/gpu in the container's limits"
	remedyClass    = "request class whole.kerf.dev or share.kerf.dev"
	remedyResource = "write kerf.dev limits"
	remedyClaim    = "write a ResourceClaimTemplate"
	remedyLabel    = "nodes of Kerf do not have this label; use the annotation kerf.dev/gpu-model"
	remedySelector = "nodes of Kerf do not have this label; select attribute model in the claim"
	remedyText     = "translate the text separately"
	remedyVisible  = "Kerf sets it to void without a request; write kerf.dev limits"
)

// remains finds the requests that stay.
type remains struct {
	namespace string
	// excused are environment variables of containers that request a GPU of Kerf.
	excused map[*yaml.Node]bool
	// classes are the DeviceClasses of the file that select NVIDIA's GPUs.
	classes map[string]bool
	// claims has for each ResourceClaim and template of the file whether it requests a GPU.
	claims map[string]bool
	// remedyDRA, remedyResource and remedyLabel are for claims, for other requests and for node labels.
	remedyDRA, remedyResource, remedyLabel string
	seen                                   map[*yaml.Node]bool
	out                                    []string
}

// left has a sentence for each request that stays in a file.
func (w *walk) left(docs []*yaml.Node) []string {
	r := &remains{namespace: w.options.Namespace, excused: w.excused, claims: map[string]bool{},
		classes: map[string]bool{}, seen: map[*yaml.Node]bool{}, remedyDRA: remedyDRA, remedyResource: remedyResource,
		remedyLabel: remedyLabel}
	if w.options.ByClaim != nil {
		r.remedyDRA, r.remedyResource, r.remedyLabel = remedyClass, remedyClaim, remedySelector
	}
	for _, t := range w.templates {
		r.claims[t.claim.Name()] = false
	}
	objects := objectsOf(docs)
	for _, each := range []func(*yaml.Node){r.deviceClass, r.claim} {
		for _, n := range objects {
			each(n)
		}
	}
	for _, doc := range docs {
		r.node(doc, place{}, 0)
	}
	return r.out
}

// place is where in an object the search is.
type place struct {
	in   object
	path string
	// labels is true for labels and selectors, whose keys are no requests.
	labels, annotations bool
}

func (r *remains) say(p place, line int, what, remedy string) {
	path := ""
	if p.path != "" {
		path = p.path + ": "
	}
	r.out = append(r.out, fmt.Sprintf("%v: line %d: %s%s stays; %s", p.in, line, path, what, remedy))
}

func (r *remains) node(n *yaml.Node, p place, depth int) {
	n = deref(n)
	if n == nil || r.seen[n] || depth > deepest {
		return
	}
	r.seen[n] = true
	switch {
	case n.Kind == yaml.ScalarNode:
		r.value(n, p)
	case isMapping(n):
		r.mapping(n, p, depth)
	default:
		for _, c := range n.Content {
			r.node(c, p, depth+1)
		}
	}
}

// value names a request in a value: a resource in a list, a device class, or a request in a text.
func (r *remains) value(n *yaml.Node, p place) {
	switch word := requestIn(n.Value, false); {
	case p.labels:
	case p.annotations && word != "":
		r.say(p, n.Line, "text with "+word, remedyText)
	case p.annotations:
	case foreign(unprefixed(n.Value)):
		r.say(p, n.Line, n.Value, r.remedyResource)
	case slices.Contains(deviceClasses(), n.Value):
		r.say(p, n.Line, "device class "+n.Value, r.remedyDRA)
	case devicePath.MatchString(n.Value):
		r.say(p, n.Line, n.Value+" gives a GPU without a request and", r.remedyResource)
	case passthrough.MatchString(n.Value):
		r.say(p, n.Line, n.Value+" can request a GPU and", r.remedyResource)
	case word != "":
		r.say(p, n.Line, "text with "+word, remedyText)
	}
}

// devicePath is a device of NVIDIA, or a mount that has NVIDIA's container runtime add one.
var devicePath = regexp.MustCompile(`^(/dev/nvidia[0-9]*|/var/run/nvidia-container-devices/.+)$`)

// passthrough is a model of NVIDIA that KubeVirt gives to a virtual machine.
var passthrough = regexp.MustCompile(`^nvidia\.com/[A-Z][\w-]*$`)

func (r *remains) mapping(n *yaml.Node, p place, depth int) {
	if in := objectOf(n, p.in); in != p.in {
		p = place{in: in}
	}
	if unrelated(p.in, r.namespace) {
		return
	}
	if isVisible(n) && !r.excused[n] {
		r.say(p, n.Line, visibleDevices, remedyVisible)
	}
	r.runtimeClass(n, p)
	r.resourceClaim(n, p)
	r.className(n, p)
	r.expression(n, p)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := deref(n.Content[i]), deref(n.Content[i+1])
		at := p
		at.path = strings.TrimPrefix(p.path+"."+key.Value, ".")
		at.labels = p.labels || labelled(key.Value)
		at.annotations = p.annotations || strings.HasSuffix(strings.ToLower(key.Value), "annotations")
		if n == p.in.node && key.Value == "status" || key.Value == lastApplied || r.entry(n, key, value, p, at) {
			continue
		}
		r.node(value, at, depth+1)
	}
}

// lastApplied is an annotation with the object as it was. The next apply replaces it.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// entry names the request in one entry of a mapping. It is true if the search needs not go on below.
func (r *remains) entry(n, key, value *yaml.Node, p, at place) bool {
	switch word := requestIn(scalar(value), embedded(p, key.Value)); {
	case p.labels:
		r.selector(key.Value, []string{scalar(value)}, key.Line, p)
	case p.annotations && translate.OtherToolAnnotation(key.Value),
		!p.annotations && foreign(unprefixed(key.Value)):
		r.say(p, key.Line, key.Value, r.remedyResource)
	case p.annotations:
	case translate.MaybeGPUResource(unprefixed(key.Value)) && some(value):
		r.say(p, key.Line, key.Value+" can request a GPU and", r.remedyResource)
	case embedded(p, key.Value) && word != "":
		r.say(at, key.Line, "text with "+word, remedyText)
		return true
	case strings.HasPrefix(p.in.api, "run.ai/") && p.path == "spec" && strings.HasPrefix(key.Value, "gpu"):
		r.say(at, key.Line, "Run:ai's request", "write a Job or Deployment with kerf.dev limits")
	case key.Value == visibleDevices && !none(scalar(value)):
		r.say(p, key.Line, visibleDevices, remedyVisible)
	case sparkVendor.MatchString(key.Value) && scalar(value) == "nvidia.com":
		r.say(p, key.Line, key.Value, r.remedyResource)
	case own(n, key.Value, value, p.path):
		r.say(at, key.Line, "request for a GPU", r.remedyResource)
	}
	return false
}

// runtimeClass names the runtime class of NVIDIA in a pod without a request: it gives each GPU that the image names.
func (r *remains) runtimeClass(n *yaml.Node, p place) {
	class := get(n, "runtimeClassName")
	if !strings.HasPrefix(scalar(class), "nvidia") {
		return
	}
	requests := get(n, "resourceClaims") != nil
	for _, c := range append(list(get(n, "containers")), list(get(n, "initContainers"))...) {
		for _, part := range []string{"limits", "requests"} {
			for name := range texts(get(get(c, "resources"), part)) {
				requests = requests || foreign(name) || strings.HasPrefix(name, sharing.Domain+"/")
			}
		}
	}
	if !requests {
		r.say(p, class.Line, "runtimeClassName "+class.Value+" without a request", r.remedyResource)
	}
}

// labelled is true for keys with labels, selectors and taints below.
func labelled(key string) bool {
	switch key {
	case "labels", "selector", "tolerations", "taints", "nodeTaints", "matchExpressions":
		return true
	}
	return strings.HasSuffix(key, "Labels") || strings.HasSuffix(key, "Selector")
}

// embedded is true for a text that is a manifest itself.
func embedded(p place, key string) bool {
	return key == "manifest" || key == "podSpecPatch" || p.in.kind == "ConfigMap" && p.path == "data"
}

// expression names a match expression for a label that nodes of Kerf do not have.
func (r *remains) expression(n *yaml.Node, p place) {
	key := get(n, "key")
	if key == nil || get(n, "operator") == nil || get(n, "effect") != nil {
		return
	}
	var values []string
	for _, v := range list(get(n, "values")) {
		values = append(values, scalar(v))
	}
	r.selector(scalar(key), values, key.Line, p)
}

// selector names a label that only nodes with another tool's GPU sharing have.
func (r *remains) selector(key string, values []string, line int, p place) {
	shared := slices.ContainsFunc(values, func(v string) bool {
		return strings.HasSuffix(v, "-SHARED") || strings.Contains(v, "-MIG-")
	})
	switch {
	case key == "nvidia.com/gpu.product":
		if shared {
			r.say(p, line, key+" "+strings.Join(values, ","), r.remedyLabel)
		}
	case slices.Contains(sharingLabels(), key), strings.HasPrefix(key, "nvidia.com/mig-"):
		r.say(p, line, key, r.remedyLabel)
	}
}

// sharingLabels are labels of nodes with another tool's GPU sharing or MIG.
func sharingLabels() []string {
	return []string{"nvidia.com/mps.capable", "nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.replicas",
		"nvidia.com/mig.config", "nvidia.com/mig.config.state", "nvidia.com/mig.strategy",
		"nvidia.com/device-plugin.config", "cloud.google.com/gke-gpu-sharing-strategy",
		"cloud.google.com/gke-max-shared-clients-per-gpu", "cloud.google.com/gke-gpu-partition-size"}
}
