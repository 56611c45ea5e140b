// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing/translate"
)

// foreign is true for a resource by which another tool requests NVIDIA's GPUs.
func foreign(name string) bool { return translate.OtherToolResource(name) }

// unprefixed is a resource without the prefix of quotas.
func unprefixed(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, "requests."), "limits.")
}

// deviceClasses are the DRA classes of NVIDIA's driver and of HAMi.
func deviceClasses() []string {
	return []string{"gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com", "hami-core-gpu.project-hami.io"}
}

const (
	remedyDRA      = "request kerf.dev/gpu in the container's limits"
	remedyClass    = "request class whole.kerf.dev or share.kerf.dev"
	remedyResource = "write kerf.dev limits"
	remedyClaim    = "write a ResourceClaimTemplate"
	remedyLabel    = "nodes of Kerf do not have this label; use the annotation kerf.dev/gpu-model"
	remedyVisible  = "Kerf sets it to void without a request; write kerf.dev limits"
)

// remains finds the requests that stay.
type remains struct {
	namespace string
	visible   map[*yaml.Node]bool
	// claims has for each ResourceClaim and template of the file whether it requests a GPU.
	claims map[string]bool
	// remedyDRA and remedyResource are for claims, and for other requests.
	remedyDRA, remedyResource string
	seen                      map[*yaml.Node]bool
	out                       []string
}

// left has a sentence for each request that stays in a file.
func (w *walk) left(docs []*yaml.Node) []string {
	r := &remains{namespace: w.options.Namespace, visible: w.visible, claims: map[string]bool{},
		seen: map[*yaml.Node]bool{}, remedyDRA: remedyDRA, remedyResource: remedyResource}
	if w.options.ByClaim != nil {
		r.remedyDRA, r.remedyResource = remedyClass, remedyClaim
	}
	for _, t := range w.templates {
		r.claims[t.claim.Name()] = false
	}
	for _, doc := range docs {
		for _, n := range doc.Content {
			r.claim(n)
			for _, item := range list(get(n, "items")) {
				r.claim(item)
			}
		}
	}
	for _, doc := range docs {
		r.node(doc, place{}, 0)
	}
	return r.out
}

// claim notes whether a ResourceClaim requests a GPU.
func (r *remains) claim(n *yaml.Node) {
	in := objectOf(n, object{})
	if in.kind != "ResourceClaim" && in.kind != "ResourceClaimTemplate" {
		return
	}
	r.claims[in.name] = r.claims[in.name] || false
	words(n, 0, map[*yaml.Node]bool{}, func(scalar *yaml.Node) {
		if slices.Contains(deviceClasses(), scalar.Value) {
			r.claims[in.name] = true
		}
	})
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

// value names a request in a value: a resource in a list, or a device class.
func (r *remains) value(n *yaml.Node, p place) {
	switch {
	case p.labels || p.annotations:
	case foreign(unprefixed(n.Value)):
		r.say(p, n.Line, n.Value, r.remedyResource)
	case slices.Contains(deviceClasses(), n.Value):
		r.say(p, n.Line, "device class "+n.Value, r.remedyDRA)
	}
}

func (r *remains) mapping(n *yaml.Node, p place, depth int) {
	if in := objectOf(n, p.in); in != p.in {
		p = place{in: in}
	}
	if unrelated(p.in, r.namespace) {
		return
	}
	if r.visible[n] {
		r.say(p, n.Line, "NVIDIA_VISIBLE_DEVICES", remedyVisible)
	}
	r.resourceClaim(n, p)
	r.expression(n, p)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := p
		at.path = strings.TrimPrefix(p.path+"."+key.Value, ".")
		at.labels = p.labels || labelled(key.Value)
		at.annotations = p.annotations || key.Value == "annotations"
		switch {
		case n == p.in.node && key.Value == "status":
			continue
		case p.labels:
			r.selector(key.Value, []string{scalar(value)}, key.Line, p)
		case p.annotations && translate.OtherToolAnnotation(key.Value),
			!p.annotations && foreign(unprefixed(key.Value)):
			r.say(p, key.Line, key.Value, r.remedyResource)
		case embedded(p, key.Value) && resourceWord.MatchString(scalar(value)):
			r.say(at, key.Line, "text with "+resourceWord.FindString(value.Value), "translate the text separately")
		case strings.HasPrefix(p.in.api, "run.ai/") && p.path == "spec" && strings.HasPrefix(key.Value, "gpu"):
			r.say(at, key.Line, "Run:ai's request", "write a Job or Deployment with kerf.dev limits")
		}
		r.node(value, at, depth+1)
	}
}

// labelled is true for keys with labels, selectors and taints below.
func labelled(key string) bool {
	switch key {
	case "labels", "nodeSelector", "matchLabels", "nodeLabels", "tolerations", "taints", "nodeTaints",
		"matchExpressions":
		return true
	}
	return false
}

// resourceWord is the name of a foreign resource in a text.
var resourceWord = regexp.MustCompile(`\b(nvidia\.com/(gpu|mig-)|volcano\.sh/v?gpu-)[a-z0-9.-]*`)

// embedded is true for a text that is a manifest itself.
func embedded(p place, key string) bool {
	return key == "manifest" || key == "podSpecPatch" || p.in.kind == "ConfigMap" && p.path == "data"
}

// resourceClaim names a pod's ResourceClaim that requests a GPU, or that the file does not have.
func (r *remains) resourceClaim(n *yaml.Node, p place) {
	for _, key := range []string{"resourceClaimName", "resourceClaimTemplateName"} {
		name := get(n, key)
		if name == nil || name.Kind != yaml.ScalarNode {
			continue
		}
		if gpu, known := r.claims[name.Value]; gpu {
			r.say(p, name.Line, "ResourceClaim "+name.Value+" requests a GPU and", r.remedyDRA)
		} else if !known {
			r.say(p, name.Line, "ResourceClaim "+name.Value+" can request a GPU and", r.remedyDRA)
		}
	}
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
	switch key {
	case "nvidia.com/gpu.product":
		if shared {
			r.say(p, line, key+" "+strings.Join(values, ","), remedyLabel)
		}
	case "nvidia.com/mps.capable", "nvidia.com/gpu.sharing-strategy", "nvidia.com/gpu.replicas",
		"cloud.google.com/gke-gpu-sharing-strategy", "cloud.google.com/gke-max-shared-clients-per-gpu",
		"cloud.google.com/gke-gpu-partition-size":
		r.say(p, line, key, remedyLabel)
	}
}
