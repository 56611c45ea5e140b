// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package golden

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Measured is a set of samples whose values differ between two runs; their names and labels are compared all the same.
type Measured struct {
	Samples *regexp.Regexp
	Reason  string
}

// measured are those of every program.
var measured = []Measured{
	{regexp.MustCompile(`^(go|process)_`), "the state of the Go runtime and of the process"},
	{regexp.MustCompile(`_seconds_(sum|bucket)\b`), "durations"},
}

var (
	sample = regexp.MustCompile(`^([a-zA-Z_:]\w*(?:\{.*\})?) (\S+)( \d+)?$`)
	bound  = regexp.MustCompile(`,?le="([^"]*)"`)
)

// Metrics returns an exposition: comments and samples, sorted by name and labels. A histogram has one line for its
// bounds. Values of measured samples are replaced by MEASURED. Bounds of a histogram and samples that omit accepts are
// left out.
func (s *Scrubber) Metrics(text string, more []Measured, omit func(line string) bool) (string, error) {
	var out []string
	bounds := map[string][]string{}
	more = slices.Concat(measured, more)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if strings.HasPrefix(line, "#") {
			out = append(out, line)
			continue
		}
		parts := sample.FindStringSubmatch(line)
		if parts == nil {
			return "", fmt.Errorf("read metrics: no sample: %q", line)
		}
		name, value := s.Text(parts[1]), parts[2]
		if le := bound.FindStringSubmatch(name); le != nil {
			name = strings.Replace(bound.ReplaceAllString(name, ""), "{}", "", 1)
			bounds[name] = append(bounds[name], le[1])
			continue
		}
		if slices.ContainsFunc(more, func(m Measured) bool { return m.Samples.MatchString(name) }) {
			value = MeasuredValue
		}
		out = append(out, name+" "+value)
	}
	for name, all := range bounds {
		out = append(out, name+" bounds "+strings.Join(all, " "))
	}
	if omit != nil {
		out = slices.DeleteFunc(out, omit)
	}
	slices.SortStableFunc(out, func(a, b string) int {
		return cmp.Or(cmp.Compare(family(a), family(b)),
			cmp.Compare(a, b))
	})
	return strings.Join(out, "\n"), nil
}

// family is the name of the family that a line tells of.
func family(line string) string {
	if words := strings.Fields(line); words[0] == "#" && len(words) > 2 {
		return words[2]
	}
	name := line[:strings.IndexAny(line, "{ ")]
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}
