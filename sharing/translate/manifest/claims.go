// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/translate"
)

// claimName is the name of a pod's claim, and of the request in its template.
const claimName = "gpu"

// claimsOf are the ResourceClaims of a pod, if pods are to request GPUs by these.
func (w *walk) claimsOf(before translate.Pod, change translate.Change) (translate.Claims, error) {
	if w.options.ByClaim == nil {
		return translate.Claims{}, nil
	}
	return w.options.ByClaim.Claims(change.Apply(before))
}

// claims has a pod reference ResourceClaims in place of its limits and annotations.
func (w *walk) claims(p pod, before translate.Pod, change translate.Change, claims translate.Claims) {
	if p.spec == nil {
		w.errs = append(w.errs, fmt.Errorf("%v: %w", p.in, sharing.Invalid("container "+p.containers[0].name, "",
			"write the ResourceClaims of its pods by hand", "has no place for resourceClaims")))
		return
	}
	w.result.Changed++
	w.changed = append(w.changed, p.in)
	for _, s := range claims.Differences {
		w.say(p.in, "%s", s)
	}
	names := podNames(p, before, claims)
	items := slices.Clone(content(get(p.spec, "resourceClaims")))
	for i, c := range p.containers {
		name := before.Containers[i].Name
		w.limits(c, append(change.Drop[name], ours(before.Containers[i].Limits)...), nil)
		of := name
		if same := claims.Same[name]; same != "" {
			of = same
		}
		claim, requests := claims.Of[of]
		if !requests {
			continue
		}
		w.reference(c, names[of])
		if of == name {
			w.gpus[p.node] += claim.Count
			w.template(p.in.namespace, claim)
			items = append(items, named("name", names[of], "resourceClaimTemplateName", claim.Name()))
		}
	}
	w.edits.put(p.spec, "resourceClaims", sequence(items))
	w.annotate(p, translate.Change{DropAnnotations: append(change.DropAnnotations, claims.DropAnnotations...)})
}

// ours are the limits of Kerf.
func ours(limits map[string]string) (out []string) {
	for name := range limits {
		if strings.HasPrefix(name, sharing.Domain+"/") {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// podNames are the names that the pod gives to the claims, by container.
func podNames(p pod, before translate.Pod, claims translate.Claims) map[string]string {
	taken := map[string]bool{}
	for _, item := range list(get(p.spec, "resourceClaims")) {
		taken[scalar(get(item, "name"))] = true
	}
	out := map[string]string{}
	for _, c := range before.Containers {
		if _, requests := claims.Of[c.Name]; !requests {
			continue
		}
		name := claimName
		if len(claims.Of) > 1 {
			name = claimName + "-" + strings.ReplaceAll(c.Name, "#", "-")
			name = strings.TrimRight(name[:min(50, len(name))], "-")
		}
		for taken[name] {
			name = "kerf-" + name
		}
		taken[name], out[c.Name] = true, name
	}
	return out
}

// reference has a container use a claim of its pod.
func (w *walk) reference(c container, claim string) {
	item := named("name", claim)
	e := find(c.node, c.resources)
	if !isMapping(e.value) {
		w.edits.put(c.node, c.resources, mappingOf("claims", sequence([]*yaml.Node{item})))
		return
	}
	w.edits.put(e.value, "claims", sequence(append(slices.Clone(content(get(e.value, "claims"))), item)))
}

// template notes the template of a claim, once for each namespace.
func (w *walk) template(namespace string, c translate.Claim) {
	t := template{namespace: namespace, claim: c}
	if !slices.ContainsFunc(w.templates, func(o template) bool { return o.key() == t.key() }) {
		w.templates = append(w.templates, t)
	}
}

// content are the items of a sequence as they are written.
func content(n *yaml.Node) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}

// named is a mapping of keys and names: key, name, key, name.
func named(words ...string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Style: yaml.FlowStyle}
	for _, w := range words {
		n.Content = append(n.Content, bare("!!str", w))
	}
	return n
}

func sequence(items []*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle, Content: items}
}

// limitsLeft has a sentence for each limit of Kerf that stays where pods request GPUs by claim. An empty namespace
// stands for all.
func limitsLeft(docs []*yaml.Node, namespace string) (out []string) {
	for _, doc := range docs {
		for _, n := range doc.Content {
			all := append(list(get(n, "items")), n)
			seen := map[*yaml.Node]bool{}
			for _, one := range all {
				out = append(out, limitsIn(one, namespace, seen)...)
			}
		}
	}
	return out
}

func limitsIn(n *yaml.Node, namespace string, seen map[*yaml.Node]bool) (out []string) {
	in := objectOf(n, object{})
	if unrelated(in, namespace) || in.kind == "ConfigMap" {
		return nil
	}
	words(n, 0, seen, func(scalar *yaml.Node) {
		switch name := unprefixed(scalar.Value); {
		case name == sharing.ResourceGPU, name == sharing.ResourceMemory, name == sharing.ResourcePercent,
			sharing.IsMIGResource(name):
			out = append(out, fmt.Sprintf("%v: line %d: %s stays; claims do not count as limits: count devices with "+
				"CLASS.deviceclass.resource.k8s.io/devices", in, scalar.Line, scalar.Value))
		}
	})
	return out
}
