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
	// CDIGuard has the one device "armed": a container with it starts only once kerf-hook has armed it.
	CDIGuard = CDIVendor + "/guard"
	// CDIAsk has a device for every amount, "gpu-memory-gib:10".
	CDIAsk = CDIVendor + "/ask"
	// CDINUMA has a device for every NUMA node and number of whole GPUs: "0:2" is two GPUs of NUMA node 0.
	CDINUMA = CDIVendor + "/numa"
	// CDINear is CDINUMA in earlier versions, with devices such as "numa0:2". Kubelet's checkpoint has these names for
	// pods of those versions, so that the specs keep them for one release.
	CDINear = CDIVendor + "/near"
	// CDIGPU has a device for every GPU of the node, by UUID.
	CDIGPU = CDIVendor + "/gpu"
	// CDIMIG has a device for every MIG instance that a container has, or is about to, by the MIG device's UUID.
	CDIMIG = CDIVendor + "/mig"

	// GuardDevice is the qualified name of the guard.
	GuardDevice = CDIGuard + "=armed"

	nearPrefix = "numa"
	// MaxNUMA is the most NUMA nodes that CDINUMA has devices for.
	MaxNUMA = 16
)

// Ask is one amount that kubelet admitted a container with: so many units of one of Kerf's resources.
type Ask struct {
	// Resource is the resource's name without the domain: "gpu-memory-gib", "gpu-percent", "gpu", "mig-1g.10gb".
	Resource string
	// Count is at least 1.
	Count int
}

// AskResources are the resources that an Ask may name besides those of MIG profiles, in the order in which asks are
// sorted. Those of MIG profiles follow, by name.
func AskResources() []string {
	return []string{strings.TrimPrefix(ResourceGPU, Domain+"/"), strings.TrimPrefix(ResourceMemory, Domain+"/"),
		strings.TrimPrefix(ResourcePercent, Domain+"/")}
}

// String returns "gpu-memory-gib:10", the form in CDI names and in kerf-hook's arguments.
func (a Ask) String() string { return a.Resource + ":" + strconv.Itoa(a.Count) }

// Device is the ask's qualified CDI name.
func (a Ask) Device() string { return CDIAsk + "=" + a.String() }

// AskStrings are the forms of several asks; nil for none.
func AskStrings(asks []Ask) []string {
	var out []string
	for _, a := range asks {
		out = append(out, a.String())
	}
	return out
}

// ParseAsks is ParseAsk for each of them; nil for none.
func ParseAsks(in []string) ([]Ask, error) {
	var out []Ask
	for _, s := range in {
		a, err := ParseAsk(s)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// ParseAsk reads what String writes. The error is a *FieldError.
func ParseAsk(s string) (Ask, error) {
	resource, count, ok := strings.Cut(s, ":")
	if !ok || !slices.Contains(AskResources(), resource) && !IsMIGResource(Domain+"/"+resource) {
		return Ask{}, Invalid("ask", s, "write RESOURCE:COUNT with one of "+strings.Join(AskResources(), ", ")+
			" or mig-PROFILE", "is not an ask")
	}
	n, err := strconv.ParseUint(count, 10, 31)
	if err != nil || n == 0 || count[0] == '0' || count[0] == '+' {
		return Ask{}, Invalid("ask", s, "write a whole number from 1, such as gpu-memory-gib:10", "has no count")
	}
	return Ask{Resource: resource, Count: int(n)}, nil
}

// SortAsks orders asks by resource as AskResources does, so that equal sets compare equal.
func SortAsks(asks []Ask) {
	order := AskResources()
	rank := func(a Ask) int {
		if i := slices.Index(order, a.Resource); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortFunc(asks, func(a, b Ask) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a.Resource, b.Resource))
	})
}

// Limits are the asks as a pod's limits, for RequestFromResources.
func Limits(asks []Ask) map[string]string {
	out := make(map[string]string, len(asks))
	for _, a := range asks {
		out[Domain+"/"+a.Resource] = strconv.Itoa(a.Count)
	}
	return out
}

// AsksOf reads the asks in a pod's limits, sorted; resources of others, and zero counts, are not looked at.
// A value that is no whole number is left to RequestFromResources to refuse.
func AsksOf(limits map[string]string) []Ask {
	var asks []Ask
	for name, count := range limits {
		if r, ours := strings.CutPrefix(name, Domain+"/"); ours {
			if a, err := ParseAsk(r + ":" + count); err == nil {
				asks = append(asks, a)
			}
		}
	}
	SortAsks(asks)
	return asks
}

// Near says that so many whole GPUs should be of one NUMA node: what kubelet's topology manager chose.
type Near struct {
	// NUMA is 0 to MaxNUMA-1.
	NUMA int
	// Count is at least 1.
	Count int
}

// String returns "0:2", the name of its device in CDINUMA.
func (n Near) String() string { return strconv.Itoa(n.NUMA) + ":" + strconv.Itoa(n.Count) }

// Former returns "numa0:2", the name of its device in CDINear.
func (n Near) Former() string { return nearPrefix + n.String() }

// Device is the qualified CDI name.
func (n Near) Device() string { return CDINUMA + "=" + n.String() }

// Admitted is what the CDI names of a container say of it.
type Admitted struct {
	// Guarded is true when the guard is among them.
	Guarded bool
	// Asks are sorted, one per resource.
	Asks []Ask
	// Near are sorted by NUMA node.
	Near []Near
}

// AdmittedBy reads the CDI names that the container runtime was given, and ignores names of others. An error wraps
// ErrInvalid, since such a container must not start. The causes are a name of Kerf that the device plugin never gives,
// two amounts for a resource, and requests without the hook device. The same for two amounts for a NUMA node.
func AdmittedBy(cdiNames []string) (Admitted, error) {
	var out Admitted
	for _, name := range cdiNames {
		kind, device, _ := strings.Cut(name, "=")
		switch {
		case name == GuardDevice:
			out.Guarded = true
		case kind == CDIAsk:
			a, err := ParseAsk(device)
			if err != nil {
				return Admitted{}, fmt.Errorf("cdi name %q: %w", name, err)
			}
			if slices.Contains(out.Asks, a) {
				continue
			}
			if slices.ContainsFunc(out.Asks, func(b Ask) bool { return b.Resource == a.Resource }) {
				return Admitted{}, fmt.Errorf("cdi name %q: a second amount of %s: %w", name, a.Resource, ErrInvalid)
			}
			out.Asks = append(out.Asks, a)
		case kind == CDINUMA || kind == CDINear:
			n, err := ParseNear(kind, device)
			if err != nil {
				return Admitted{}, fmt.Errorf("cdi name %q: %w", name, err)
			}
			if slices.Contains(out.Near, n) {
				continue
			}
			if slices.ContainsFunc(out.Near, func(m Near) bool { return m.NUMA == n.NUMA }) {
				return Admitted{}, fmt.Errorf("cdi name %q: a second amount of NUMA node %d: %w", name, n.NUMA,
					ErrInvalid)
			}
			out.Near = append(out.Near, n)
		case strings.HasPrefix(kind, CDIVendor+"/"):
			return Admitted{}, fmt.Errorf("cdi name %q is none that the device plugin gives: %w", name, ErrInvalid)
		}
	}
	SortAsks(out.Asks)
	slices.SortFunc(out.Near, func(a, b Near) int { return a.NUMA - b.NUMA })
	if !out.Guarded && len(out.Asks)+len(out.Near) > 0 {
		return Admitted{}, fmt.Errorf("asks without %s: %w", GuardDevice, ErrInvalid)
	}
	if out.Guarded && len(out.Asks) == 0 {
		return Admitted{}, fmt.Errorf("%s without an ask: %w", GuardDevice, ErrInvalid)
	}
	return out, nil
}

// ParseNear reads the name of a device of CDINUMA, or of CDINear. The error wraps ErrInvalid.
func ParseNear(kind, device string) (Near, error) {
	text, form, ok := device, "NUMA:COUNT", true
	if kind == CDINear {
		text, ok = strings.CutPrefix(device, nearPrefix)
		form = nearPrefix + form
	}
	node, count, two := strings.Cut(text, ":")
	numa, err := strconv.ParseUint(node, 10, 8)
	n, err2 := strconv.ParseUint(count, 10, 31)
	near := Near{NUMA: int(numa), Count: int(n)}
	if !ok || !two || err != nil || err2 != nil || n == 0 || numa >= MaxNUMA || near.String() != text {
		return Near{}, fmt.Errorf("%q is not %s: %w", device, form, ErrInvalid)
	}
	return near, nil
}
