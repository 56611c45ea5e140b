// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	flags "flag"
	"regexp"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/test/bindtest"
)

var write = flags.Bool("write", false, "write functions.h for the version of go-nvml in go.mod")

// functions.h has each function that go-nvml calls, and no other.
func TestFunctions(t *testing.T) {
	call := regexp.MustCompile(`\bC\.(nvml[A-Z]\w*)\(`)
	isType := func(string) bool { return false }
	bindtest.Functions(t, "github.com/NVIDIA/go-nvml/pkg/nvml", call, isType, *write)
}

func TestProgramNeedsNothingOfNVML(t *testing.T) {
	bindtest.NeedsNothing(t, func(name string) bool { return strings.HasPrefix(name, "nvml") })
}

// Without a library, and where the library lacks a function, a call is an error and not the end of the process.
func TestCallsWithoutALibrary(t *testing.T) {
	if boundLibrary() != "" {
		t.Skip("another test has bound a library")
	}
	if got := nvml.Shutdown(); got != nvml.ERROR_FUNCTION_NOT_FOUND && got != nvml.ERROR_UNINITIALIZED {
		t.Errorf("a call without a library: %d", got)
	}
	if _, got := nvml.DeviceGetCount(); got != nvml.ERROR_FUNCTION_NOT_FOUND {
		t.Errorf("a call without a library: %d, want %d", got, nvml.ERROR_FUNCTION_NOT_FOUND)
	}
}
