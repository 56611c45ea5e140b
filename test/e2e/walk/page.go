// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package walk reads docs/start/quick-start.md and docs/start/tutorial.md as one script and, in its test, runs it: what
// the pages tell an administrator to type is typed, and what they show must come.
//
// A block of "sh" is typed as it is. The block of "text" after it is what must be seen: each of its lines, in that
// order, is in a line of the output, where "..." stands for any text; runs of spaces count as one. "sh refused" must
// fail. "sh eventually" is typed again until what must be seen is seen, and "sh refused eventually" until it also
// fails. A comment <!-- walk: WORD --> calls a check of the test's own.
package walk

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Step is one block of commands, or one call of a check.
type Step struct {
	// Line is where it is on the page.
	Line int
	// Check is the word of a check, empty for commands.
	Check string
	// Commands are what is typed. Refused: they must fail. Eventually: again, until Shows is seen.
	Commands            string
	Refused, Eventually bool
	Shows               []string
}

var checkMark = regexp.MustCompile(`^<!-- walk: ([a-z-]+) -->$`)

// Parse reads a page. The error names the line that cannot be understood.
func Parse(page string) ([]Step, error) {
	var steps []Step
	var block []string
	language, began, shown := "", 0, false
	for i, line := range strings.Split(page, "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case language == "" && !isFence:
			if m := checkMark.FindStringSubmatch(line); m != nil {
				steps = append(steps, Step{Line: i + 1, Check: m[1]})
			}
			if strings.TrimSpace(line) != "" {
				shown = true // what is shown directly follows what is typed
			}
		case language == "":
			if language, began, block = fence, i+1, nil; fence == "" {
				return nil, fmt.Errorf("line %d: a block without a language: write sh, text or yaml after the fence",
					i+1)
			}
		case !isFence:
			block = append(block, line)
		default:
			last := len(steps) - 1
			switch word, how, _ := strings.Cut(language, " "); {
			case word == "sh" && slices.Contains([]string{"", "refused", "eventually", "refused eventually"}, how):
				steps, shown = append(steps, Step{Line: began, Commands: strings.Join(block, "\n"),
					Refused: strings.HasPrefix(how, "refused"), Eventually: strings.HasSuffix(how, "eventually")}),
					false
			case language == "text" && (shown || last < 0 || steps[last].Check != "" || steps[last].Shows != nil):
				return nil, fmt.Errorf("line %d: a block of text that follows no commands", began)
			case language == "text":
				steps[last].Shows = block
			case language != "yaml":
				return nil,
					fmt.Errorf(
						"line %d: a block of %q: write sh, sh refused, sh eventually, sh refused "+
							"eventually, text or yaml", began, language)
			}
			language = ""
		}
	}
	if language != "" {
		return nil, fmt.Errorf("line %d: the block has no end", began)
	}
	for _, s := range steps {
		if s.Eventually && s.Shows == nil {
			return nil, fmt.Errorf("line %d: until when: nothing is shown after it", s.Line)
		}
	}
	return steps, nil
}

// Missing is the first line that must be seen and is not in the output, empty where all are.
func (s Step) Missing(output string) string {
	lines := strings.Split(output, "\n")
	at := 0
	for _, want := range s.Shows {
		if strings.TrimSpace(want) == "" {
			continue
		}
		pattern := regexp.MustCompile(pattern(want))
		for at < len(lines) && !pattern.MatchString(strings.Join(strings.Fields(lines[at]), " ")) {
			at++
		}
		if at == len(lines) {
			return want
		}
		at++
	}
	return ""
}

func pattern(shown string) string {
	parts := strings.Split(strings.Join(strings.Fields(shown), " "), "...")
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	return strings.Join(parts, ".*")
}

var heredoc = regexp.MustCompile(`<<-?'?(\w+)`)

// Count is how many commands a reader types: lines, but those that go on with "\", those of a text that is given to a
// command, and comments.
func (s Step) Count() int {
	n, end, goesOn := 0, "", false
	for line := range strings.SplitSeq(s.Commands, "\n") {
		word := strings.TrimSpace(line)
		switch {
		case end != "":
			if word == end {
				end = ""
			}
			continue
		case word == "" || strings.HasPrefix(word, "#"):
			continue
		}
		if !goesOn {
			n++
		}
		goesOn = strings.HasSuffix(word, `\`)
		if m := heredoc.FindStringSubmatch(line); m != nil {
			end = m[1]
		}
	}
	return n
}
