// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/kerf-gpu/kerf/sharing"
)

// sourceAnnotation is where kubelet says where a pod's spec came from; sourceAPI is the API server. A static
// pod comes from a file, and the API server knows it only by a mirror of another UID.
const (
	sourceAnnotation = "kubernetes.io/config.source"
	sourceAPI        = "api"
)

// sandbox is a pod as the container runtime tells of it.
type sandbox struct {
	uid, namespace, name string
	annotations          map[string]string
}

func sandboxOf(p *api.PodSandbox) sandbox {
	return sandbox{uid: p.GetUid(), namespace: p.GetNamespace(), name: p.GetName(),
		annotations: sharing.CurrentAnnotations(p.GetAnnotations())}
}

// String returns "namespace/name".
func (b sandbox) String() string { return b.namespace + "/" + b.name }

func (b sandbox) fromAPI() bool { return b.annotations[sourceAnnotation] == sourceAPI }

func (b sandbox) ref(container string) sharing.ContainerRef {
	return sharing.ContainerRef{PodUID: b.uid, Namespace: b.namespace, Pod: b.name, Container: container}
}

// podAsks are the requests of all containers of the pod that request a share of a GPU, from its spec and the
// sandbox's annotations. The error has every problem of the pod, each a *sharing.FieldError.
func podAsks(pod sharing.Pod, box sandbox) ([]sharing.ContainerRequest, error) {
	var asks []sharing.ContainerRequest
	var errs []error
	for _, c := range pod.Containers {
		if len(c.Limits) == 0 {
			continue
		}
		req, ok, err := sharing.RequestFromResources(c.Limits, box.annotations, c.Name)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("container %q: %w", c.Name, err))
		case ok:
			asks = append(asks, sharing.ContainerRequest{
				Ref: box.ref(c.Name), Kind: c.Kind, Requests: sharing.ResourceRequestsOf(c.Limits), Request: req,
				Advice: sharing.Planned(box.annotations, c.Name), Priority: pod.Priority,
				With: sharing.ShareWith(box.annotations, c.Name),
			})
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return sharing.MergeSharedCaps(asks)
}

// sharers are the requests of all containers that share one cap with this one, including its own as kubelet admitted
// it. The others come from the pod's spec; each is compared with kubelet's when its container is created. It returns
// none if the cap is not shared or the pod is unknown.
func sharers(box sandbox, pod sharing.Pod, own sharing.ContainerRequest) ([]sharing.ContainerRequest, error) {
	if pod.UID == "" || sharing.OfClaims(own.Requests) || !sharing.SharesCap(box.annotations, own.Ref.Container) {
		return nil, nil
	}
	all, err := podAsks(pod, box)
	if err != nil {
		return nil, err
	}
	for i, a := range all {
		if a.Ref.Container == own.Ref.Container {
			all[i] = own
		}
	}
	if all, err = sharing.MergeSharedCaps(all); err != nil {
		return nil, err
	}
	root := cmp.Or(own.With, own.Ref.Container)
	return slices.DeleteFunc(all, func(a sharing.ContainerRequest) bool {
			return cmp.Or(a.With,
				a.Ref.Container) != root
		}),
		nil
}

// containerAsk is what a guarded container is to get: the amounts that kubelet admitted it with. The pod is empty where
// it is not known.
func containerAsk(box sandbox, container string, pod sharing.Pod, a sharing.Admitted) (sharing.ContainerRequest,
	error) {
	if sharing.OfClaims(a.Requests) {
		return sharing.ContainerRequest{Ref: box.ref(container), Kind: kindOf(pod, container),
			Requests: slices.Clone(a.Requests),
			Priority: pod.Priority, ExistingOnly: true}, nil
	}
	req, _, err := sharing.RequestFromResources(sharing.Limits(a.Requests), box.annotations, container)
	if err != nil {
		return sharing.ContainerRequest{}, fmt.Errorf("container %q: %w", container, err)
	}
	advice := sharing.Planned(box.annotations, container)
	advice.NUMA = slices.Clone(a.NUMA)
	return sharing.ContainerRequest{
		Ref: box.ref(container), Kind: kindOf(pod, container), Requests: slices.Clone(a.Requests), Request: req,
		Priority: pod.Priority,
		With:     sharing.ShareWith(box.annotations, container), ExistingOnly: pod.UID == "" &&
			sharing.SharesCap(box.annotations, container),
		Advice: advice,
	}, nil
}

// kindOf is the container's part in its pod; a container that the spec does not have is an app container.
func kindOf(pod sharing.Pod, container string) sharing.ContainerKind {
	for _, c := range pod.Containers {
		if c.Name == container {
			return c.Kind
		}
	}
	return sharing.ContainerApp
}

// refused is the error that kubelet shows in the pod's events, in one line: the request, the reason of the rejection,
// and what to do. It wraps err.
func refused(box sandbox, asks []sharing.ContainerRequest, err error) error {
	return &refusal{text: refusalText(box, asks, err), cause: err}
}

type refusal struct {
	text  string
	cause error
}

// Error is the line.
func (e *refusal) Error() string { return e.text }

// Unwrap returns the cause.
func (e *refusal) Unwrap() error { return e.cause }

func refusalText(box sandbox, asks []sharing.ContainerRequest, err error) string {
	reason, detail, _ := strings.Cut(err.Error(), "\n")
	var b strings.Builder
	fmt.Fprintf(&b, "kerf: pod %s", box)
	if len(asks) > 0 {
		b.WriteString(" requests " + askedFor(asks))
	}
	b.WriteString(": ")
	if errors.Is(err, sharing.ErrInvalid) {
		// Each line is a separate error of equal weight.
		reason, detail = strings.ReplaceAll(err.Error(), "\n", "; "), ""
	}
	b.WriteString(reason)
	if r := remedy(err); r != "" {
		b.WriteString("; " + r)
	}
	if detail != "" {
		lines := strings.Split(detail, "\n")
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i])
		}
		b.WriteString(" (" + strings.Join(lines, "; ") + ")")
	}
	return b.String()
}

// askedFor is "kerf.dev/gpu-memory-gib=10 in container train".
func askedFor(asks []sharing.ContainerRequest) string {
	parts := make([]string, 0, len(asks))
	for _, a := range asks {
		var amounts []string
		for _, ask := range a.Requests {
			if ask.Claim != "" {
				amounts = append(amounts, "ResourceClaim "+ask.ClaimUID())
				continue
			}
			amounts = append(amounts, fmt.Sprintf("%s/%s=%d", sharing.Domain, ask.Resource, ask.Count))
		}
		part := strings.Join(amounts, " and ") + " in container " + a.Ref.Container
		if a.Request.GPUs > 1 && a.Request.Kind == sharing.KindShared {
			part += fmt.Sprintf(" over %d GPUs", a.Request.GPUs)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// remedy says what to do about an error, where its kind tells that.
func remedy(err error) string {
	switch {
	case errors.Is(err, sharing.ErrInvalid):
		return "fix this in the pod and create it again"
	case errors.Is(err, sharing.ErrUnsupported):
		return "this node will never give it: request less, or choose another node"
	case errors.Is(err, sharing.ErrExhausted):
		return "kubelet tries again until enough is free: request less, or end a pod that holds GPUs of this node " +
			"(kerf status shows them)"
	case errors.Is(err, sharing.ErrUnavailable), errors.Is(err, sharing.ErrConflict):
		return "kubelet tries again by itself"
	}
	return ""
}
