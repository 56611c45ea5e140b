// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package documents reads the commands that the documentation has people type, for the suite that types them, and which
// tests the pages name.
//
// It promises that no command of a page is forgotten. Each is either typed, or in a list with the reason why it cannot
// be. An entry of that list that no page has any more is an error.
package documents

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Command is one that a page tells to type, with the text that goes into it.
type Command struct {
	Page string
	Line int
	Text string
	// Reason it is not typed; empty where it is.
	Reason string
}

// fence is the beginning of a block of code. Those that have a language are no commands.
var fence = regexp.MustCompile("^```(.*)$")

// heredoc is the beginning of a text that goes into a command.
var heredoc = regexp.MustCompile(`<<-?'?(\w+)`)

// Commands are those of a page, in its order. not says by the beginning of a command why it is not typed.
func Commands(page, text string, not map[string]string) ([]Command, error) {
	var out []Command
	used := map[string]bool{}
	inside, language, until := false, "", ""
	for i, line := range strings.Split(text, "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case m != nil:
			if until != "" {
				return nil, fmt.Errorf("%s, line %d: the text up to %s has no end", page, i+1, until)
			}
			inside, language = !inside, m[1]
		case !inside || language != "":
		case until != "":
			out[len(out)-1].Text += "\n" + line
			if line == until {
				until = ""
			}
		case strings.TrimSpace(line) != "":
			c := Command{Page: page, Line: i + 1, Text: line}
			for begin, why := range not {
				if strings.HasPrefix(line, begin) {
					c.Reason, used[begin] = why, true
				}
			}
			out = append(out, c)
			if m := heredoc.FindStringSubmatch(line); m != nil {
				until = m[1]
			}
		}
	}
	for _, begin := range slices.Sorted(maps.Keys(not)) {
		if !used[begin] {
			return nil, fmt.Errorf("%s has no command %q any more: take it off the list of those that are not typed",
				page, begin)
		}
	}
	return out, nil
}

// Section is the part of a page below a heading, up to the next heading of the same or a higher level. It moves blocks
// in lists to the left, so that Commands reads them. The error says that the page has not exactly one such heading.
func Section(text, heading string) (string, error) {
	var part []string
	level, found, code := "", 0, false
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimPrefix(line, "   ")
		code = code != fence.MatchString(line)
		marks, title, isHeading := strings.Cut(line, " ")
		isHeading = isHeading && !code && marks != "" && strings.Trim(marks, "#") == ""
		switch {
		case isHeading && title == heading:
			found++
			level = marks
		case isHeading && len(marks) <= len(level):
			level = ""
		case level != "":
			part = append(part, line)
		}
	}
	if found != 1 {
		return "", fmt.Errorf("heading %q: found %d times, want 1", heading, found)
	}
	return strings.Join(part, "\n"), nil
}

// Kubectl are the commands of docs/operate/install-with-kubectl.md that a simulated node cannot run, and why.
func Kubectl() map[string]string {
	const toolkit, docker = "there is no driver of NVIDIA's, and none of its tools",
		"there is no Docker here; the suite puts the same programs into images"
	return map[string]string{
		"nvidia-smi ": toolkit, "nvidia-ctk cdi": toolkit, "nvidia-ctk runtime": toolkit, "nvidia-ctk config": toolkit,
		"docker build": docker, "docker push": docker,
	}
}

// Pods are those of docs/use/pods.md.
func Pods() map[string]string { return map[string]string{} }

// OneMachine are those of docs/use/one-machine.md.
func OneMachine() map[string]string {
	const agent, container = "the node has an agent already",
		"the node's agent serves kubelet; TestImageWithoutPod and test/machine type it"
	return map[string]string{
		"groupadd ": agent, "kerf-agent ": agent, "kerf run --image ": container,
		"kerf run --mig ": "it changes a GPU's MIG mode; TestMIG types it",
		"kerf doctor ":    "it fails on purpose where a tool of NVIDIA's is missing",
	}
}
