// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"path"
	"regexp"
	"strings"
)

const (
	// maxColumns bounds a line of Go and C, so that two files fit on a screen, side by side.
	maxColumns = 120
	tabColumns = 4
)

// unbreakable marks lines that are longer for a reason: an address is one word, and a directive is one line.
var unbreakable = regexp.MustCompile(`https?://|//nolint:|//go:`)

// checkColumns returns a finding for each line of Go or C that is too wide. Raw strings of Go are text of another kind.
func checkColumns(name, text string) []string {
	isGo := path.Ext(name) == ".go"
	if !isGo && path.Ext(name) != ".c" && path.Ext(name) != ".h" || generated.MatchString(text) {
		return nil
	}
	var findings []string
	var raw map[int]bool // computed for files with a wide line only
	for i, line := range strings.Split(text, "\n") {
		n := columns(line)
		if n <= maxColumns || unbreakable.MatchString(line) {
			continue
		}
		if isGo && raw == nil {
			raw = rawLines(text)
		}
		if !raw[i+1] {
			findings = append(findings, fmt.Sprintf("%s:%d: %d columns: wrap the line, %d is the most",
				name, i+1, n, maxColumns))
		}
	}
	return findings
}

func columns(line string) int {
	n := 0
	for _, r := range line {
		if r == '\t' {
			n += tabColumns - n%tabColumns
		} else {
			n++
		}
	}
	return n
}

// rawLines returns the lines of Go text that have a part of a raw string, counted from 1.
func rawLines(text string) map[int]bool {
	lines := map[int]bool{}
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, []byte(text), nil, 0)
	for {
		pos, kind, literal := s.Scan()
		if kind == token.EOF {
			return lines
		}
		if kind == token.STRING && strings.HasPrefix(literal, "`") {
			first := file.Line(pos)
			for i := range strings.Count(literal, "\n") + 1 {
				lines[first+i] = true
			}
		}
	}
}
