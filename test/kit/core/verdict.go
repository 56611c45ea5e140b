// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package core decides what the hardware kit does and what its numbers mean: the steps and their time, the claims, the
// verdicts and the report. It has no I/O, clock or goroutine.
package core

import "fmt"

// Verdict is what a run says about one claim.
type Verdict string

// The verdicts.
const (
	Proven      Verdict = "proven"
	Disproven   Verdict = "disproven"
	NotPossible Verdict = "not possible here"
	NotReached  Verdict = "not reached"
)

// Verdicts are all of them, the most important first.
func Verdicts() []Verdict { return []Verdict{Disproven, Proven, NotPossible, NotReached} }

// Result is the verdict on one claim. Detail has the number or the reason, and is never empty.
type Result struct {
	Claim   string  `json:"claim"`
	Verdict Verdict `json:"verdict"`
	Detail  string  `json:"detail"`
}

// Is is Proven if ok, else Disproven.
func Is(claim string, ok bool, detail string, args ...any) Result {
	r := Result{Claim: claim, Verdict: Disproven, Detail: fmt.Sprintf(detail, args...)}
	if ok {
		r.Verdict = Proven
	}
	return r
}

// AtMost compares a number with a bound, both in the unit.
func AtMost(claim, what string, got, bound float64, unit string) Result {
	return Is(claim, got <= bound, "%s: %s (bound: %s)", what, number(got, unit), number(bound, unit))
}

// Adds compares what something adds with a bound, from paired measurements without and with it. The verdict needs the
// interval of the median difference, with 95% certainty, on one side of the bound. Otherwise the machine varies by more
// than the bound, and the claim is not possible here.
func Adds(claim, what string, without, with []float64, bound float64, unit string) Result {
	differences := make([]float64, min(len(without), len(with)))
	for i := range differences {
		differences[i] = with[i] - without[i]
	}
	low, high := medianBetween(differences)
	detail := fmt.Sprintf("%s: %s, %s to %s with 95%% certainty (bound: %s)", what,
		number(Median(differences), unit), number(low, unit), number(high, unit), number(bound, unit))
	switch {
	case high <= bound:
		return Result{Claim: claim, Verdict: Proven, Detail: detail}
	case low > bound:
		return Result{Claim: claim, Verdict: Disproven, Detail: detail}
	}
	return Impossible(claim, detail)
}

// Within compares a number with a target. Tolerance is relative to the target.
func Within(claim, what string, got, target, tolerance float64) Result {
	ok := got >= target*(1-tolerance) && got <= target*(1+tolerance)
	return Is(claim, ok, "%s: %s (target: %s ± %.0f%%)", what, number(got, ""), number(target, ""), tolerance*100)
}

// Impossible is a claim that this machine cannot show.
func Impossible(claim, reason string) Result {
	return Result{Claim: claim, Verdict: NotPossible, Detail: reason}
}

// Unreached is a claim that the run did not come to.
func Unreached(claim, reason string) Result {
	return Result{Claim: claim, Verdict: NotReached, Detail: reason}
}

// number has at most three decimals and no trailing zeros.
func number(v float64, unit string) string {
	text := fmt.Sprintf("%.3g", v)
	if v >= 1000 || v <= -1000 {
		text = fmt.Sprintf("%.0f", v)
	}
	if unit == "" {
		return text
	}
	return text + " " + unit
}

// Median returns the middle value. It is 0 without values.
func Median(values []float64) float64 { return Quantile(values, 0.5) }
