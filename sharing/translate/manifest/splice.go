// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// source is the text of a file, with the offset of each line as the YAML parser counts lines.
type source struct {
	text    []byte
	lines   []int
	newline string
	isJSON  bool
	splices []splice
}

// splice replaces one range of the text.
type splice struct {
	from, to int
	text     string
}

func newSource(text []byte) *source {
	s := &source{text: text, lines: []int{0}, newline: "\n", isJSON: json.Valid(text)}
	if bytes.HasPrefix(text, []byte("\ufeff")) {
		s.lines[0] = len("\ufeff")
	}
	if bytes.Contains(text, []byte("\r\n")) {
		s.newline = "\r\n"
	}
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if i += n; r == '\r' && i < len(text) && text[i] == '\n' {
			i++
		}
		if r == '\n' || r == '\r' || r == '\u0085' || r == '\u2028' || r == '\u2029' {
			s.lines = append(s.lines, i)
		}
	}
	return s
}

// at is the offset of a node, or the end of the text.
func (s *source) at(n *yaml.Node) int {
	if n.Line < 1 || n.Line > len(s.lines) {
		return len(s.text)
	}
	i := s.lines[n.Line-1]
	for range n.Column - 1 {
		_, size := utf8.DecodeRune(s.text[i:])
		i += size
	}
	return i
}

// end is the offset behind a node. The indent is that of its key, in columns.
func (s *source) end(n *yaml.Node, indent int) int {
	i := s.at(n)
	switch {
	case n.Kind == yaml.ScalarNode || n.Kind == yaml.AliasNode:
		return s.endOfScalar(n, indent)
	case n.Style&yaml.FlowStyle == 0 && len(n.Content) > 0:
		if n.Kind == yaml.MappingNode {
			indent = n.Content[len(n.Content)-2].Column - 1
		}
		return s.end(n.Content[len(n.Content)-1], indent)
	case len(n.Content) > 0:
		i = s.end(n.Content[len(n.Content)-1], indent)
	}
	if closing := bytes.IndexAny(s.text[i:], "]}"); closing >= 0 {
		return i + closing + 1
	}
	return len(s.text)
}

func (s *source) endOfScalar(n *yaml.Node, indent int) int {
	i := s.at(n)
	for i < len(s.text) && (s.text[i] == '&' || s.text[i] == '!') { // an anchor or a tag comes first
		if i += bytes.IndexAny(append(s.text[i:len(s.text):len(s.text)], ' '), " \t\r\n"); i < len(s.text) {
			i += len(s.text[i:]) - len(bytes.TrimLeft(s.text[i:], " \t\r\n"))
		}
	}
	rest := s.text[min(i, len(s.text)):]
	switch {
	case n.Kind == yaml.AliasNode:
		return i + len("*") + len(n.Value)
	case n.Style&yaml.DoubleQuotedStyle != 0:
		return i + endOfQuoted(rest, '"', '\\')
	case n.Style&yaml.SingleQuotedStyle != 0:
		return i + endOfQuoted(rest, '\'', '\'')
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return s.endOfBlock(i, indent)
	}
	return i + len(n.Value) // of several lines, the comparison fails
}

// endOfQuoted is the length of a quoted text. The escape makes the next byte ordinary.
func endOfQuoted(rest []byte, quote, escape byte) int {
	for j := 1; j < len(rest); j++ {
		switch {
		case rest[j] == quote && (quote != escape || j+1 == len(rest) || rest[j+1] != quote):
			return j + 1
		case rest[j] == escape:
			j++
		}
	}
	return len(rest)
}

// endOfBlock is the end of a literal or folded text, whose lines have a larger indent than its key.
func (s *source) endOfBlock(i, indent int) int {
	line, _ := slices.BinarySearch(s.lines, i+1) // the first line behind the header
	end := i
	for ; line <= len(s.lines); line++ {
		stop := len(s.text)
		if line < len(s.lines) {
			stop = s.lines[line]
		}
		content := bytes.TrimRight(s.text[s.lines[line-1]:stop], "\r\n")
		trimmed := bytes.TrimLeft(content, " ")
		if s.lines[line-1] > i && len(trimmed) > 0 && len(content)-len(trimmed) <= indent {
			break
		}
		if len(trimmed) > 0 {
			end = s.lines[line-1] + len(content)
		}
	}
	return end
}

// write is the text with all edits.
func (s *source) write(e *edits) []byte {
	s.splices = nil
	for n, change := range e.mappings {
		switch {
		case e.gone[n]:
		case n.Style&yaml.FlowStyle != 0:
			s.flow(n, change)
		default:
			s.block(n, change)
		}
	}
	for n, value := range e.scalars {
		s.replace(s.at(n), s.endOfScalar(n, 0), render(value, s.isJSON))
	}
	slices.SortFunc(s.splices, func(a, b splice) int { return cmp.Or(a.from-b.from, a.to-b.to) })
	var out []byte
	i := 0
	for _, one := range s.splices {
		if one.from < i {
			continue // the comparison with the tree finds what is then missing
		}
		out = append(append(out, s.text[i:one.from]...), one.text...)
		i = one.to
	}
	return append(out, s.text[i:]...)
}

func (s *source) replace(from, to int, text string) {
	s.splices = append(s.splices, splice{from, to, text})
}

// puts are the new entries as text.
func (s *source) puts(e *edit, separator string) string {
	var out []string
	nodes := e.nodes()
	for i := 0; i < len(nodes); i += 2 {
		out = append(out, render(nodes[i], s.isJSON)+": "+render(nodes[i+1], s.isJSON))
	}
	return strings.Join(out, separator)
}

// flow edits a mapping in braces.
func (s *source) flow(n *yaml.Node, e *edit) {
	start := func(i int) int { return s.at(n.Content[i]) }
	end := func(i int) int { return s.end(n.Content[i+1], 0) }
	separator := s.separator(n)
	last, open := -1, len(e.put) > 0
	var dropped []int
	for i := 0; i < len(n.Content); i += 2 {
		switch {
		case !e.drops(n.Content[i]):
			last = i
		case open:
			open, last = false, i
			s.replace(start(i), end(i), s.puts(e, separator))
		default:
			dropped = append(dropped, i)
		}
	}
	for _, i := range dropped {
		switch {
		case i < last:
			s.replace(start(i), start(i+2), "")
		case last < 0 && i == 0:
			s.replace(start(0), end(dropped[len(dropped)-1]), "")
		case last < 0:
		case i == dropped[len(dropped)-1]: // the last entries go with the comma before them
			s.replace(end(last), end(i), "")
		}
	}
	brace := bytes.IndexByte(s.text[s.at(n):], '{')
	switch {
	case !open || brace < 0:
	case len(n.Content) == 0:
		s.replace(s.at(n)+brace+1, s.at(n)+brace+1, s.puts(e, separator))
	default:
		e.index = len(n.Content)
		s.replace(end(e.index-2), end(e.index-2), separator+s.puts(e, separator))
	}
}

// separator is what is between two entries of a mapping in braces.
func (s *source) separator(n *yaml.Node) string {
	out := ", "
	if len(n.Content) > 2 {
		second := s.at(n.Content[2])
		if gap := s.text[min(s.end(n.Content[1], 0), second):second]; len(bytes.TrimLeft(gap, ", \r\n\t")) == 0 {
			out = "," + strings.TrimLeft(string(gap), ",")
		}
	}
	if out == "," && !s.isJSON {
		return ", "
	}
	return out
}

// block edits a mapping with one entry in a line.
func (s *source) block(n *yaml.Node, e *edit) {
	if len(n.Content) == 0 {
		return
	}
	indent := n.Content[0].Column - 1
	separator := s.newline + strings.Repeat(" ", indent)
	open := len(e.put) > 0
	for i := 0; i < len(n.Content); i += 2 {
		start, end := s.at(n.Content[i]), s.end(n.Content[i+1], indent)
		switch {
		case !e.drops(n.Content[i]):
		case open:
			open = false
			s.replace(start, end, s.puts(e, separator))
		case len(bytes.TrimSpace(s.text[s.lines[n.Content[i].Line-1]:start])) == 0:
			next, _ := slices.BinarySearch(s.lines, end+1)
			stop := len(s.text)
			if next < len(s.lines) {
				stop = s.lines[next]
			}
			s.replace(s.lines[n.Content[i].Line-1], stop, "")
		case i+2 < len(n.Content):
			s.replace(start, s.at(n.Content[i+2]), "")
		}
	}
	if !open {
		return
	}
	if last := n.Content[len(n.Content)-1]; s.oneLine(last) {
		e.index = len(n.Content)
		i := s.end(last, indent)
		if next, _ := slices.BinarySearch(s.lines, i+1); next < len(s.lines) {
			i = s.lines[next] - len(s.newline)
		}
		s.replace(i, i, separator+s.puts(e, separator))
		return
	}
	s.replace(s.at(n.Content[0]), s.at(n.Content[0]), s.puts(e, separator)+separator)
}

// oneLine is true for a scalar whose end the text shows.
func (s *source) oneLine(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Value != "" && n.Style == 0 && n.Anchor == "" &&
		bytes.HasPrefix(s.text[s.at(n):], []byte(n.Value)) ||
		n.Kind == yaml.ScalarNode && n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0
}
