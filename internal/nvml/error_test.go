// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"fmt"
	"path/filepath"
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
