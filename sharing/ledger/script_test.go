// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

var update = flag.Bool("update", false, "rewrite testdata; commit the result only if you understand every changed line")

// The scripts of testdata are scenarios: a command, "----", what it answers. They are read by people, so
// GPU n is written gpuN. The invariants are checked after every command.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			in, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			out := runScript(t, string(in))
			if *update {
				if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(in), out); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		})
	}
}

// runScript returns the script with the answers that its commands give now.
func runScript(t *testing.T, script string) string {
	t.Helper()
	var out strings.Builder
	n := &node{l: ledger.New()}
	for block := range strings.SplitSeq(strings.TrimSpace(script), "\n\n") {
		command, _, found := strings.Cut(block, "\n----")
		var lines []string
		for line := range strings.SplitSeq(command, "\n") {
			if !strings.HasPrefix(line, "#") {
				lines = append(lines, line)
			}
		}
		if out.Len() > 0 {
			out.WriteString("\n")
		}
		if !found || len(lines) == 0 {
			out.WriteString(block + "\n")
			continue
		}
		answer := n.run(t, strings.Fields(lines[0]), lines[1:])
		if err := n.l.Check(); err != nil {
			t.Errorf("after %q: %v", command, err)
		}
		out.WriteString(command + "\n----\n" + strings.TrimRight(plain(answer), "\n") + "\n")
	}
	return out.String()
}

// node is the machine that a script plays on.
type node struct {
	l    *ledger.Ledger
	gpus []sharing.GPU
}

func (n *node) run(t *testing.T, words, body []string) string {
	t.Helper()
	opts := map[string]string{}
	var args []string
	for _, w := range words[1:] {
		if k, v, ok := strings.Cut(w, "="); ok {
			opts[k] = v
			continue
		}
		args = append(args, w)
	}
	need := func(i int) string {
		if i >= len(args) {
			t.Fatalf("%q: argument %d is missing", words, i)
		}
		return args[i]
	}
	switch words[0] {
	case "inventory":
		n.gpus = nil
		for _, line := range body {
			n.gpus = append(n.gpus, parseGPU(t, line))
		}
		return answer(n.l.SetInventory(n.gpus))
	case "health":
		return answer(n.l.SetHealth(uuid(need(0)), parseHealth(t, need(1)), strings.Join(args[2:], " ")))
	case "choose":
		p, err := n.choose(t, opts)
		if err != nil {
			return answer(err)
		}
		return showPlacement(p)
	case "reserve":
		p, err := n.choose(t, opts)
		if err == nil {
			err = n.l.Reserve(ledger.Reservation{ID: ledger.GrantID(need(0)), Name: opts["name"], Owner: owner(opts),
				Request: request(t, opts), Placement: p})
		}
		if err != nil {
			return answer(err)
		}
		return showPlacement(p)
	case "book":
		return answer(n.l.Reserve(ledger.Reservation{
			ID: ledger.GrantID(need(0)), Name: opts["name"], Owner: owner(opts), Request: request(t, opts),
			Placement: parsePlacement(t, args[1:]),
			With:      ledger.GrantID(opts["with"]),
		}))
	case "restore":
		var active *ledger.Attachment
		if opts["cgroup"] != "" {
			l := parseAttachment(t, opts)
			active = &l
		}
		return answer(n.l.Restore(ledger.Reservation{
			ID: ledger.GrantID(need(0)), Name: opts["name"], Owner: owner(opts), Placement: parsePlacement(t, args[1:]),
			Recovered: true,
		}, active))
	case "run":
		return answer(ledger.ActivateNow(n.l, ledger.GrantID(need(0)), parseAttachment(t, opts)))
	case "adopt":
		return answer(n.l.Adopt(ledger.GrantID(need(0)), parseAttachment(t, opts)))
	case "assign":
		return answer(n.l.Assign(ledger.GrantID(need(0)), ledger.Attachment{ContainerID: opts["container"],
			Part: parsePlacement(t, args[1:])}))
	case "unassign":
		return answer(n.l.Unassign(ledger.GrantID(need(0))))
	case "created":
		n.l.Created(need(0), len(args) > 1 && args[1] == "injected")
		return "ok"
	case "activate":
		a := parseAttachment(t, opts)
		return answer(n.l.Activate(ledger.GrantID(need(0)), a.ContainerID, a.Cgroup, a.Inode))
	case "succeed":
		return answer(n.l.Activated(ledger.GrantID(need(0))))
	case "fail":
		n.l.Fail(ledger.GrantID(need(0)))
		return "ok"
	case "drained":
		n.l.Drained(ledger.GrantID(need(0)), true)
		return "ok"
	case "withdraw":
		n.l.Withdraw(ledger.GrantID(need(0)), ledger.PodRemoved)
		return "ok"
	case "keep":
		n.l.CancelWithdrawal(ledger.GrantID(need(0)), ledger.PodRemoved)
		return "ok"
	case "end":
		return answer(n.l.EndAttachment(ledger.GrantID(need(0))))
	case "release":
		return answer(n.l.Release(ledger.GrantID(need(0))))
	case "lend":
		return answer(n.l.SetBurst(ledger.GrantID(need(0)), uuid(need(1)), size(t, need(2))))
	case "resize":
		g, _ := n.l.Get(ledger.GrantID(need(0)))
		to, err := ledger.Resized(g.Placement, size(t, need(1)))
		if err == nil {
			err = n.l.Resize(ledger.GrantID(need(0)), to)
		}
		if err != nil {
			return answer(err)
		}
		return showPlacement(to)
	case "restart":
		return n.restart()
	case "show":
		return n.show()
	}
	t.Fatalf("unknown command %q", words)
	return ""
}

// restart builds a new ledger from the grants of the old one, before the driver is there, as an agent does.
func (n *node) restart() string {
	old := n.l.Grants()
	n.l = ledger.New()
	var errs []error
	for _, g := range old {
		errs = append(errs, n.l.Restore(g.Reservation, g.Active))
	}
	return answer(errors.Join(errs...))
}

func (n *node) choose(t *testing.T, opts map[string]string) (sharing.Placement, error) {
	t.Helper()
	return allocator.Choose(states(n.l.GPUs(), sharing.LevelDriver), request(t, opts))
}

// states is what the allocator sees of a ledger's GPUs.
func states(views []ledger.View, levels ...sharing.Level) []allocator.GPUState {
	out := make([]allocator.GPUState, 0, len(views))
	for _, v := range views {
		out = append(out, allocator.GPUState{GPU: v.GPU, FreeMemory: v.FreeMemory, FreePercent: v.FreePercent,
			Burst: v.BurstMemory, InUse: v.Grants > 0, Levels: levels})
	}
	return out
}

func (n *node) show() string {
	var b strings.Builder
	for _, v := range n.l.GPUs() {
		fmt.Fprintf(&b, "%s %s: %s of %s held, %s; free %s, %s", v.GPU.Ref(), v.GPU.Health, v.GrantedMemory,
			v.GPU.Usable(), v.GrantedPercent, v.FreeMemory, v.FreePercent)
		if v.BurstMemory > 0 {
			fmt.Fprintf(&b, "; %s burst", v.BurstMemory)
		}
		for word, on := range map[string]bool{"; whole": v.Whole, "; OVERBOOKED": v.Overbooked} {
			if on {
				b.WriteString(word)
			}
		}
		b.WriteString("\n")
	}
	for _, g := range n.l.Grants() {
		fmt.Fprintf(&b, "%s %q %s:", g.ID, g.Name, g.State())
		if g.Active != nil {
			fmt.Fprintf(&b, " %s inode %d:", g.Active.Cgroup, g.Active.Inode)
			if g.Active.State != ledger.Active || g.Active.ContainerID != "" {
				fmt.Fprintf(&b, " %s %q:", g.Active.State, g.Active.ContainerID)
			}
		}
		if g.Next != nil {
			fmt.Fprintf(&b, " next %q %s:", g.Next.ContainerID, g.Next.State)
		}
		b.WriteString(" " + showPlacement(g.Placement))
		for _, f := range g.Placement {
			if g.Burst[f.GPU] > 0 {
				fmt.Fprintf(&b, "; burst %s on %s", g.Burst[f.GPU], f.GPU)
			}
		}
		if g.SharedCap != nil {
			fmt.Fprintf(&b, "; %s with %v", showPlacement(g.SharedCap), n.l.SharedCapGrants(g.ID))
		}
		b.WriteString("\n")
	}
	if b.Len() == 0 {
		return "nothing"
	}
	return b.String()
}

// plain writes GPU UUIDs as gpuN.
func plain(s string) string {
	for i := range 16 {
		s = strings.ReplaceAll(s, uuid("gpu"+strconv.Itoa(i)).String(), "gpu"+strconv.Itoa(i))
	}
	return s
}
