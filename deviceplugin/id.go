// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// id is the name of the nth unit of a resource, n from 1: "u0001", or "g01" for a whole GPU.
func id(resource string, n int) string {
	if resource == sharing.ResourceGPU {
		return fmt.Sprintf("g%02d", n)
	}
	return fmt.Sprintf("u%04d", n)
}

// number is the inverse of id; ok is false for what id never gives.
func number(resource, s string) (n int, ok bool) {
	prefix := "u"
	if resource == sharing.ResourceGPU {
		prefix = "g"
	}
	digits, ok := strings.CutPrefix(s, prefix)
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 || n > MaxIDs || id(resource, n) != s {
		return 0, false
	}
	return n, true
}
