// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// form is how ids of a resource are written: a letter, and a number of so many digits at least.
func form(resource string) (letter string, width int) {
	if resource == sharing.ResourceGPU {
		return "g", 2
	}
	return "u", 4
}

// id is the name of the nth unit of a resource, n from 1: "u0001", or "g01" for a whole GPU.
func id(resource string, n int) string {
	letter, width := form(resource)
	return fmt.Sprintf("%s%0*d", letter, width, n)
}

// number is the inverse of id; ok is false for what id never gives. Kubelet names all ids that are free whenever a container
// is admitted, so that they are not written anew to compare them.
func number(resource, s string) (n int, ok bool) {
	letter, width := form(resource)
	digits, ok := strings.CutPrefix(s, letter)
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 || n > MaxIDs || digits[0] == '+' || len(digits) < width || len(digits) > width && digits[0] == '0' {
		return 0, false
	}
	return n, true
}
