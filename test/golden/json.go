// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Format says how a JSON document is read.
type Format struct {
	// Differ are the fields with values that differ between two runs, and the kind of each. Their key is the name, or
	// the name of the object, a dot and theirs. The values 0 and "" stay, but a MeasuredValue may be 0.
	Differ map[string]string
	// Unordered are the lists without an order: elements are sorted. "" is the root itself.
	Unordered []string
}

// width is the length up to which an object or a list is written on one line.
const width = 130

// JSON returns data with sorted keys and with placeholders, one object on a line where it fits.
func (s *Scrubber) JSON(data []byte, d Format) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return "", fmt.Errorf("read JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return "", errors.New("read JSON: more than one document")
	}
	return write(s.value("", v, d), ""), nil
}

// value replaces what is in v, which has this name.
func (s *Scrubber) value(name string, v any, d Format) any {
	switch v := v.(type) {
	case string:
		if kind := d.Differ[name]; kind != "" && v != "" {
			return s.Number(kind, v)
		}
		return s.Text(v)
	case json.Number:
		if kind := d.Differ[name]; kind != "" && (v != "0" || kind == MeasuredValue) {
			return s.Number(kind, v.String())
		}
		return v
	case []any:
		for i := range v {
			v[i] = s.value(name, v[i], d)
		}
		if slices.Contains(d.Unordered, name) {
			slices.SortFunc(v, func(a, b any) int { return strings.Compare(write(a, ""), write(b, "")) })
		}
		return v
	case map[string]any:
		out := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if _, twice := out[s.Text(key)]; twice {
				out["two keys become "+s.Text(key)] = "STRANGE"
			}
			field := key
			if d.Differ[name+"."+key] != "" {
				field = name + "." + key
			}
			out[s.Text(key)] = s.value(field, v[key], d)
		}
		return out
	}
	return v
}

// write writes a value. What does not fit on a line is indented below it: short members share lines.
func write(v any, indent string) string {
	text := compact(v)
	if len(indent)+len(text) <= width {
		return text
	}
	inner := indent + "  "
	var members []string
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			members = append(members, write(e, inner))
		}
		return "[\n" + inner + fill(members, inner) + "\n" + indent + "]"
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			members = append(members, compact(key)+": "+write(v[key], inner))
		}
		return "{\n" + inner + fill(members, inner) + "\n" + indent + "}"
	}
	return text
}

// fill puts as many short members on a line as fit, and each nested one on its own.
func fill(members []string, indent string) string {
	var out strings.Builder
	column := len(indent)
	for i, m := range members {
		nested := strings.ContainsAny(m, "[{\n") && !strings.HasSuffix(m, "[]")
		switch {
		case i == 0:
		case nested || column+len(m)+2 > width:
			out.WriteString(",\n" + indent)
			column = len(indent)
		default:
			out.WriteString(", ")
		}
		out.WriteString(m)
		column += len(m) + 2
		if nested {
			column = width
		}
	}
	return out.String()
}

// compact is JSON on one line.
func compact(v any) string {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err.Error() // unreachable: v was decoded from JSON
	}
	return strings.TrimSuffix(line.String(), "\n")
}
