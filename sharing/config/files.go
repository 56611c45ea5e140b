// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// FilesOf are the files of a document that a ConfigMap holds, one for each key: by name those that end in .yaml, .yml or
// .json. Other keys are of no document.
func FilesOf(data map[string]string) []File {
	var out []File
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if IsFile(name) {
			out = append(out, File{Name: name, Data: []byte(data[name])})
		}
	}
	return out
}

// IsFile reports whether a file of that name is one of a document.
func IsFile(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") || strings.HasSuffix(name, ".json")
}

// Hash tells one document from another, however it was read: of a single file it is the SHA-256 of what is in it, of several
// that of their names and what is in them.
func Hash(files []File) string {
	h := sha256.New()
	for _, f := range files {
		if len(files) > 1 {
			_, _ = fmt.Fprintf(h, "%q %d\n", f.Name, len(f.Data)) // never fails
		}
		_, _ = h.Write(f.Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}
