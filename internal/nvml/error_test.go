// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestLackOf(t *testing.T) {
	absent := filepath.Join(t.TempDir(), LibraryName)
	_, noLibrary := choose([]string{absent}, Options{}.withDefaults())
	of := func(code nvml.Return) error {
		return fmt.Errorf("open nvml: %w", errors.Join(check("nvmlInit_v2", code)))
	}
	tests := map[string]struct {
		err  error
		want Lack
	}{
		"no library":        {fmt.Errorf("open nvml: %w", noLibrary), LackLibrary},
		"not loaded":        {of(nvml.ERROR_DRIVER_NOT_LOADED), LackDevices},
		"no permission":     {of(nvml.ERROR_NO_PERMISSION), LackDevices},
		"unknown":           {of(nvml.ERROR_UNKNOWN), LackDevices},
		"another version":   {of(nvml.ERROR_LIB_RM_VERSION_MISMATCH), LackNone},
		"a driver in a fix": {of(nvml.ERROR_TIMEOUT), LackNone},
		"no answer":         {fmt.Errorf("open nvml: %w", sharing.ErrUnavailable), LackNone},
		"nothing":           {nil, LackNone},
	}
	for name, tc := range tests {
		if got := LackOf(tc.err); got != tc.want {
			t.Errorf("%s: %v, want %v of %v", name, got, tc.want, tc.err)
		}
	}
	if !errors.Is(noLibrary, sharing.ErrUnavailable) {
		t.Errorf("%v does not say that trying again may work", noLibrary)
	}
}

// Each code that nvml.h documents for a function of the memory limits, and what it means there: both ways, so that no
// code has a meaning that the header does not give it, and none is missing.
func TestCodesOfTheMemoryLimits(t *testing.T) {
	type meant struct {
		word error
		text string
	}
	both := map[nvml.Return]meant{
		nvml.ERROR_UNINITIALIZED:    {sharing.ErrUnavailable, "not initialised"},
		nvml.ERROR_OPERATING_SYSTEM: {sharing.ErrUnavailable, "the cgroup cannot be opened"},
		nvml.ERROR_UNKNOWN:          {sharing.ErrUnavailable, "could not do it"},
		// Not in the header, and said by every function of a GPU.
		nvml.ERROR_GPU_IS_LOST: {sharing.ErrLost, "lost"},
	}
	documented := map[string]map[nvml.Return]meant{
		setLimitsFunc: {
			nvml.ERROR_NO_PERMISSION:    {sharing.ErrDenied, "root"},
			nvml.ERROR_INVALID_ARGUMENT: {sharing.ErrInvalid, "above the GPU's memory"},
			nvml.ERROR_NOT_SUPPORTED:    {sharing.ErrUnsupported, "takes no memory limit"},
		},
		getLimitsFunc: {
			nvml.ERROR_INVALID_ARGUMENT: {sharing.ErrInvalid, "not accepted"},
			nvml.ERROR_NOT_SUPPORTED:    {sharing.ErrUnsupported, "has none on it"},
			nvml.ERROR_NOT_FOUND:        {sharing.ErrNotFound, "no memory limit on this GPU"},
		},
	}
	for function, codes := range documented {
		for _, table := range []map[nvml.Return]meant{both, codes} {
			for code, want := range table {
				if err := check(function, code); !errors.Is(err, want.word) ||
					!strings.Contains(err.Error(), want.text) {
					t.Errorf("%s, code %d: %v", function, code, err)
				}
			}
		}
		for code := range nvml.Return(1000) {
			_, is := codes[code]
			if _, too := both[code]; is || too {
				continue
			}
			if _, special, _ := ofLimits(function, code); special {
				t.Errorf("%s has another meaning for code %d, which the header does not have", function, code)
			}
		}
	}
	if _, special, _ := ofLimits(handleFunc, nvml.ERROR_NOT_FOUND); special {
		t.Error("another function has a meaning of these")
	}
}
