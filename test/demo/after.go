// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// picture draws the node.
func (s *show) picture(ctx context.Context) error {
	say("8. The node:  kerf status")
	out, err := s.kerf(ctx, "status", "-o", "bars")
	if err != nil {
		return err
	}
	say("%s", strings.TrimRight(out, "\n"))
	var problems []string
	if !strings.Contains(out, "a1") {
		problems = append(problems, "a1 is not on it")
	}
	s.check("kerf status shows the grants of each GPU", problems...)
	return nil
}

// settle waits until only programs that run have grants: those that have ended give theirs back a moment later.
func (s *show) settle(ctx context.Context) error {
	_, err := s.kerf(ctx, "status", "--wait", fmt.Sprintf("grants=%d", s.living()), "--timeout", "1m")
	return err
}

// crash kills the agent and starts it again.
func (s *show) crash(ctx context.Context) error {
	say("9. kill -9 of the agent, and a new one:")
	if err := s.settle(ctx); err != nil {
		return err
	}
	before, err := s.status(ctx)
	if err != nil {
		return err
	}
	s.kill()
	problems := s.stillRunning()
	if err := s.startAgent(); err != nil {
		return err
	}
	if _, err := s.kerf(ctx, "status", "--wait", "ready", "--timeout", "1m"); err != nil {
		return err
	}
	after, err := s.status(ctx)
	if err != nil {
		return err
	}
	say("   %d grants before, %d after", len(before.Grants), len(after.Grants))
	if d := cmp.Diff(before.Grants, after.Grants); d != "" {
		problems = append(problems, "grants differ:\n"+d)
	}
	problems = append(problems, s.stillRunning()...)
	late, err := s.late(ctx)
	if err != nil {
		return err
	}
	if late.code != s.level.status() {
		problems = append(problems, "the new agent's cap does not hold")
	}
	s.checkShares("the agent is killed and restarted, and no grant is lost or changed", []*load{late}, problems...)
	return nil
}

// late runs a program that takes more than its cap, on the new agent.
func (s *show) late(ctx context.Context) (*load, error) {
	l, err := s.run(ctx, "late", []string{"--memory", s.amount(4)}, "--alloc", s.amount(5), "--step", s.amount(1),
		"--hold", s.level.patience())
	if err == nil {
		_, err = l.wait(ctx)
	}
	return l, err
}

// truth compares what Kerf says with what the driver says.
func (s *show) truth(ctx context.Context) error {
	if s.sim == "" {
		return nil
	}
	say("10. Usage reported by Kerf and by the driver:  kerf status  and  gpusim processes")
	if err := s.settle(ctx); err != nil {
		return err
	}
	out, err := s.command(ctx, "gpusim", "processes", "--dir", s.sim, "-o", "json")
	if err != nil {
		return err
	}
	var procs []struct {
		Cgroup string
		Bytes  uint64
	}
	if err := json.Unmarshal([]byte(out), &procs); err != nil {
		return err
	}
	st, err := s.status(ctx)
	if err != nil {
		return err
	}
	var problems []string
	for _, g := range st.Grants {
		var truth uint64
		for _, p := range procs {
			if strings.HasSuffix(g.Cgroup, p.Cgroup) {
				truth += p.Bytes
			}
		}
		switch {
		case g.Used == nil:
			problems = append(problems, fmt.Sprintf("%s: the driver says %d, status unknown", g.Name, truth))
		case *g.Used != truth:
			problems = append(problems, fmt.Sprintf("%s: the driver says %d, status %d", g.Name, truth, *g.Used))
		}
	}
	say("   %d grants compared", len(st.Grants))
	s.check("Kerf reports the usage that the driver reports", problems...)
	return nil
}

// giveBack ends the workloads and looks that nothing stays.
func (s *show) giveBack(ctx context.Context) error {
	say("11. The programs end, and everything comes back:")
	for _, l := range s.loads {
		l.end()
	}
	var problems []string
	if _, err := s.kerf(ctx, "status", "--wait", "grants=0", "--timeout", "1m"); err != nil {
		problems = append(problems, err.Error())
	}
	if s.sim != "" {
		for _, what := range []string{"processes", "limits"} {
			out, err := s.command(ctx, "gpusim", what, "--dir", s.sim, "-o", "json")
			if err != nil {
				return err
			}
			var left []any
			if err := json.Unmarshal([]byte(out), &left); err != nil || len(left) > 0 {
				problems = append(problems, fmt.Sprintf("the driver still has %s: %s", what, out))
			}
		}
		say("   no grant, no process and no limit is left in the driver")
	}
	s.check("grants end with their processes and leave nothing in the driver", problems...)
	return nil
}
