// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// ContainerFields are what a container writes to ask for a request: its limits, and annotations for the pod.
type ContainerFields struct {
	Limits      map[string]string
	Annotations map[string]string
	// Differences has a sentence for each amount that is not exactly what was asked.
	Differences []string
}

// Of writes a request as a pod's container requests it. Memory is rounded up to GiB per GPU, and Differences says so.
// The error is a *sharing.FieldError, or several, for what a pod cannot ask for.
func Of(r sharing.Request) (ContainerFields, error) {
	w := ContainerFields{Limits: map[string]string{}, Annotations: map[string]string{}}
	if err := r.Validate(); err != nil {
		return w, err
	}
	var err error
	switch r.Kind {
	case sharing.KindWhole:
		w.Limits[sharing.ResourceGPU] = strconv.Itoa(r.GPUs)
	case sharing.KindMIG:
		name, ok := sharing.MIGResource(r.MIG)
		if !ok {
			err = sharing.Invalid("mig", r.MIG, "write a profile such as 1g.10gb", "cannot be requested by a pod")
		}
		w.Limits[name] = "1"
	case sharing.KindShared:
		err = w.shared(r)
	}
	for _, a := range []struct{ key, value string }{
		{"profile", r.Profile}, {"gpu-model", strings.Join(r.Models, ",")}, {"gpu-uuid", joined(r.UUIDs)},
	} {
		w.annotate(a.key, a.value)
	}
	if r.MinLevel != sharing.LevelUnknown {
		w.annotate("min-enforcement", r.MinLevel.String())
	}
	if r.Place != sharing.PlaceDefault {
		w.annotate("placement-policy", r.Place.String())
	}
	return w, err
}

func (w *ContainerFields) shared(r sharing.Request) error {
	if r.Memory == 0 && r.Percent == 0 {
		return sharing.Invalid("profile", r.Profile, "give an amount too",
			"says how much, and a pod has to request an amount")
	}
	if r.Memory > 0 {
		n := uint64(max(1, r.GPUs)) // a profile may leave the number open
		each := uint64(r.Memory) / n
		gib := each / uint64(sharing.GiB)
		if each%uint64(sharing.GiB) > 0 {
			gib++
			w.Differences = append(w.Differences,
				fmt.Sprintf("%s per GPU is rounded up to %dGiB: pods request whole GiB",
					sharing.Bytes(each), gib))
		}
		w.Limits[sharing.ResourceMemory] = strconv.FormatUint(gib*n, 10)
	}
	if r.Percent > 0 {
		w.Limits[sharing.ResourcePercent] = strconv.Itoa(int(r.Percent))
	}
	if r.GPUs > 1 {
		w.annotate("gpu-count", strconv.Itoa(r.GPUs))
	}
	return nil
}

func (w *ContainerFields) annotate(key, value string) {
	if value != "" {
		w.Annotations[sharing.Domain+"/"+key] = value
	}
}

// Read reads the words back, as an agent would: what is refused here, no node takes.
func (w ContainerFields) Read() (sharing.Request, error) {
	r, asks, err := sharing.RequestFromResources(w.Limits, w.Annotations, "")
	if err == nil && !asks {
		err = errors.New("the container requests nothing")
	}
	return r, err
}

func joined(ids []sharing.GPUID) string {
	out := make([]string, 0, len(ids))
	for _, id := range ids {
		out = append(out, string(id))
	}
	return strings.Join(out, ",")
}
