// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// attribute is an attribute of a device, in CEL.
func attribute(name string) string {
	return "device.attributes['gpu." + sharing.Domain + "']." + name
}

// models are the selectors for globs over the GPU's model: one of the globs matches, and none with "!" does.
func models(globs []string) []string {
	var some, all []string
	for _, g := range globs {
		pattern, not := strings.CutPrefix(g, "!")
		match := attribute("model") + ".matches(" + text("^(?i:"+regexOf(pattern)+")$") + ")"
		if not {
			all = append(all, "!"+match)
		} else {
			some = append(some, match)
		}
	}
	if len(some) > 0 {
		all = append([]string{strings.Join(some, " || ")}, all...)
	}
	return all
}

// uuids is the selector for GPUs by UUID.
func uuids(ids []sharing.GPUID) []string {
	if len(ids) == 0 {
		return nil
	}
	var all []string
	for _, id := range ids {
		all = append(all, text(string(id)))
	}
	return []string{attribute("uuid") + " in [" + strings.Join(all, ", ") + "]"}
}

// levels is the selector for shares with a level, or a stronger one.
func levels(least sharing.Level) string {
	var some []string
	for l := least; l <= sharing.LevelDriver; l++ {
		name := l.String()
		some = append(some, attribute("level"+strings.ToUpper(name[:1])+name[1:]))
	}
	return strings.Join(some, " || ")
}

// regexOf is a glob as a regular expression. A class [a-z] and a quoted character are the same in both.
func regexOf(glob string) string {
	var b strings.Builder
	class, quoted := false, false
	for _, r := range glob {
		switch {
		case quoted:
			b.WriteString(regexp.QuoteMeta(string(r)))
			quoted = false
		case r == '\\':
			quoted = true
		case class:
			class = r != ']'
			b.WriteRune(r)
		case r == '[':
			class = true
			b.WriteRune(r)
		case r == '*':
			b.WriteString(".*")
		case r == '?':
			b.WriteString(".")
		default:
			b.WriteString(regexp.QuoteMeta(string(r)))
		}
	}
	return b.String()
}

// text is a string of CEL.
func text(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// digest tells apart claims with equal amounts.
func digest(c Claim) string {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%q %q %q", c.Selectors, c.Profile, c.MinLevel)
	return fmt.Sprintf("%08x", h.Sum32())
}
