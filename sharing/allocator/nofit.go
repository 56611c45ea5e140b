// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

// NoFit says why no placement answers a request. It is ErrUnsupported when too few GPUs here could ever
// answer it, and ErrExhausted when it is only a matter of what is held now.
type NoFit struct {
	Request sharing.Request
	// GPUs has every GPU that does not fit, by index.
	GPUs []Reason
	// Summary is one sentence with the numbers, without the GPUs one by one.
	Summary string
	// Never is true when it will not fit whatever is given back.
	Never bool
}

// Reason says why one GPU does not fit.
type Reason struct {
	GPU   sharing.GPURef
	Index int
	Model string
	Verdict
}

// String names the GPU and gives the reason.
func (r Reason) String() string { return fmt.Sprintf("GPU %d (%s): %s", r.Index, r.Model, r.Text) }

// Error gives the summary and then a line for each reason, with the GPUs that share it.
func (e *NoFit) Error() string {
	var b strings.Builder
	b.WriteString(e.Summary)
	type key struct{ model, text string }
	var order []key
	same := map[key][]int{}
	for _, g := range e.GPUs {
		k := key{g.Model, g.Text}
		if same[k] == nil {
			order = append(order, k)
		}
		same[k] = append(same[k], g.Index)
	}
	for _, k := range order {
		fmt.Fprintf(&b, "\n  GPU %s (%s): %s", ranges(same[k]), k.model, k.text)
	}
	return b.String()
}

// ranges writes ascending numbers as "0-3,5".
func ranges(n []int) string {
	var parts []string
	for i := 0; i < len(n); {
		j := i
		for j+1 < len(n) && n[j+1] == n[j]+1 {
			j++
		}
		part := strconv.Itoa(n[i])
		if j > i {
			part += "-" + strconv.Itoa(n[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// Sentence is the summary, and the reason of the GPUs where all have the same.
func (e *NoFit) Sentence() string {
	if len(e.GPUs) == 0 || slices.ContainsFunc(e.GPUs, func(r Reason) bool { return r.Text != e.GPUs[0].Text }) {
		return e.Summary
	}
	return e.Summary + ": " + e.GPUs[0].Text
}

// Unwrap returns ErrUnsupported or ErrExhausted.
func (e *NoFit) Unwrap() error {
	if e.Never {
		return sharing.ErrUnsupported
	}
	return sharing.ErrExhausted
}

func noFit(gpus []GPUState, verdicts []Verdict, r sharing.Request) *NoFit {
	e := &NoFit{Request: r.Clone()}
	possible := 0
	for i, v := range verdicts {
		if !v.Never {
			possible++
		}
		if !v.Fits() {
			g := gpus[i].GPU
			e.GPUs = append(e.GPUs, Reason{GPU: g.Ref(), Index: g.Index, Model: g.Model, Verdict: v})
		}
	}
	e.Never = possible < r.GPUs
	switch {
	case len(gpus) == 0:
		e.Summary = "this node has no GPU; requested: " + r.String()
	case possible == 0:
		e.Summary = noGPU(gpus, verdicts, r)
	case unknown(verdicts) == possible:
		e.Summary = "the enforcement level of every GPU that can give " + r.String() + " is unknown now"
	case possible < r.GPUs:
		e.Summary = fmt.Sprintf("only %d of this node's %d GPUs can give %s, %d needed", possible, len(gpus), r, r.GPUs)
	default:
		e.Summary = "not enough free for " + r.String() + ": " + noRoom(gpus, verdicts, r, possible)
	}
	return e
}

// noGPU says why no GPU of the node can ever give the request. If memory alone is the reason, it says how much a
// request may have.
func noGPU(gpus []GPUState, verdicts []Verdict, r sharing.Request) string {
	var largest sharing.Bytes
	which := "no GPU"
	for i, v := range verdicts {
		switch v.Code {
		case TooSmall:
			largest = max(largest, gpus[i].GPU.Usable())
		case OtherModel, OtherUUID, OtherInstance:
			which = "no GPU that the request names"
		default:
			return "no GPU of this node can give " + r.String()
		}
	}
	each, _ := r.Each()
	if largest == 0 || each <= largest {
		return "no GPU of this node can give " + r.String()
	}
	text := fmt.Sprintf("%s has %s (largest: %s)", which, each, largest)
	if r.GPUs > 1 {
		text = fmt.Sprintf("%s has %s for a share of %s (largest: %s)", which, each, r, largest)
	}
	if most := largest / sharing.GiB * sharing.GiB; most > 0 {
		text += fmt.Sprintf("; request at most %s of each GPU", most)
	}
	return text
}

// noRoom says in one clause what stands in the way now.
func noRoom(gpus []GPUState, verdicts []Verdict, r sharing.Request, possible int) string {
	fits := len(gpus)
	var free sharing.Bytes
	most := -1
	for i, v := range verdicts {
		if !v.Fits() {
			fits--
		}
		if v.Never || gpus[i].GPU.Health != sharing.HealthOK {
			continue
		}
		free, _ = free.Add(gpus[i].FreeMemory) // an absurd sum reads as little free, and decides nothing
		if most < 0 || gpus[i].FreeMemory > gpus[most].FreeMemory {
			most = i
		}
	}
	fit := sentence(fits, possible, r.GPUs)
	if r.Kind == sharing.KindWhole || most < 0 {
		return fit
	}
	g := gpus[most]
	fit += fmt.Sprintf("; the most free on one GPU is %s with %s of compute (GPU %d)", g.FreeMemory, g.FreePercent,
		g.GPU.Index)
	if each, _ := r.Each(); each > g.FreeMemory && free >= r.Memory {
		fit += fmt.Sprintf("; %s are free in total, but not on one GPU", free)
	}
	return fit
}

// unknown counts the GPUs that only lack a known level.
func unknown(verdicts []Verdict) int {
	n := 0
	for _, v := range verdicts {
		if v.unknown() {
			n++
		}
	}
	return n
}

// sentence says how many of the GPUs that can give it have room now.
func sentence(fits, possible, needed int) string {
	switch {
	case fits == 0 && possible == 1:
		return "the one GPU that can give it has not enough free now"
	case fits == 0:
		return fmt.Sprintf("none of the %d GPUs that can give it has enough free now", possible)
	case fits == 1:
		return fmt.Sprintf("1 of the %d GPUs that can give it has enough free now, %d needed", possible, needed)
	}
	return fmt.Sprintf("%d of the %d GPUs that can give it have enough free now, %d needed", fits, possible, needed)
}
