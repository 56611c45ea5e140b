// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import "strings"

// maxName is the longest name of a grant, pool or profile, in bytes: that of a DNS label.
const maxName = 63

// ValidateName refuses what cannot name a grant, a pool or a profile: a name is 1 to 63 of a-z 0-9 . - and
// begins and ends with a letter or a digit. field names the input for the error, a *FieldError.
func ValidateName(field, s string) error {
	const remedy = "write 1 to 63 of a-z 0-9 . -, with a letter or a digit at both ends"
	alnum := func(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
	switch {
	case s == "":
		return Invalid(field, s, remedy, "is empty")
	case len(s) > maxName:
		return Invalid(field, s, remedy, "is longer than %d characters", maxName)
	case !alnum(s[0]) || !alnum(s[len(s)-1]):
		return Invalid(field, s, remedy, "does not begin and end with a letter or a digit")
	}
	for i := range len(s) {
		if c := s[i]; !alnum(c) && c != '.' && c != '-' {
			return Invalid(field, s, remedy, "has a character that names do not have")
		}
	}
	return nil
}

// ParseGPUID reads a GPU's UUID as nvidia-smi -L prints it and returns it in lower case. A MIG instance's
// UUID is refused: it changes when the instance is made anew. field names the input for the error, a
// *FieldError.
func ParseGPUID(field, s string) (GPUID, error) {
	const remedy = "write a UUID as nvidia-smi -L shows it, such as GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f"
	if strings.HasPrefix(s, "MIG-") {
		return "", Invalid(field, s, remedy, "names a MIG instance, which is no lasting identity")
	}
	hex, ok := strings.CutPrefix(s, "GPU-")
	if !ok || !isUUID(hex) {
		return "", Invalid(field, s, remedy, "is not a GPU's UUID")
	}
	return GPUID("GPU-" + strings.ToLower(hex)), nil
}

// isUUID reports whether s is 8-4-4-4-12 hexadecimal digits.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
			continue
		}
		if ('0' > c || c > '9') && ('a' > c || c > 'f') && ('A' > c || c > 'F') {
			return false
		}
	}
	return true
}
