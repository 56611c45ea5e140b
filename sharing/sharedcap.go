// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"errors"
	"slices"
	"strings"
)

// ShareWith names the container of the same pod whose GPUs and cap a container shares, by the annotation
// share-cap-with.kerf.dev/<container>. It is empty if the container has a cap alone.
func ShareWith(annotations map[string]string, container string) string {
	return strings.TrimSpace(annotations[shareAnnotation(container)])
}

// SharesCap reports whether a container shares another's cap or another container shares its.
func SharesCap(annotations map[string]string, container string) bool {
	if ShareWith(annotations, container) != "" {
		return true
	}
	for name, value := range annotations {
		if key, _, ours := splitAnnotation(name); ours && key == keyShareCapWith &&
			strings.TrimSpace(value) == container {
			return true
		}
	}
	return false
}

func shareAnnotation(container string) string {
	return keyShareCapWith + "." + Domain + "/" + container
}

// checkShareWith rejects what an annotation share-cap-with cannot say, whatever the pod is.
func checkShareWith(field, of, value string) error {
	switch {
	case of == "":
		return Invalid(field, value, "write "+shareAnnotation("CONTAINER")+" with the name of the other container",
			"applies to one container, not to the pod")
	case strings.TrimSpace(value) == of:
		return Invalid(field, value, "name another container of the pod", "names the container itself")
	}
	return nil
}

// MergeSharedCaps returns the asks of a pod's containers, in which those that share a cap know what they ask for
// together. Amounts add up: each of them asks for its part, and each may use all of it. They must ask for the same
// resources of shared GPUs, without a profile, and choose GPUs alike.
//
// The error has all errors, each a *FieldError.
func MergeSharedCaps(asks []ContainerRequest) ([]ContainerRequest, error) {
	out := slices.Clone(asks)
	for i := range out { // what they asked for together before counts no more
		out[i].SharedCap = Request{}
	}
	var errs []error
	for i, follower := range out {
		if follower.With == "" {
			continue
		}
		leader := slices.IndexFunc(out, func(a ContainerRequest) bool { return a.Ref.Container == follower.With })
		if err := joinable(follower, out, leader); err != nil {
			errs = append(errs, err)
			continue
		}
		sum, err := together(out[leader], follower)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out[leader].SharedCap, out[i].SharedCap = sum, sum
	}
	for i, follower := range out { // the last of several has the whole sum
		if leader := slices.IndexFunc(out,
			func(a ContainerRequest) bool { return a.Ref.Container == follower.With }); leader >= 0 {
			out[i].SharedCap = out[leader].SharedCap.Clone()
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return out, nil
}

// joinable refuses a container that cannot share the cap of the one that it names, which is at place leader.
func joinable(follower ContainerRequest, all []ContainerRequest, leader int) error {
	field := "annotation " + shareAnnotation(follower.Ref.Container)
	bad := func(remedy, problem string, args ...any) error {
		return Invalid(field, follower.With, remedy, problem, args...)
	}
	if leader < 0 {
		return bad("name a container with a limit such as "+ResourceMemory,
			"is no container of this pod that requests a share of a GPU")
	}
	l, f := all[leader], follower
	lr, fr := l.Request, f.Request
	switch {
	case l.With != "":
		return bad("name that one", "shares the cap of container %q itself", l.With)
	case l.Kind == ContainerInit || f.Kind == ContainerInit:
		return bad("leave it out: an init container uses the grant of a later one by itself",
			"joins an init container, which does not run at the same time")
	case lr.Kind == KindWhole || fr.Kind == KindWhole:
		return bad("request a share of a GPU in both", "joins whole GPUs, which have no cap")
	case lr.Kind == KindMIG || fr.Kind == KindMIG:
		return bad("request "+ResourceMemory+" in both", "joins MIG instances, which have no cap but their own size")
	case lr.Profile != "" || fr.Profile != "":
		return bad("leave the profile out", "joins the request of a profile, which is for one container")
	case (lr.Memory == 0) != (fr.Memory == 0) || (lr.Percent == 0) != (fr.Percent == 0) || lr.GPUs != fr.GPUs:
		return bad("request "+ResourceMemory+" in both or in none, and the same for "+ResourcePercent,
			"joins other resources, or another number of GPUs")
	case !slices.Equal(lr.Models, fr.Models) || !slices.Equal(lr.UUIDs, fr.UUIDs) || lr.MinLevel != fr.MinLevel ||
		lr.Place != fr.Place:
		return bad("annotate the pod in place of the containers", "joins another choice of GPU")
	}
	return nil
}

// together is what the leader and those that share with it ask for, now that f does, too.
func together(l, f ContainerRequest) (Request, error) {
	sum := l.SharedCap.Clone()
	if sum.GPUs == 0 {
		sum = l.Request.Clone()
	}
	field := "annotation " + shareAnnotation(f.Ref.Container)
	memory, err := sum.Memory.Add(f.Request.Memory)
	if err != nil {
		return Request{}, Invalid(field, f.With, "request less", "joins more memory than can be counted")
	}
	sum.Memory, sum.Percent = memory, sum.Percent+f.Request.Percent // at most MaxGPUs times 100 each
	if err := sum.Check(Fields{Memory: field, Percent: field, GPUs: field}); err != nil {
		return Request{}, err
	}
	return sum, nil
}
