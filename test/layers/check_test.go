// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package layers_test

import (
	"fmt"
	"slices"
	"strings"
)

// check returns what is wrong with the packages, one sentence each.
func check(pkgs []pkg) []string {
	var wrong []string
	for _, p := range pkgs {
		wrong = append(wrong, checkLayer(p)...)
		wrong = append(wrong, checkAdapters(p)...)
		wrong = append(wrong, checkPure(p)...)
		if !strings.HasPrefix(p.comment, "Package ") && !strings.HasPrefix(p.comment, "Command ") {
			wrong = append(wrong, fmt.Sprintf(
				"%s has no package comment: say what it is for, what it promises and what not", p.path))
		}
	}
	return wrong
}

func checkLayer(p pkg) []string {
	rule, folder, ok := layerOf(p.path)
	if !ok {
		return []string{fmt.Sprintf("%s has no layer: add it to the rules with the sentence that says why", p.path)}
	}
	var wrong []string
	for _, path := range p.imports {
		target := relative(path)
		if why := barred(p.path, target); target != path && why != "" {
			wrong = append(wrong, fmt.Sprintf("%s imports %s: %s", p.path, target, why))
			continue
		}
		if target == path || within(target, folder) || matchAny(rule.may, target) {
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s imports %s: %s", p.path, target, rule.why))
	}
	return wrong
}

// barred is why a package may not import a target outside the product; empty if it may.
func barred(path, target string) string {
	for _, d := range outside {
		if within(target, d.path) && !matchAny(d.open, path) {
			return d.why
		}
	}
	return ""
}

func checkAdapters(p pkg) []string {
	var wrong []string
	for _, path := range p.imports {
		d, ok := adapterOf(path)
		switch {
		case ok && !matchAny(d.open, p.path):
			wrong = append(wrong, fmt.Sprintf("%s imports %s: %s", p.path, relative(path), d.why))
		case !ok && !standard(path) && relative(path) == path:
			wrong = append(wrong, fmt.Sprintf(
				"%s imports %s: no adapter for this module; add one with the sentence that says why", p.path, path))
		}
	}
	return wrong
}

func checkPure(p pkg) []string {
	if !matchAny(pure, p.path) {
		return nil
	}
	var wrong []string
	for _, path := range p.imports {
		if relative(path) == path && standard(path) && !slices.Contains(pureImports, path) {
			wrong = append(wrong, fmt.Sprintf("%s imports %s: it is pure, without I/O, clock or goroutine", p.path,
				path))
		}
	}
	for _, act := range p.acts {
		wrong = append(wrong, fmt.Sprintf("%s: %s: it is pure, without I/O, clock or goroutine", p.path, act))
	}
	return wrong
}

// layerOf finds the rule for a package and the folder whose packages may import each other.
func layerOf(path string) (rule layer, folder string, ok bool) {
	for _, l := range layers {
		if f, matches := match(l.pattern, path); matches && (!ok || len(l.pattern) > len(rule.pattern)) {
			rule, folder, ok = l, f, true
		}
	}
	return rule, folder, ok
}

// doorOf finds the rule with the longest path that an import is under: "log" is not for "log/slog", which
// has its own.
func adapterOf(path string) (found adapter, ok bool) {
	for _, d := range adapters {
		if within(path, d.path) && len(d.path) > len(found.path) {
			found, ok = d, true
		}
	}
	return found, ok
}

// match tells whether a pattern covers a package, and which folder of the pattern it is in.
func match(pattern, path string) (folder string, ok bool) {
	if base, all := strings.CutSuffix(pattern, "/..."); all {
		return base, within(path, base)
	}
	base, siblings := strings.CutSuffix(pattern, "/*")
	if !siblings {
		return pattern, path == pattern
	}
	rest, below := strings.CutPrefix(path, base+"/")
	if !below {
		return "", false
	}
	name, _, _ := strings.Cut(rest, "/")
	return base + "/" + name, true
}

func matchAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		_, ok := match(pattern, path)
		return ok
	})
}

func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

// standard tells the standard library's paths by the rule that go itself has: no dot in the first element.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}
