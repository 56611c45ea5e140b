// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dcgm

import (
	flags "flag"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/test/bindtest"
)

var write = flags.Bool("write", false, "write functions.h for the version of go-dcgm in go.mod")

// functions.h has each function that go-dcgm calls, and no other, among them those that Kerf needs.
func TestFunctions(t *testing.T) {
	call := regexp.MustCompile(`\bC\.(dcgm[A-Z]\w*|Dcgm[A-Z]\w*|errorString)\(`)
	isType := func(name string) bool { return strings.HasSuffix(name, "_t") || strings.HasSuffix(name, "_f") }
	names := bindtest.Functions(t, "github.com/NVIDIA/go-dcgm/pkg/dcgm", call, isType, *write)
	for _, remote := range []bool{false, true} {
		for _, f := range requiredFuncs(remote) {
			if !slices.Contains(names, f) {
				t.Errorf("%s is required, and go-dcgm does not call it", f)
			}
		}
	}
}

func TestProgramNeedsNothingOfDCGM(t *testing.T) {
	bindtest.NeedsNothing(t, func(name string) bool {
		return strings.HasPrefix(strings.ToLower(name), "dcgm") || name == "errorString"
	})
}
