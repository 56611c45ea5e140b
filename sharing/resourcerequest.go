// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The CDI kinds that Kerf owns. The device plugin answers kubelet with their device names, and kubelet passes these
// to the container runtime. A tenant's pod has no field that reaches them. Static specs on the host define every
// name.
const (
	// CDIVendor is the vendor of all of them.
	CDIVendor = Domain
	// CDIHook has the one device "activated": a container with it starts only once kerf-hook has activated it.
	CDIHook = CDIVendor + "/guard"
	// CDIRequest has a device for every amount, "gpu-memory-gib:10".
	CDIRequest = CDIVendor + "/ask"
	// CDINUMA has a device for every NUMA node and number of whole GPUs: "0:2" is two GPUs of NUMA node 0.
	CDINUMA = CDIVendor + "/numa"
	// EarlierCDINUMA is CDINUMA in earlier versions, with devices such as "numa0:2". Kubelet's checkpoint has these
	// names for pods of those versions, so that the specs keep them for one release.
	EarlierCDINUMA = CDIVendor + "/near"
	// CDIGPU has a device for every GPU of the node, by UUID.
	CDIGPU = CDIVendor + "/gpu"
	// CDIClaim has a device for every request of a prepared ResourceClaim, "UID.REQUEST".
	CDIClaim = CDIVendor + "/claim"
	// CDIMIG has a device for every MIG instance that a container has, or is about to, by the MIG device's UUID.
	CDIMIG = CDIVendor + "/mig"

	// HookDevice is the qualified name of the guard.
	HookDevice = CDIHook + "=armed"

	nearPrefix = "numa"
	// MaxNUMA is the most NUMA nodes that CDINUMA has devices for.
	MaxNUMA = 16
)

// ResourceRequest is one amount that kubelet admitted a container with: so many units of one of Kerf's resources, or
// one request of a ResourceClaim.
type ResourceRequest struct {
	// Resource is the resource's name without the domain: "gpu-memory-gib", "gpu-percent", "gpu", "mig-1g.10gb". It is
	// ClaimResource for a request of a ResourceClaim.
	Resource string
	// Count is at least 1, and 1 for a request of a ResourceClaim.
	Count int
	// Claim is the claim's UID and the request, "UID.REQUEST"; empty for other resources.
	Claim string
}

// ClaimResource is the Resource of a request of a ResourceClaim.
const ClaimResource = "claim"

// ClaimRequest is the request of a ResourceClaim that kubelet admitted a container with.
func ClaimRequest(uid, request string) ResourceRequest {
	return ResourceRequest{Resource: ClaimResource, Count: 1, Claim: uid + "." + request}
}

// ClaimUID is the UID of the ResourceClaim, empty for other resources.
func (a ResourceRequest) ClaimUID() string {
	uid, _, _ := strings.Cut(a.Claim, ".")
	return uid
}

// ClaimRequestName is the name of the request in its ResourceClaim, empty for other resources.
func (a ResourceRequest) ClaimRequestName() string {
	_, request, _ := strings.Cut(a.Claim, ".")
	return request
}

// OfClaims reports whether the container is admitted by ResourceClaims.
func OfClaims(requests []ResourceRequest) bool {
	return len(requests) > 0 && requests[len(requests)-1].Claim != ""
}

// ClaimNames are the claims of names such as "train-gpu/gpu" (CLAIM/REQUEST), each once, separated by commas.
func ClaimNames(claims []string) string {
	var out []string
	for _, c := range claims {
		if name, _, _ := strings.Cut(c, "/"); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return strings.Join(out, ",")
}

// parseClaim reads "UID.REQUEST", which has lower case letters, digits and hyphens on both sides of the dot.
func parseClaim(s string) (ResourceRequest, bool) {
	uid, request, ok := strings.Cut(s, ".")
	plain := func(r rune) bool { return r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' }
	for _, part := range []string{uid, request} {
		ok = ok && part != "" && len(part) <= maxClaimPart &&
			strings.IndexFunc(part, func(r rune) bool { return !plain(r) }) < 0
	}
	return ClaimRequest(uid, request), ok
}

// maxClaimPart is the longest UID or name of a request.
const maxClaimPart = 63

// RequestResources are the resources that a ResourceRequest may name besides those of MIG profiles, in the order in
// which requests are sorted. Those of MIG profiles follow, by name.
func RequestResources() []string {
	return []string{strings.TrimPrefix(ResourceGPU, Domain+"/"), strings.TrimPrefix(ResourceMemory, Domain+"/"),
		strings.TrimPrefix(ResourcePercent, Domain+"/")}
}

// String returns "gpu-memory-gib:10", the form in CDI names and in kerf-hook's arguments.
func (a ResourceRequest) String() string {
	if a.Claim != "" {
		return a.Resource + ":" + a.Claim
	}
	return a.Resource + ":" + strconv.Itoa(a.Count)
}

// Device is the request's qualified CDI name.
func (a ResourceRequest) Device() string {
	if a.Claim != "" {
		return CDIClaim + "=" + a.Claim
	}
	return CDIRequest + "=" + a.String()
}

// FormatResourceRequests are the forms of several requests; nil for none.
func FormatResourceRequests(requests []ResourceRequest) []string {
	var out []string
	for _, a := range requests {
		out = append(out, a.String())
	}
	return out
}

// ParseResourceRequests is ParseResourceRequest for each of them; nil for none.
func ParseResourceRequests(in []string) ([]ResourceRequest, error) {
	var out []ResourceRequest
	for _, s := range in {
		a, err := ParseResourceRequest(s)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// ParseResourceRequest reads what String writes. The error is a *FieldError.
func ParseResourceRequest(s string) (ResourceRequest, error) {
	resource, count, ok := strings.Cut(s, ":")
	if a, is := parseClaim(count); is && resource == ClaimResource {
		return a, nil
	}
	if !ok || !slices.Contains(RequestResources(), resource) && !IsMIGResource(Domain+"/"+resource) {
		return ResourceRequest{}, Invalid("request", s, "write RESOURCE:COUNT with one of "+
			strings.Join(RequestResources(), ", ")+" or mig-PROFILE", "is not a request")
	}
	n, err := strconv.ParseUint(count, 10, 31)
	if err != nil || n == 0 || count[0] == '0' || count[0] == '+' {
		return ResourceRequest{}, Invalid("request", s, "write a whole number from 1, such as gpu-memory-gib:10",
			"has no count")
	}
	return ResourceRequest{Resource: resource, Count: int(n)}, nil
}

// SortResourceRequests orders requests by resource as RequestResources does, so that equal sets compare equal.
func SortResourceRequests(requests []ResourceRequest) {
	order := RequestResources()
	rank := func(a ResourceRequest) int {
		if i := slices.Index(order, a.Resource); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortFunc(requests, func(a, b ResourceRequest) int {
		if (a.Claim == "") != (b.Claim == "") {
			return cmp.Compare(len(a.Claim), len(b.Claim))
		}
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Claim, b.Claim))
	})
}

// Limits are the requests as a pod's limits, for RequestFromResources.
func Limits(requests []ResourceRequest) map[string]string {
	out := make(map[string]string, len(requests))
	for _, a := range requests {
		out[Domain+"/"+a.Resource] = strconv.Itoa(a.Count)
	}
	return out
}

// ResourceRequestsOf reads the requests in a pod's limits, sorted. It ignores resources of others and zero counts.
// A value that is no whole number is left to RequestFromResources to refuse.
func ResourceRequestsOf(limits map[string]string) []ResourceRequest {
	var requests []ResourceRequest
	for name, count := range limits {
		if r, ours := strings.CutPrefix(name, Domain+"/"); ours {
			if a, err := ParseResourceRequest(r + ":" + count); err == nil {
				requests = append(requests, a)
			}
		}
	}
	SortResourceRequests(requests)
	return requests
}

// NUMAAffinity says that so many whole GPUs should be of one NUMA node: what kubelet's topology manager chose.
type NUMAAffinity struct {
	// NUMA is 0 to MaxNUMA-1.
	NUMA int
	// Count is at least 1.
	Count int
}

// String returns "0:2", the name of its device in CDINUMA.
func (n NUMAAffinity) String() string { return strconv.Itoa(n.NUMA) + ":" + strconv.Itoa(n.Count) }

// Former returns "numa0:2", the name of its device in EarlierCDINUMA.
func (n NUMAAffinity) Former() string { return nearPrefix + n.String() }

// Device is the qualified CDI name.
func (n NUMAAffinity) Device() string { return CDINUMA + "=" + n.String() }

// Admitted is what the CDI names of a container say of it.
type Admitted struct {
	// Guarded is true when the guard is among them.
	Guarded bool
	// Admin is true for admin access: GPUs without a grant.
	Admin bool
	// Requests are sorted, one per resource.
	Requests []ResourceRequest
	// NUMA are sorted by NUMA node.
	NUMA []NUMAAffinity
}

// AdmittedBy reads the CDI names that the container runtime was given, and ignores names of others. An error wraps
// ErrInvalid, since such a container must not start. The causes are a name of Kerf that the device plugin never gives,
// two amounts for a resource, and requests without the hook device. The same for two amounts for a NUMA node.
func AdmittedBy(cdiNames []string) (Admitted, error) {
	var out Admitted
	for _, name := range cdiNames {
		kind, device, _ := strings.Cut(name, "=")
		switch {
		case name == HookDevice:
			out.Guarded = true
		case kind == CDIRequest || kind == CDIClaim:
			a, err := requestOf(kind, device)
			if err != nil {
				return Admitted{}, fmt.Errorf("cdi name %q: %w", name, err)
			}
			if slices.Contains(out.Requests, a) {
				continue
			}
			if slices.ContainsFunc(out.Requests, func(b ResourceRequest) bool {
				return a.Claim == "" && b.Resource == a.Resource
			}) {
				return Admitted{}, fmt.Errorf("cdi name %q: a second amount of %s: %w", name, a.Resource, ErrInvalid)
			}
			out.Requests = append(out.Requests, a)
		case kind == CDINUMA || kind == EarlierCDINUMA:
			n, err := ParseNUMAAffinity(kind, device)
			if err != nil {
				return Admitted{}, fmt.Errorf("cdi name %q: %w", name, err)
			}
			if slices.Contains(out.NUMA, n) {
				continue
			}
			if slices.ContainsFunc(out.NUMA, func(m NUMAAffinity) bool { return m.NUMA == n.NUMA }) {
				return Admitted{}, fmt.Errorf("cdi name %q: a second amount of NUMA node %d: %w", name, n.NUMA,
					ErrInvalid)
			}
			out.NUMA = append(out.NUMA, n)
		case kind == CDIGPU: // only the DRA front end gives it to kubelet
			out.Admin = true
		case strings.HasPrefix(kind, CDIVendor+"/"):
			return Admitted{}, fmt.Errorf("cdi name %q is none that the device plugin gives: %w", name, ErrInvalid)
		}
	}
	SortResourceRequests(out.Requests)
	slices.SortFunc(out.NUMA, func(a, b NUMAAffinity) int { return a.NUMA - b.NUMA })
	if !out.Guarded && len(out.Requests)+len(out.NUMA) > 0 {
		return Admitted{}, fmt.Errorf("requests without %s: %w", HookDevice, ErrInvalid)
	}
	if out.Admin && out.Guarded {
		return Admitted{}, fmt.Errorf("a container has admin access and a grant; give them to two containers: %w",
			ErrInvalid)
	}
	if OfClaims(out.Requests) && (out.Requests[0].Claim == "" || len(out.NUMA) > 0) {
		return Admitted{}, fmt.Errorf("a container has ResourceClaims and %s; request GPUs in one of both ways: %w",
			Domain+"/"+out.Requests[0].Resource, ErrInvalid)
	}
	if out.Guarded && len(out.Requests) == 0 {
		return Admitted{}, fmt.Errorf("%s without a request: %w", HookDevice, ErrInvalid)
	}
	return out, nil
}

// requestOf reads the name of a device of CDIRequest or CDIClaim.
func requestOf(kind, device string) (ResourceRequest, error) {
	if kind == CDIRequest && !strings.HasPrefix(device, ClaimResource+":") {
		return ParseResourceRequest(device)
	}
	if a, ok := parseClaim(device); ok && kind == CDIClaim {
		return a, nil
	}
	return ResourceRequest{}, Invalid("request", device, "", "is no request of a ResourceClaim")
}

// ParseNUMAAffinity reads the name of a device of CDINUMA, or of EarlierCDINUMA. The error wraps ErrInvalid.
func ParseNUMAAffinity(kind, device string) (NUMAAffinity, error) {
	text, form, ok := device, "NUMA:COUNT", true
	if kind == EarlierCDINUMA {
		text, ok = strings.CutPrefix(device, nearPrefix)
		form = nearPrefix + form
	}
	node, count, two := strings.Cut(text, ":")
	numa, err := strconv.ParseUint(node, 10, 8)
	n, err2 := strconv.ParseUint(count, 10, 31)
	near := NUMAAffinity{NUMA: int(numa), Count: int(n)}
	if !ok || !two || err != nil || err2 != nil || n == 0 || numa >= MaxNUMA || near.String() != text {
		return NUMAAffinity{}, fmt.Errorf("%q is not %s: %w", device, form, ErrInvalid)
	}
	return near, nil
}
