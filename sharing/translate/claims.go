// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

// Claim is the request of a ResourceClaim.
type Claim struct {
	// Class is the device class, and Count the number of devices, each of another GPU.
	Class string
	Count int
	// GiB and Percent are the amounts of each device; 0 for none.
	GiB, Percent uint64
	// MIG is the profile of a MIG instance, as in the name of a resource; empty for none.
	MIG string
	// Selectors are CEL expressions over a device, besides the one for the profile.
	Selectors []string
	// Profile and MinLevel are opaque parameters; empty for none.
	Profile, MinLevel string
}

// Claims are what the containers of a pod reference in place of limits and annotations.
type Claims struct {
	// Of has the request of each container, and Same the container whose claim it references; by container.
	Of   map[string]Claim
	Same map[string]string
	// DropAnnotations are the annotations that the claims have taken over.
	DropAnnotations []string
	// Differences has a sentence for all that is not exactly as it was.
	Differences []string
}

// ClaimOptions say what a request by limits does not.
type ClaimOptions struct {
	// Memory is that of one GPU. It makes memory of a percentage; 0 is not known.
	Memory sharing.Bytes
}

// Claims says how a pod with limits of Kerf requests the same by ResourceClaims. Every problem is in the error, each a
// *sharing.FieldError.
func (o ClaimOptions) Claims(p Pod) (Claims, error) {
	out := Claims{Of: map[string]Claim{}, Same: map[string]string{}}
	asks, kept, err := requestsOf(p)
	if err != nil {
		return out, err
	}
	var errs []error
	for _, a := range asks {
		r := a.Request
		if a.SharedCap.GPUs > 0 {
			r = a.SharedCap
		}
		name := a.Ref.Container
		if a.With != "" {
			out.Same[name] = a.With
			continue
		}
		claim, err := o.claim(&out, name, r)
		if err != nil {
			errs = append(errs, fmt.Errorf("container %s: %w", name, err))
			continue
		}
		out.Of[name] = claim
	}
	for _, a := range asks {
		if a.Kind == sharing.ContainerInit {
			out.initContainer(a.Ref.Container, asks)
		}
	}
	if len(asks) > 0 {
		out.DropAnnotations = kept
	}
	return out, errors.Join(errs...)
}

// requestsOf are the requests of the containers, and the annotations that belong to them.
func requestsOf(p Pod) (asks []sharing.ContainerRequest, annotations []string, err error) {
	var errs []error
	for _, c := range p.Containers {
		r, requests, err := sharing.RequestFromResources(c.Limits, p.Annotations, c.Name)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("container %s: %w", c.Name, err))
		case requests:
			one := sharing.ContainerRequest{Ref: sharing.ContainerRef{Container: c.Name}, Request: r,
				With: sharing.ShareWith(p.Annotations, c.Name)}
			if c.Init {
				one.Kind = sharing.ContainerInit
			}
			asks = append(asks, one)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.Annotations)) {
		domain, _, _ := strings.Cut(key, "/")
		if domain == sharing.Domain && ofRequest(strings.TrimPrefix(key, sharing.Domain+"/")) ||
			ofRequest(strings.TrimSuffix(domain, "."+sharing.Domain)) {
			annotations = append(annotations, key)
		}
	}
	if profile := p.Annotations[sharing.Domain+"/profile"]; profile != "" && len(asks) == 0 && len(errs) == 0 {
		errs = append(errs, sharing.Invalid("annotation "+sharing.Domain+"/profile", profile,
			"write the amounts of the profile as limits of a container",
			"has no counterpart alone: a claim states amounts"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	asks, err = sharing.MergeSharedCaps(asks)
	return asks, annotations, err
}

// ofRequest is true for the key of an annotation that refines a request.
func ofRequest(key string) bool {
	return slices.Contains([]string{"profile", "min-enforcement", "gpu-count", "gpu-model", "gpu-uuid",
		"placement-policy", "share-cap-with"}, key)
}

// initContainer has an init container reference the claim of an equal app container, which runs after it.
func (c *Claims) initContainer(name string, asks []sharing.ContainerRequest) {
	for _, a := range asks {
		other := a.Ref.Container
		if a.Kind != sharing.ContainerInit && a.With == "" && c.Of[other].Name() == c.Of[name].Name() {
			c.Same[name] = other
			delete(c.Of, name)
			return
		}
	}
	if len(c.Of) > 1 {
		c.Differences = append(c.Differences, "container "+name+
			": its claim lasts as long as the pod, and takes GPU memory in addition to the other containers")
	}
}

// claim is the claim of one container.
func (o ClaimOptions) claim(out *Claims, name string, r sharing.Request) (Claim, error) {
	c := Claim{Count: max(1, r.GPUs), Profile: r.Profile, Selectors: append(models(r.Models), uuids(r.UUIDs)...)}
	if r.Place != sharing.PlaceDefault {
		out.Differences = append(out.Differences, fmt.Sprintf("container %s: placement policy %s is left out: "+
			"kube-scheduler takes the first device that fits", name, r.Place))
	}
	switch r.Kind {
	case sharing.KindWhole:
		c.Class = dra.ClassWhole
		return c, nil
	case sharing.KindMIG:
		c.Class, c.MIG = dra.ClassMIG, strings.ReplaceAll(r.MIG, "+", ".")
		if r.MinLevel == sharing.LevelExclusive {
			return c, tooStrong(r.MinLevel)
		}
		return c, nil
	case sharing.KindShared:
	}
	c.Class = dra.ClassShare
	if r.Memory == 0 {
		n := sharing.Bytes(c.Count) //nolint:gosec // 1 to 64
		each := o.Memory * sharing.Bytes(r.Percent) / sharing.Bytes(sharing.FullGPU) / n
		if r.Memory = each / sharing.GiB * sharing.GiB * n; r.Memory == 0 {
			return c, sharing.Invalid(sharing.ResourcePercent, r.Percent.String(),
				"say the memory of one GPU (--gpu-memory), or request memory",
				"states no memory, and a claim states both")
		}
		out.Differences = append(out.Differences, fmt.Sprintf("container %s: %s of a GPU with %s is %s of memory", name,
			r.Percent, o.Memory, r.Memory))
	}
	return o.share(c, r)
}

// share has the amounts and levels of a share of a GPU.
func (ClaimOptions) share(c Claim, r sharing.Request) (Claim, error) {
	n := uint64(c.Count) //nolint:gosec // 1 to 64
	each := uint64(r.Memory) / n
	c.GiB = (each + uint64(sharing.GiB) - 1) / uint64(sharing.GiB)
	c.Percent = uint64(r.Percent) / n
	switch {
	case r.MinLevel > sharing.LevelDriver:
		return c, tooStrong(r.MinLevel)
	case r.MinLevel > sharing.LevelNone:
		c.MinLevel = r.MinLevel.String()
		c.Selectors = append(c.Selectors, levels(r.MinLevel))
	}
	return c, nil
}

func tooStrong(l sharing.Level) error {
	return sharing.Invalid("annotation "+sharing.Domain+"/min-enforcement", l.String(),
		"request a whole GPU (exclusive) or a MIG instance (hardware)", "is a level that no such device has")
}

// Name is the name of the template. Equal claims have the same name, and different ones another.
func (c Claim) Name() string {
	name := "gpu-" + strings.TrimSuffix(c.Class, "."+sharing.Domain)
	switch {
	case c.GiB > 0:
		name = fmt.Sprintf("gpu-%dgib", c.GiB)
	case c.MIG != "":
		name += "-" + c.MIG
	}
	if c.Percent > 0 {
		name += fmt.Sprintf("-%dpercent", c.Percent)
	}
	if c.Count > 1 {
		name += fmt.Sprintf("-x%d", c.Count)
	}
	if len(c.Selectors) > 0 || c.Profile != "" || c.MinLevel != "" {
		name += "-" + digest(c)
	}
	return name
}

// Expressions are all its selectors.
func (c Claim) Expressions() []string {
	if c.MIG == "" {
		return c.Selectors
	}
	return append([]string{attribute("profile") + ".replace('+', '.') == " + text(c.MIG)}, c.Selectors...)
}
