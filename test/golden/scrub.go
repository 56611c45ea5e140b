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

// Scrubber replaces what differs between two runs. A value always gets the same placeholder.
type Scrubber struct {
	names map[string]string
	count map[string]int
	// known are literal values and their placeholders, longest first.
	known [][2]string
}

// NewScrubber returns one that has met no value yet.
func NewScrubber() *Scrubber {
	return &Scrubber{names: map[string]string{}, count: map[string]int{}}
}

// Know replaces a literal value by a placeholder from now on. An empty value is ignored.
func (s *Scrubber) Know(value, placeholder string) {
	if value == "" || slices.Contains(s.known, [2]string{value, placeholder}) {
		return
	}
	s.known = append(s.known, [2]string{value, placeholder})
	slices.SortStableFunc(s.known, func(a, b [2]string) int { return cmp.Compare(len(b[0]), len(a[0])) })
}

// The kinds without numbers: a number would count values that were there for a moment, too.
const (
	Time          = "TIME"
	MeasuredValue = "MEASURED"
	Hash          = "HASH"
)

// Number returns the placeholder of a value: KIND-#1 for the first of its kind.
func (s *Scrubber) Number(kind, value string) string {
	if kind == Time || kind == MeasuredValue || kind == Hash {
		return kind
	}
	key := kind + " " + value
	if s.names[key] == "" {
		s.count[kind]++
		s.names[key] = fmt.Sprintf("%s-#%d", kind, s.count[kind])
	}
	return s.names[key]
}

// Call sets the placeholder of a value of a kind. Without it the first value met is number 1, whichever comes first.
func (s *Scrubber) Call(kind, value, placeholder string) { s.names[kind+" "+value] = placeholder }

const uuid = `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`

// kinds are the values that the text itself gives away, in the order in which they are replaced.
var kinds = []struct {
	kind string
	re   *regexp.Regexp
}{
	{"GPU", regexp.MustCompile(`\bGPU-` + uuid)},
	{"MIG", regexp.MustCompile(`\bMIG-` + uuid)},
	{"UUID", regexp.MustCompile(`\b` + uuid + `\b`)},
	{Time, regexp.MustCompile(`\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)},
	{Hash, regexp.MustCompile(`\b[0-9a-f]{64}\b`)},
	{"GRANT", regexp.MustCompile(`\bk-[0-9a-f]{10}\b`)},
	{"CAPABILITY", regexp.MustCompile(`\bnvidia-cap\d+\b`)}, // of a MIG instance; a new instance has new numbers
	{"DOMAIN", regexp.MustCompile(`\b[0-9a-f]{16}\b`)},      // of MPS
}

// pids is where a text names processes.
var pids = regexp.MustCompile(`\b(PIDs?|pids?|process|processes)([ =])(\d+(, \d+)*)\b`)

var number = regexp.MustCompile(`\d+`)

// Text replaces all values that it knows in a text.
func (s *Scrubber) Text(text string) string {
	for _, k := range s.known {
		text = strings.ReplaceAll(text, k[0], k[1])
	}
	for _, k := range kinds {
		text = k.re.ReplaceAllStringFunc(text, func(v string) string {
			return s.Number(k.kind, v)
		})
	}
	return pids.ReplaceAllStringFunc(text, func(v string) string {
		parts := pids.FindStringSubmatch(v)
		return parts[1] + parts[2] + number.ReplaceAllStringFunc(parts[3],
			func(pid string) string { return s.Number("PID", pid) })
	})
}

// strange matches what must not be in a golden file: values that differ between two runs, or paths of one machine.
var strange = regexp.MustCompile(
	`STRANGE|\b[0-9a-f]*([0-9][a-f]|[a-f][0-9])[0-9a-f]{5,}\b|/tmp/\S*|\b20\d\d-\d\d-\d\d\b|` +
		`\b\d+(\.\d+)?(ns|µs|ms)\b`)

// Strange returns the values in a scrubbed text that look as if they differed between two runs.
func Strange(text string) []string { return strange.FindAllString(text, -1) }
