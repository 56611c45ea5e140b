// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// Explanation is what there is to say of a pod. Its JSON is a promise.
type Explanation struct {
	Pod       string `json:"pod"`
	Namespace string `json:"namespace"`
	UID       string `json:"uid"`
	Needs     string `json:"needs"`
	// PendingReason is why the pod has no GPU; empty where it has.
	PendingReason string `json:"pendingReason,omitempty"`
	// Remedy is how a pod with limits requests the same of nodes that give GPUs only by ResourceClaim.
	Remedy string `json:"remedy,omitempty"`
	// Claims are its ResourceClaims with GPUs of Kerf.
	Claims []claimed `json:"claims,omitempty"`
	// Node is where it is, Planned what its Binding named by container, Has what its node reports.
	Node    string              `json:"node,omitempty"`
	Planned map[string][]string `json:"planned,omitempty"`
	Has     []string            `json:"has,omitempty"`
	// ComputedAt is when Nodes were asked, as if the pod were not placed yet.
	ComputedAt time.Time `json:"computedAt"`
	Nodes      []answer  `json:"nodes"`
	Events     []said    `json:"events,omitempty"`
	// Left has a sentence for each thing that could not be read or taken into account.
	Left []string `json:"unknown,omitempty"`
}

// answer is a node's.
type answer struct {
	Node string `json:"node"`
	Fits bool   `json:"fits"`
	// GPUs are those that each container would get.
	GPUs map[string][]string `json:"gpus,omitempty"`
	// Score is comparable within one call; Terms are in thousandths of a GPU.
	Score  int64            `json:"score,omitempty"`
	Terms  map[string]int64 `json:"terms,omitempty"`
	Reason string           `json:"reason,omitempty"`
	Text   string           `json:"text,omitempty"`
}

// said is an event.
type said struct {
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	From    string    `json:"from,omitempty"`
	Last    time.Time `json:"last"`
	Count   int32     `json:"count"`
}

func answered(a scheduler.Answer) answer {
	out := answer{Node: a.Node, Fits: a.Reason == scheduler.Fits}
	if !out.Fits {
		out.Reason, out.Text = a.Reason.String(), a.Text
		return out
	}
	out.Score, out.GPUs, out.Terms = a.Score, map[string][]string{}, map[string]int64{}
	for _, p := range a.Plan {
		for _, f := range p.Placement {
			out.GPUs[p.Container] = append(out.GPUs[p.Container], sharing.PlacementValue(sharing.Placement{f}))
		}
	}
	for _, t := range a.Terms {
		out.Terms[t.Name] = t.Value
	}
	return out
}

// stands takes in where the pod is.
func (x *Explanation) stands(s scheduler.Standing) {
	x.Node = s.Node
	if len(s.Plan) > 0 {
		x.Planned = s.Plan
	}
	for _, f := range s.Has {
		x.Has = append(x.Has, share(f))
	}
	switch {
	case s.Unplaced != "":
		x.PendingReason = "node " + s.Node + " does not have enough free for it: " + s.Unplaced
	case len(s.Has) == 0:
		x.PendingReason = "node " + s.Node + " has not reported it yet"
	}
}

func share(f sharing.Share) string {
	switch {
	case f.Whole:
		return "all of " + f.GPU.String()
	case !f.MIG.None():
		return fmt.Sprintf("%s of %s", f.MIG, f.GPU)
	case f.Percent > 0:
		return fmt.Sprintf("%v and %v of %s", f.Memory, f.Percent, f.GPU)
	}
	return fmt.Sprintf("%v of %s", f.Memory, f.GPU)
}

// write is the explanation for people.
func (x Explanation) write(w io.Writer, most int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "pod %s/%s needs %s\n", x.Namespace, x.Pod, x.Needs)
	if x.Node != "" {
		fmt.Fprintf(&b, "on node %s, bound by %s\n", x.Node, x.boundBy())
	}
	b.WriteString(x.lines())
	for _, h := range x.Has {
		fmt.Fprintf(&b, "has %s\n", h)
	}
	if x.PendingReason != "" {
		fmt.Fprintf(&b, "waits: %s\n", x.PendingReason)
	}
	if x.Remedy != "" {
		fmt.Fprintf(&b, "use a claim: %s\n", x.Remedy)
	}
	fmt.Fprintf(&b, "\nComputed now (%s), of the cluster as it is now and as if the pod were not placed yet:\n",
		x.ComputedAt.Format(time.RFC3339))
	t := tabwriter.NewWriter(&b, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "NODE\tROOM\tGPU\tWHY")
	shown := map[bool]int{}
	for _, n := range x.Nodes {
		if shown[n.Fits]++; shown[n.Fits] > most {
			continue
		}
		if n.Fits {
			_, _ = fmt.Fprintf(t, "%s\tyes\t%s\t%s\n", n.Node, joined(n.GPUs), terms(n.Terms))
		} else {
			_, _ = fmt.Fprintf(t, "%s\tno\t-\t%s\n", n.Node, n.Text)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, fits := range []bool{true, false} {
		if rest := shown[fits] - most; rest > 0 {
			fmt.Fprintf(&b, "and %d more %s\n", rest, map[bool]string{true: "with enough free", false: "without"}[fits])
		}
	}
	if len(x.Events) > 0 {
		b.WriteString("\nSaid at the time (events):\n")
	}
	for _, e := range x.Events {
		times := ""
		if e.Count > 1 {
			times = fmt.Sprintf(" (%d times)", e.Count)
		}
		fmt.Fprintf(&b, "%s  %s%s: %s\n", e.Last.UTC().Format(time.RFC3339), e.Reason, times,
			strings.ReplaceAll(strings.TrimSpace(e.Message), "\n", "\n    "))
	}
	for _, l := range x.Left {
		fmt.Fprintf(&b, "not taken into account: %s\n", l)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// boundBy compares what was planned with what the first answer would be.
func (x Explanation) boundBy() string {
	if len(x.Claims) > 0 {
		return "the scheduler that allocated its claims"
	}
	if len(x.Planned) == 0 {
		return "another scheduler (its node chose the GPU)"
	}
	return "kerf-scheduler, planned on " + joined(x.Planned)
}

func joined(gpus map[string][]string) string {
	var out []string
	for _, container := range slices.Sorted(maps.Keys(gpus)) {
		out = append(out, container+": "+strings.Join(gpus[container], ", "))
	}
	return strings.Join(out, "; ")
}

// terms are those that are not 0.
func terms(all map[string]int64) string {
	if all == nil {
		return "-"
	}
	sum := int64(0)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		sum += all[name]
		if all[name] != 0 {
			out = append(out, fmt.Sprintf("%s %+d", name, all[name]))
		}
	}
	if len(out) == 0 {
		return "costs nothing"
	}
	return fmt.Sprintf("%+d thousandths of a GPU: %s", sum, strings.Join(out, ", "))
}
