// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"strings"
	"unicode"
)

var (
	// link is an inline link or image; its target ends at a blank (before a title) or the bracket.
	link = regexp.MustCompile(`\]\(<?([^)\s>]+)>?[^)]*\)`)
	// heading is an ATX heading; Setext ones are not used here.
	heading = regexp.MustCompile(`^#{1,6}\s+(.*?)\s*#*$`)
	// inlineCode may show what looks like a link and is none.
	inlineCode = regexp.MustCompile("`[^`]*`")
)

// checkLinks reports the relative links of a page that lead to no file or no heading.
func checkLinks(tree fs.FS, name, text string) []string {
	var findings []string
	for i, line := range prose(text) {
		for _, match := range link.FindAllStringSubmatch(inlineCode.ReplaceAllString(line, ""), -1) {
			if problem := followLink(tree, name, text, match[1]); problem != "" {
				findings = append(findings, fmt.Sprintf("%s:%d: link %q: %s", name, i+1, match[1], problem))
			}
		}
	}
	return findings
}

// followLink says what is wrong with target, or "" when it leads somewhere or out of the tree.
func followLink(tree fs.FS, name, text, target string) string {
	parsed, err := url.Parse(target)
	if err != nil {
		return "not a URL"
	}
	if parsed.IsAbs() || parsed.Host != "" {
		return ""
	}
	if parsed.Path != "" {
		// A link that begins with / is meant from the tree's root, as forges show it.
		file := path.Join(path.Dir(name), parsed.Path)
		if strings.HasPrefix(parsed.Path, "/") {
			file = strings.TrimPrefix(path.Clean(parsed.Path), "/")
		}
		if !fs.ValidPath(file) {
			return "leads out of the tree"
		}
		if _, err := fs.Stat(tree, file); err != nil {
			return "no such file"
		}
		if parsed.Fragment == "" || path.Ext(file) != ".md" {
			return ""
		}
		other, err := fs.ReadFile(tree, file)
		if err != nil {
			return "cannot be read"
		}
		text = string(other)
	}
	if parsed.Fragment != "" && !anchors(text)[parsed.Fragment] {
		return "no such heading"
	}
	return ""
}

// anchors returns the names under which forges make a page's headings reachable.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, line := range prose(text) {
		match := heading.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		base := anchor(match[1])
		name := base
		for n := 1; found[name]; n++ {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		found[name] = true
	}
	return found
}

func anchor(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, title)
}

// prose returns the page's lines with those inside fenced code blocked out, so that numbers stay right.
func prose(text string) []string {
	lines := strings.Split(text, "\n")
	fence := ""
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		switch {
		case fence != "":
			if strings.HasPrefix(trimmed, fence) {
				fence = ""
			}
			lines[i] = ""
		case strings.HasPrefix(trimmed, "```"), strings.HasPrefix(trimmed, "~~~"):
			fence = trimmed[:3]
			lines[i] = ""
		}
	}
	return lines
}
