// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

type finding struct {
	file    string
	line    int
	rule    string
	message string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.message) }

// The folders that the extracted text is in. The configuration gives them different rules.
const (
	commentDir = "comments"
	stringDir  = "strings"
)

const configuration = `StylesPath = %s
MinAlertLevel = error

[*.txt]
BasedOnStyles = Kerf
TokenIgnores = (https?://[^\s)]+)

[strings/*.txt]
Kerf.SentenceLength = NO
`

// lint writes the texts to dir, and returns what Vale finds in them, by file and line.
func lint(vale, styles, dir string, texts []text) ([]finding, error) {
	config := filepath.Join(dir, "vale.ini")
	if err := os.WriteFile(config, fmt.Appendf(nil, configuration, styles), 0o600); err != nil {
		return nil, err
	}
	written := map[string]source{}
	for i, t := range texts {
		for sub, passages := range map[string][]passage{commentDir: t.comments, stringDir: t.strings} {
			name := filepath.Join(sub, fmt.Sprintf("%d.txt", i))
			if err := write(filepath.Join(dir, name), passages); err != nil {
				return nil, err
			}
			written[name] = source{t.file, passages}
		}
	}
	cmd := exec.Command(vale, "--config", config, "--no-global", "--no-exit", "--output=JSON", commentDir, stringDir)
	cmd.Dir = dir
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run vale: %w: %s%s", err, &problems, out)
	}
	return findings(out, written)
}

// source is where an extracted text comes from: passage i is on line 2i+1.
type source struct {
	file     string
	passages []passage
}

func write(path string, passages []passage) error {
	var b strings.Builder
	for _, p := range passages {
		b.WriteString(p.text + "\n\n")
	}
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(b.String()), 0o600))
}

// findings maps Vale's output back to the Go files.
func findings(out []byte, written map[string]source) ([]finding, error) {
	var alerts map[string][]struct {
		Check, Message string
		Line           int
		Span           []int
	}
	if err := json.Unmarshal(out, &alerts); err != nil {
		return nil, fmt.Errorf("read the output of vale: %w", err)
	}
	var found []finding
	for name, list := range alerts {
		from, ok := written[name]
		for _, a := range list {
			i := (a.Line - 1) / 2
			if !ok || i < 0 || i >= len(from.passages) || len(a.Span) == 0 {
				return nil, fmt.Errorf("vale reports line %d of %s, which was not written", a.Line, name)
			}
			p := from.passages[i]
			found = append(found, finding{from.file, p.line(offset(p.text, a.Span[0])), a.Check, a.Message})
		}
	}
	slices.SortFunc(found, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line), cmp.Compare(a.message, b.message))
	})
	return found, nil
}

// offset converts a column, counted in characters from 1, to bytes.
func offset(s string, column int) int {
	n := 0
	for range column - 1 {
		_, size := utf8.DecodeRuneInString(s[n:])
		n += size
	}
	return n
}
