// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"fmt"
	"strconv"
	"strings"
)

// supported is the answer of a backend that works.
const supported = "supported"

// works names the listed backends that work on the GPU.
func (g GPU) works() string {
	var out []string
	for _, b := range g.Backends {
		if b.Listed && b.Answer == supported {
			out = append(out, b.Name)
		}
	}
	return strings.Join(out, ",")
}

// whyNot says of each listed backend that does not work why.
func (g GPU) whyNot() []string {
	var out []string
	for _, b := range g.Backends {
		if b.Listed && b.Answer != supported {
			out = append(out, b.String())
		}
	}
	return out
}

// String is what is to be known of the backend, in a line.
func (b Backend) String() string {
	s := b.Name + " " + b.Answer
	if !b.Listed {
		s += ", not listed by the pool"
	}
	if b.Reason != "" {
		s += ": " + b.Reason
	}
	if b.Remedy != "" {
		s += "; " + b.Remedy
	}
	return s
}

// held is a grant's level, with the backend where the level does not name it.
func (g Grant) held() string {
	if g.Backend == "" || g.Backend == "none" || g.Backend == g.Level {
		return g.Level
	}
	return g.Level + " (" + g.Backend + ")"
}

// String is what holds a grant to its percent of GPU time, and by what rule or why nothing does.
func (c Compute) String() string {
	s := c.By
	if c.Why != "" {
		s += ": " + c.Why
	}
	if c.Priority != 0 {
		s += fmt.Sprintf(", priority %d", c.Priority)
	}
	return s
}

// times are the columns of a grant's GPU time, over its GPUs: the part of the last ten seconds that it used, how long
// launches waited for a budget, and how many ran past it.
func (g Grant) times() []string {
	var percents []string
	var waited float64
	var past uint64
	counted := false
	for _, f := range g.Fragments {
		if f.Time == nil {
			continue
		}
		counted = true
		percents = append(percents, utilization(f.Time.UsedPercent))
		waited, past = waited+f.Time.WaitedSeconds, past+f.Time.LaunchesPastBudget
	}
	if !counted {
		return []string{unknown, unknown, unknown}
	}
	return []string{strings.Join(percents, ","), strconv.FormatFloat(waited, 'f', 1, 64) + "s", strconv.FormatUint(past, 10)}
}
