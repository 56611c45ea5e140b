// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"regexp"
	"strings"
)

// Removed stands for what is left out of the archive.
const Removed = "REMOVED"

// secretKey finds the last word of a key whose value is a secret.
const secretKey = `(?i:password|passwd|passphrase|secret|token|credentials?|api[-_]?key|access[-_]?key|private[-_]?key)`

// redactor removes secrets.
type redactor struct {
	// key finds the keys whose values are secrets.
	key   *regexp.Regexp
	forms []form
}

// form is a form of a secret in text, and what replaces it.
type form struct {
	find *regexp.Regexp
	with string
}

func newRedactor() *redactor {
	return &redactor{key: regexp.MustCompile(`^` + secretKey + `$`), forms: []form{
		{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`), Removed},
		// JSON Web Tokens, such as those of service accounts.
		{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*)?`), Removed},
		{regexp.MustCompile(`(?i)(authorization["']? *[:=] *)[^\r\n]+`), "${1}" + Removed},
		{regexp.MustCompile(`(?i)\b(bearer|basic) +[A-Za-z0-9._~+/=-]{8,}`), "$1 " + Removed},
		// A user and password in an address.
		{regexp.MustCompile(`(://)[^/\s:@]+:[^/\s@]+@`), "${1}" + Removed + "@"},
		// KEY=value, key: value and "key": "value".
		{regexp.MustCompile(`([A-Za-z0-9_.-]*` + secretKey + `["']? *[:=] *)` +
			`("(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;}\]]+)`), "${1}" + Removed},
	}}
}

// text removes what looks like a secret from text.
func (r *redactor) text(text []byte) []byte {
	for _, f := range r.forms {
		text = f.find.ReplaceAll(text, []byte(f.with))
	}
	return text
}

// leftOut reports whether a field of an object may have secrets, or says nothing.
func (r *redactor) leftOut(key string) bool {
	switch strings.ToLower(key) {
	case "env", "envfrom", "environment", "environ", "managedfields", "annotations", "stringdata", "binarydata":
		return true
	}
	return r.key.MatchString(key)
}

// object removes environments, annotations and secrets from an object of JSON, at any depth.
func (r *redactor) object(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if r.leftOut(key) {
				delete(v, key)
				continue
			}
			v[key] = r.object(value)
		}
	case []any:
		for i := range v {
			v[i] = r.object(v[i])
		}
	case string:
		return string(r.text([]byte(v)))
	}
	return v
}

// json is an object without secrets, as text. It may be JSON already.
func (r *redactor) json(v any) ([]byte, error) {
	text, ok := v.(json.RawMessage)
	if !ok {
		var err error
		if text, err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return nil, err
	}
	return json.MarshalIndent(r.object(plain), "", "  ")
}
