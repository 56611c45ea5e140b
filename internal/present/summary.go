// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"fmt"
	"strings"
)

// shortHash is how much of a document's hash is shown to people: enough to tell documents apart.
const shortHash = 12

// summary is the node in a few lines: the state first, then every reason and warning on a line of its own.
func summary(s Status) []line {
	state := line{{green, "ready"}}
	if !s.Ready {
		state = line{{red, "not ready"}}
	}
	state = state.add(plainStyle, fmt.Sprintf("  driver %s  agent %s  pool %s  %s, %s", or(s.DriverVersion), or(s.AgentVersion),
		or(s.Config.Pool), plural(len(s.GPUs), "GPU"), plural(len(s.Grants), "grant")))
	lines := []line{state}
	if c := s.Config; c.SHA256 != "" {
		lines = append(lines, line{{plainStyle, clean(fmt.Sprintf("config %.*s from %s", shortHash, c.SHA256, or(c.Source)))}})
	}
	for _, r := range s.NotReady {
		lines = append(lines, line{{red, "not ready: "}, {plainStyle, clean(r)}})
	}
	for _, w := range s.Warnings {
		lines = append(lines, line{{yellow, "warning: "}, {plainStyle, clean(w)}})
	}
	for _, e := range s.Config.Errors {
		lines = append(lines, line{{yellow, "new config refused: "}, {plainStyle, clean(e)}})
	}
	for _, w := range s.Config.Waiting {
		text := fmt.Sprintf("GPU %d: %s, when these have ended: %s", w.Index, strings.Join(w.What, ", "), strings.Join(w.For, ", "))
		lines = append(lines, line{{yellow, "config waits: "}, {plainStyle, clean(text)}})
	}
	return lines
}
