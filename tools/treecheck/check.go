// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

const (
	copyright = "Copyright 2026 The Kerf Authors"
	spdx      = "SPDX-License-Identifier: Apache-2.0"
	// headerLines is how far down the two lines may stand: below "#!" at most.
	headerLines = 3
	// maxLines is the house's limit for a file that people write.
	maxLines = 600
)

// generated is the mark of Go's tools for generated files, also as JSON Schema has comments.
var generated = regexp.MustCompile(`(?m)^(// |  "\$comment": ")Code generated .* DO NOT EDIT\.(",)?$`)

// machinePath finds home folders and the like: absolute paths that another machine does not have.
var machinePath = regexp.MustCompile(`(^|[\s"'` + "`" + `(=:,])(/(work|root|home/[a-z][\w.-]*|Users/[A-Za-z][\w.-]*)/[\w.-]*)`)

// sameEverywhere begins the paths among them that every node of a kind has: GKE keeps the driver there.
const sameEverywhere = "/home/kubernetes/"

// check reads every file below tree that belongs to the source and returns the findings, in the tree's order.
func check(tree fs.FS) ([]string, error) {
	var findings []string
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if skipped(name) {
				return fs.SkipDir
			}
			return nil
		}
		if !entry.Type().IsRegular() || name == ".git" { // in another worktree, .git is a file
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) >= 0 {
			return nil // not text
		}
		findings = append(findings, checkFile(tree, name, string(text))...)
		return nil
	})
	return findings, err
}

// skipped tells folders that hold no source: git's own, build output, caches.
func skipped(dir string) bool {
	return slices.Contains([]string{".git", ".cache", "bin"}, dir)
}

func checkFile(tree fs.FS, name, text string) []string {
	var findings []string
	if wantsHeader(name, text) && !hasHeader(text) {
		findings = append(findings, fmt.Sprintf("%s: no licence header: begin with %q and %q", name, copyright, spdx))
	}
	if lines := strings.Count(text, "\n"); lines > maxLines && limited(name, text) {
		findings = append(findings, fmt.Sprintf("%s: %d lines: split it, %d is the most", name, lines, maxLines))
	}
	findings = append(findings, checkColumns(name, text)...)
	for i, line := range strings.Split(text, "\n") {
		for _, match := range machinePath.FindAllStringSubmatch(line, -1) {
			if !strings.HasPrefix(match[2], sameEverywhere) {
				findings = append(findings, fmt.Sprintf("%s:%d: %s is a path of one machine", name, i+1, match[2]))
			}
		}
	}
	if path.Ext(name) == ".md" {
		findings = append(findings, checkLinks(tree, name, text)...)
	}
	return findings
}

// wantsHeader is true for program text, by name or by "#!".
func wantsHeader(name, text string) bool {
	switch path.Ext(name) {
	case ".go", ".c", ".h", ".sh", ".proto", ".mk":
		return true
	}
	return path.Base(name) == "Makefile" || strings.HasPrefix(text, "#!")
}

func hasHeader(text string) bool {
	lines := strings.SplitN(text, "\n", headerLines+1)
	for i := range len(lines) - 1 {
		if strings.HasSuffix(lines[i], copyright) && strings.Contains(lines[i+1], spdx) {
			return true
		}
	}
	return false
}

// limited leaves out files that are not written by hand: generated code, checksums, the license, test data.
func limited(name, text string) bool {
	if generated.MatchString(text) || strings.Contains(name, "testdata/") {
		return false
	}
	switch path.Base(name) {
	case "go.mod", "LICENSE":
		return false
	}
	return path.Ext(name) != ".sum"
}
