// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"regexp"
	"strings"
)

// embeddedWord is a resource in a text. A path of Helm escapes its dots, and one of a JSON patch its slash.
var embeddedWord = regexp.MustCompile(`(nvidia|volcano|aliyun|nvshare|tencent|mig\.das|org|instaslice\.redhat|` +
	`tensor-fusion|koordinator|nos\.nebuly)\\*\.(com|sh|instaslice|ai)(/|~1)[\w.-]+`)

// unescaped is a word of such a path.
func unescaped(word string) string {
	return strings.ReplaceAll(strings.ReplaceAll(word, `\`, ""), "~1", "/")
}

// withAmount is what follows a resource that a text requests: a number, a variable, or the name of a CDI device.
var withAmount = regexp.MustCompile(`^["'\\]*(\s*:\s*["'\\]*[1-9{$<]|\s*=\s*["'\\]*([0-9{$<]|all\b|GPU-|MIG-))`)

// otherWords are other requests in a text. One of the groups is its name.
var otherWords = regexp.MustCompile(`(gpu-fraction)["'\\]*\s*:\s*["'\\]*[0-9{$]|` +
	`(spark\.(?:driver|executor)\.resource\.gpu\.vendor)[=:\s"'\\]+nvidia\.com|` +
	`deviceClassName["'\\]*\s*:\s*["'\\]*((?:gpu|mig)\.nvidia\.com)`)

// classWord is a DRA driver of NVIDIA or HAMi in a CEL expression.
var classWord = regexp.MustCompile(`gpu\.nvidia\.com|project-hami\.io`)

// requestIn is the name of a GPU request in a text; empty without one. In a whole manifest, a name alone is one.
func requestIn(text string, whole bool) string {
	for _, at := range embeddedWord.FindAllStringIndex(text, -1) {
		word := text[at[0]:at[1]]
		name := strings.TrimRight(unescaped(word), ".-")
		if foreign(name) && (whole || unescaped(word) != word || withAmount.MatchString(text[at[1]:])) {
			return name
		}
	}
	if m := otherWords.FindStringSubmatch(text); m != nil {
		return m[1] + m[2] + m[3]
	}
	return ""
}
