// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// The type of opaque parameters.
const (
	ParametersVersion = Driver + "/v1alpha1"
	ParametersKind    = "GPUParameters"
)

// maxParameters bounds the bytes of opaque parameters; the API server has 10 KiB.
const maxParameters = 10 << 10

// Parameters are the opaque parameters of a claim or DeviceClass, with the fields of a profile. Amounts repeat what the
// claim requests as capacity, and must be equal to it.
type Parameters struct {
	Profile   string
	Memory    sharing.Bytes
	Percent   sharing.Percent
	GPUs      int
	Models    []string
	MinLevel  sharing.Level
	Placement sharing.Spread
}

// parameters is the JSON form.
type parameters struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Profile    *string  `json:"profile"`
	Memory     *string  `json:"memory"`
	Percent    *int64   `json:"percent"`
	GPUs       *int64   `json:"gpuCount"`
	Models     []string `json:"gpuModel"`
	MinLevel   *string  `json:"minEnforcement"`
	Placement  *string  `json:"placementPolicy"`
}

// ofProfiles are the fields that only a profile of the SharingConfig can set.
func ofProfiles() []string {
	return []string{"backends", "onOverCap", "priority", "maxBurstMemory", "namespaces", "startWindows",
		"maxMemoryPerPod", "allowPrivileged"}
}

// ParseParameters reads opaque parameters. Errors are *sharing.FieldError, or wrap sharing.ErrInvalid.
func ParseParameters(data []byte) (Parameters, error) {
	if len(data) > maxParameters {
		return Parameters{}, fmt.Errorf("parameters of %d bytes are larger than %d: %w", len(data), maxParameters,
			sharing.ErrInvalid)
	}
	var in parameters
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return Parameters{}, fmt.Errorf("parameters: %w%s: %w", err, hint(data), sharing.ErrInvalid)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Parameters{}, fmt.Errorf("parameters: data after the object: %w", sharing.ErrInvalid)
	}
	if in.APIVersion != ParametersVersion || in.Kind != ParametersKind {
		return Parameters{}, sharing.Invalid("parameters", in.APIVersion+" "+in.Kind,
			"write apiVersion: "+ParametersVersion+" and kind: "+ParametersKind, "have another type")
	}
	return in.parse()
}

// hint says which field only a profile can set.
func hint(data []byte) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return ""
	}
	for _, name := range ofProfiles() {
		if _, has := fields[name]; has {
			return "; only a profile of the SharingConfig sets " + name + ", so name a profile"
		}
	}
	return ""
}

func (in parameters) parse() (out Parameters, err error) {
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	if in.Profile != nil {
		out.Profile = *in.Profile
		note(sharing.ValidateName("profile", out.Profile))
	}
	if in.Memory != nil {
		out.Memory, err = sharing.ParseSize("memory", *in.Memory)
		note(err)
		if err == nil && (out.Memory%sharing.GiB != 0 || out.Memory > maxMemory) {
			note(sharing.Invalid("memory", *in.Memory, "write whole GiB up to 16384Gi, such as 10Gi",
				"is out of range"))
		}
	}
	if in.Percent != nil {
		out.Percent, err = sharing.ParsePercent("percent", strconv.FormatInt(*in.Percent, 10))
		note(err)
	}
	if in.GPUs != nil {
		out.GPUs, err = sharing.ParseGPUs("gpuCount", strconv.FormatInt(*in.GPUs, 10))
		note(err)
	}
	for _, glob := range in.Models {
		note(sharing.CheckGlob("gpuModel", glob))
	}
	out.Models = slices.Clone(in.Models)
	if in.MinLevel != nil {
		out.MinLevel, err = sharing.ParseLevel("minEnforcement", *in.MinLevel)
		note(err)
	}
	if in.Placement != nil {
		out.Placement, err = sharing.ParseSpread("placementPolicy", *in.Placement)
		note(err)
	}
	if len(errs) > 0 {
		return Parameters{}, errors.Join(errs...)
	}
	return out, nil
}

// maxMemory is more than any GPU has.
const maxMemory = 16384 * sharing.GiB

// parametersOf are the parameters of a request of the claim, without subrequest. The config may name the request or the
// subrequest that the scheduler chose.
func (c Claim) parametersOf(request string) (Parameters, error) {
	var out Parameters
	first := true
	for _, r := range c.Results {
		if r.main() != request {
			continue
		}
		params, err := c.parametersOfResult(r.Request)
		switch {
		case err != nil:
			return Parameters{}, err
		case !first && !sameParameters(out, params):
			return Parameters{}, fmt.Errorf("request %q has results with different parameters: %w", request,
				sharing.ErrUnsupported)
		}
		out, first = params, false
	}
	return out, nil
}

// parametersOfResult are the parameters for a request as a result names it: those of the claim, else of its class.
func (c Claim) parametersOfResult(request string) (Parameters, error) {
	var found []Config
	for _, fromClass := range []bool{false, true} {
		for _, conf := range c.Configs {
			if conf.FromClass == fromClass && conf.appliesTo(request) {
				found = append(found, conf)
			}
		}
		if len(found) > 0 {
			break
		}
	}
	switch len(found) {
	case 0:
		return Parameters{}, nil
	case 1:
		return ParseParameters(found[0].Parameters)
	}
	return Parameters{}, fmt.Errorf("request %q has %d configs of %s; write one: %w", request, len(found), Driver,
		sharing.ErrInvalid)
}

// appliesTo reports whether the config is for a request, as a result names it. A config for a request is for all its
// subrequests. A config without requests is for all of them.
func (c Config) appliesTo(request string) bool {
	main, _, _ := strings.Cut(request, "/")
	return len(c.Requests) == 0 || slices.Contains(c.Requests, request) || slices.Contains(c.Requests, main)
}
