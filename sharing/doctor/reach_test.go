// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
)

// Each setting has a separate remedy for each lack: what helps one of them is no use to another.
func TestMend(t *testing.T) {
	tests := map[Setting]struct{ library, devices []string }{
		OnNode: {[]string{"install the NVIDIA driver"}, []string{"nvidia-modprobe"}},
		ByRuntimeClass: {[]string{"nvidia-ctk runtime configure", "hostLibrary"},
			[]string{"modprobe nvidia", "nvidia-ctk runtime configure"}},
		ByHostLibrary: {[]string{"driverLibrary"}, []string{"modprobe nvidia", "delete this pod"}},
	}
	seen := map[string]bool{}
	for s, tc := range tests {
		for lack, words := range map[nvml.Lack][]string{nvml.LackLibrary: tc.library, nvml.LackDevices: tc.devices} {
			said := s.Fix(lack)
			for _, w := range words {
				if !strings.Contains(said, w) {
					t.Errorf("setting %q, lack %d: %q does not say %q", s, lack, said, w)
				}
			}
			if seen[said] {
				t.Errorf("setting %q, lack %d: %q is said of another, too", s, lack, said)
			}
			seen[said] = true
		}
		if said := s.Fix(nvml.LackNone); said != "" {
			t.Errorf("setting %q lacks nothing and has the remedy %q", s, said)
		}
	}
}

func TestParseSetting(t *testing.T) {
	for text, want := range map[string]Setting{"": OnNode, "runtimeClass": ByRuntimeClass,
		"hostLibrary": ByHostLibrary} {
		if got, err := ParseSetting("--driver-access", text); got != want || err != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	_, err := ParseSetting("--driver-access", "runtimeclass")
	if wrong, ok := errors.AsType[*sharing.FieldError](err); !ok ||
		!strings.Contains(wrong.Error(), "--driver-access") ||
		!strings.Contains(wrong.Error(), "hostLibrary") {
		t.Errorf("a word of unowned: %v", err)
	}
}
