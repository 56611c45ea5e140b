// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	maxGlob    = 128 // bytes; no GPU's model is longer than 96 in NVML
	globRemedy = "write a pattern over the model's name, such as *H100* or !*T4*"
)

// CheckGlob rejects what is not a model glob: * for any text, ? for one character, [a-z] and [^a-z] for one of a class.
// A \ quotes the next character, and ! in front means "not". The error is a *FieldError for field.
func CheckGlob(field, s string) error {
	if _, problem := parseGlob(strings.TrimPrefix(s, "!")); problem != "" {
		return Invalid(field, s, globRemedy, "%s", problem)
	}
	return nil
}

// MatchModels reports whether a GPU model satisfies a list of globs: one without ! matches (if there is any
// such), and none with ! does. Case does not count, and no character separates, so * runs over everything.
// A glob that CheckGlob refuses lets nothing match.
func MatchModels(globs []string, model string) bool {
	name := []rune(model)
	positive, matched := false, false
	for _, g := range globs {
		pattern, negative := strings.CutPrefix(g, "!")
		tokens, problem := parseGlob(pattern)
		if problem != "" {
			return false
		}
		hit := matchGlob(tokens, name)
		if negative && hit {
			return false
		}
		if !negative {
			positive, matched = true, matched || hit
		}
	}
	return matched || !positive
}

// PartOfName is a hint for the end of an error: a glob is only a part of the model's name. It is empty if none is.
func PartOfName(globs []string, model string) string {
	for _, g := range globs {
		if g != "" && !strings.HasPrefix(g, "!") && !MatchModels([]string{g}, model) &&
			MatchModels([]string{"*" + g + "*"}, model) {
			return fmt.Sprintf("; a pattern means the whole name: write %q", "*"+g+"*")
		}
	}
	return ""
}

// token is one step of a glob: any run of characters (star), or one character of a class.
type token struct {
	star   bool
	any    bool
	negate bool
	ranges [][2]rune
}

// matches reports whether r is in the token's class, in either case.
func (t token) matches(r rune) bool {
	if t.any {
		return true
	}
	for _, c := range [...]rune{r, unicode.ToLower(r), unicode.ToUpper(r)} {
		for _, in := range t.ranges {
			if in[0] <= c && c <= in[1] {
				return !t.negate
			}
		}
	}
	return t.negate
}

// parseGlob returns the steps of a pattern, or what is wrong with it.
func parseGlob(s string) (tokens []token, problem string) {
	switch {
	case s == "":
		return nil, "is empty"
	case len(s) > maxGlob:
		return nil, "is too long"
	case !utf8.ValidString(s):
		return nil, "is not valid UTF-8"
	case strings.ContainsFunc(s, unicode.IsControl):
		return nil, "has a control character in it"
	}
	rest := []rune(s)
	for len(rest) > 0 {
		c := rest[0]
		switch c {
		case '*':
			tokens, rest = append(tokens, token{star: true}), rest[1:]
		case '?':
			tokens, rest = append(tokens, token{any: true}), rest[1:]
		case '[':
			class, after, problem := parseClass(rest[1:])
			if problem != "" {
				return nil, problem
			}
			tokens, rest = append(tokens, class), after
		default:
			r, after, problem := parseRune(rest)
			if problem != "" {
				return nil, problem
			}
			// Both cases stand in the pattern too: matches folds only the model's side.
			tokens = append(tokens, token{ranges: [][2]rune{{r, r}, {unicode.ToLower(r), unicode.ToLower(r)}}})
			rest = after
		}
	}
	return tokens, ""
}

// parseClass reads a class after its opening bracket.
func parseClass(s []rune) (class token, rest []rune, problem string) {
	if len(s) > 0 && s[0] == '^' {
		class.negate, s = true, s[1:]
	}
	for len(s) > 0 {
		if s[0] == ']' {
			if len(class.ranges) == 0 {
				return class, nil, "has an empty class []"
			}
			return class, s[1:], ""
		}
		low, after, problem := parseRune(s)
		if problem != "" {
			return class, nil, problem
		}
		high := low
		if len(after) > 1 && after[0] == '-' && after[1] != ']' {
			if high, after, problem = parseRune(after[1:]); problem != "" {
				return class, nil, problem
			}
		}
		if high < low {
			return class, nil, "has a range that runs backwards"
		}
		class.ranges, s = append(class.ranges, [2]rune{low, high}), after
	}
	return class, nil, "has a [ without its ]"
}

// parseRune reads one character that stands for itself.
func parseRune(s []rune) (r rune, rest []rune, problem string) {
	if s[0] != '\\' {
		return s[0], s[1:], ""
	}
	if len(s) == 1 {
		return 0, nil, `ends in \`
	}
	return s[1], s[2:], ""
}

// matchGlob matches the whole name. On a mismatch only the last star is tried again, one character on, so
// the time is bounded by the product of both lengths.
func matchGlob(tokens []token, name []rune) bool {
	t, n := 0, 0
	star, from := -1, 0
	for n < len(name) {
		switch {
		case t < len(tokens) && tokens[t].star:
			star, from = t, n
			t++
		case t < len(tokens) && tokens[t].matches(name[n]):
			t++
			n++
		case star >= 0:
			from++
			t, n = star+1, from
		default:
			return false
		}
	}
	for t < len(tokens) && tokens[t].star {
		t++
	}
	return t == len(tokens)
}
