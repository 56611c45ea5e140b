// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package podspec converts a pod's spec to Kerf's request. It calls no other component.
package podspec

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kerf-gpu/kerf/sharing"
)

// Convert returns what Kerf reads of a pod. Annotations and limits of others are left out, and ephemeral
// containers are: they can ask for nothing.
func Convert(p *corev1.Pod) sharing.Pod {
	out := sharing.Pod{
		UID: string(p.UID), Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName,
		Annotations: ours(p.Annotations), Labels: p.Labels, Terminal: Terminal(p), Claims: podClaims(p),
		Strong: strong(p),
	}
	if out.Node != "" { // its annotations may be those of an earlier version
		out.Annotations = sharing.CurrentAnnotations(out.Annotations)
	}
	if p.Spec.Priority != nil {
		out.Priority = *p.Spec.Priority
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		kind := sharing.ContainerInit
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			kind = sharing.ContainerSidecar
		}
		out.Containers = append(out.Containers, byClaim(p, sharing.PodContainer{Name: c.Name, Kind: kind,
			Limits: limits(c.Resources.Limits), Claims: claims(c)}))
	}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		out.Containers = append(out.Containers, byClaim(p, sharing.PodContainer{Name: c.Name,
			Limits: limits(c.Resources.Limits), Claims: claims(c)}))
	}
	return out
}

// podClaims are the ResourceClaims of a pod. That of a template has the name that the pod's status reports.
func podClaims(p *corev1.Pod) []sharing.PodClaim {
	var out []sharing.PodClaim
	for _, c := range p.Spec.ResourceClaims {
		one := sharing.PodClaim{Name: c.Name}
		if c.ResourceClaimName != nil {
			one.Claim = *c.ResourceClaimName
		}
		for _, s := range p.Status.ResourceClaimStatuses {
			if s.Name == c.Name && s.ResourceClaimName != nil {
				one.Claim = *s.ResourceClaimName
			}
		}
		out = append(out, one)
	}
	if e := p.Status.ExtendedResourceClaimStatus; e != nil {
		out = append(out, sharing.PodClaim{Name: extendedClaim, Claim: e.ResourceClaimName})
	}
	return out
}

// extendedClaim is the claim that the scheduler makes for limits that a DeviceClass maps. No name in a spec has a
// space.
const extendedClaim = "extended resources"

// byClaim has a container reference the scheduler's claim in place of the limits that this claim covers.
func byClaim(p *corev1.Pod, c sharing.PodContainer) sharing.PodContainer {
	e := p.Status.ExtendedResourceClaimStatus
	if e == nil {
		return c
	}
	for _, m := range e.RequestMappings {
		if _, has := c.Limits[m.ResourceName]; has && m.ContainerName == c.Name {
			delete(c.Limits, m.ResourceName)
			c.Claims = append(c.Claims, sharing.ContainerClaim{Name: extendedClaim, Request: m.RequestName})
		}
	}
	return c
}

// claims are the ResourceClaims that a container references.
func claims(c *corev1.Container) []sharing.ContainerClaim {
	var out []sharing.ContainerClaim
	for _, r := range c.Resources.Claims {
		out = append(out, sharing.ContainerClaim{Name: r.Name, Request: r.Request})
	}
	return out
}

// Terminal is true when no container of the pod starts again.
func Terminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// ours are the annotations kerf.dev/* and *.kerf.dev/*; nil when there are none.
func ours(all map[string]string) map[string]string {
	var out map[string]string
	for k, v := range all {
		domain, _, ok := strings.Cut(k, "/")
		if !ok || domain != sharing.Domain && !strings.HasSuffix(domain, "."+sharing.Domain) {
			continue
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[k] = v
	}
	return out
}

// limits are those of kerf.dev/*; nil when there are none.
func limits(all corev1.ResourceList) map[string]string {
	var out map[string]string
	for name, q := range all {
		if !strings.HasPrefix(string(name), sharing.Domain+"/") {
			continue
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[string(name)] = decimal(q)
	}
	return out
}

// decimal is the quantity's value: "10Gi" is 10737418240. A value that is not a 64-bit integer stays text, and its
// number parser rejects it.
func decimal(q resource.Quantity) string {
	v := q.Value()
	if resource.NewQuantity(v, resource.DecimalSI).Cmp(q) != 0 {
		return q.String()
	}
	return strconv.FormatInt(v, 10)
}
