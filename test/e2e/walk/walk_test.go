// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package walk

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// stepTime bounds one block, one of which builds the programs again, and patience what must come by itself.
	// Building Kubernetes for the first time takes most.
	stepTime, firstTime, patience = 20 * time.Minute, 45 * time.Minute, 2 * time.Minute
	// fewCommands are those until the first pod with a cap.
	fewCommands = 10
)

var run = flag.Bool("walk", false, "bring three nodes up and walk through docs/start; needs root")

// walker is a user at a shell in the root of the source tree. What a block sets there, the next one has.
type walker struct {
	*testing.T
	root, state string
	// remembered is what the check "remember" saw.
	remembered string
}

// TestWalk does what the quick start and then the tutorial say.
func TestWalk(t *testing.T) {
	if !*run {
		t.Skip("it takes three nodes for itself: 'make walk' runs it")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	steps := parseFile(t, filepath.Join(root, "docs/start/quick-start.md"))
	steps = append(steps, parseFile(t, filepath.Join(root, "docs/start/tutorial.md"))...)
	w := &walker{T: t, root: root, state: filepath.Join(t.TempDir(), "state")}
	t.Cleanup(func() {
		if out, err := w.shell("hack/cluster.sh down", stepTime); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	checks := map[string]func(){"first-pod": nil, "remember": w.remember, "undisturbed": w.undisturbed,
		"nothing-left": w.nothingLeft}
	typed, began, cluster := 0, time.Now(), time.Duration(0)
	for i, s := range steps {
		start := time.Now()
		switch check, known := checks[s.Check]; {
		case s.Check == "first-pod":
			if typed > fewCommands {
				t.Errorf("line %d: the first pod with a cap took %d commands, want %d at most", s.Line, typed,
					fewCommands)
			}
			t.Logf("the first pod with a cap after %d commands and %v", typed, time.Since(began).Round(time.Second))
		case s.Check != "" && !known:
			t.Fatalf("line %d: there is no check %q", s.Line, s.Check)
		case s.Check != "":
			check()
		default:
			typed += s.Count()
			w.step(s, i == 0)
		}
		if t.Failed() {
			w.dump()
			t.FailNow()
		}
		if i == 0 {
			cluster = time.Since(began)
		}
		t.Logf("%6.1fs  line %d: %.60q", time.Since(start).Seconds(), s.Line, s.Commands+s.Check)
	}
	t.Logf("%d commands in %v, %v of it until the three nodes were up", typed, time.Since(began).Round(time.Second),
		cluster.Round(time.Second))
}

// parseFile reads one page.
func parseFile(t *testing.T, path string) []Step {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := Parse(string(page))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return steps
}

// step types one block.
func (w *walker) step(s Step, first bool) {
	w.Helper()
	limit := stepTime
	if first {
		limit = firstTime
	}
	deadline := time.Now().Add(patience)
	for {
		out, err := w.shell(s.Commands, limit)
		missing := s.Missing(out)
		switch {
		case s.Eventually && ((err == nil) == s.Refused || missing != "") && time.Now().Before(deadline):
			time.Sleep(500 * time.Millisecond)
			continue
		case s.Refused && err == nil:
			w.Errorf("line %d: it was to fail, and did not:\n%s\n%s", s.Line, s.Commands, out)
		case !s.Refused && err != nil:
			w.Errorf("line %d: %v:\n%s\n%s", s.Line, err, s.Commands, out)
		case missing != "":
			w.Errorf("line %d: %q is not in what it shows:\n%s\n%s", s.Line, missing, s.Commands, out)
		}
		return
	}
}

// shell runs commands as they are typed, and gives what they print.
func (w *walker) shell(commands string, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	script := "[ ! -f \"$WALK_STATE\" ] || . \"$WALK_STATE\"\nset -eo pipefail\n" + commands +
		"\nexport -p >\"$WALK_STATE\"\n"
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir, cmd.Env = w.root, append(os.Environ(), "WALK_STATE="+w.state, "PWD="+w.root)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) { // a node's daemons keep the descriptors that they were started with
		err = nil
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("not done in %v: %w", limit, err)
	}
	return out.String(), err
}

// must is for what a check asks by itself.
func (w *walker) must(commands string) string {
	w.Helper()
	out, err := w.shell(commands, stepTime)
	if err != nil {
		w.Fatalf("%v: %s\n%s", err, commands, out)
	}
	return out
}

// containers are those of the walk's pods, each with the one process that it has had.
const containers = `kubectl get pods -l walk=kinds -o 'jsonpath={range .items[*]}{.metadata.name} {.status.phase} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}{"\n"}{end}' | sort`

func (w *walker) remember() {
	w.Helper()
	if w.remembered = w.must(containers); strings.Count(w.remembered, "containerd://") < 9 {
		w.Errorf("the walk's containers are\n%s", w.remembered)
	}
}

func (w *walker) undisturbed() {
	w.Helper()
	now := strings.Split(w.must(containers), "\n")
	for before := range strings.SplitSeq(w.remembered, "\n") { // others may have come meanwhile
		if !slices.Contains(now, before) {
			w.Errorf("a container was\n%s\nand now there are\n%s", before, strings.Join(now, "\n"))
		}
	}
}

// nothingLeft checks on each node, and in the cluster, for what Kerf could have left. A failed check is a failure, with
// its reason.
func (w *walker) nothingLeft() {
	w.Helper()
	if out := w.must("hack/cluster.sh left"); strings.TrimSpace(out) != "" {
		w.Errorf("there is left:\n%s", out)
	}
}

// dump is what is known when a step has failed.
func (w *walker) dump() {
	out,
		err := w.shell(
		`kubectl get pods -A -o wide; kubectl kerf status -o wide; kubectl get events -A --sort-by=.lastTimestamp | tail -n 40
		for d in $(kubectl -n kerf-system get pods -o name); do echo "$d"; kubectl -n kerf-system logs --tail=15 "$d" --all-containers; done`, stepTime)
	w.Logf("%v\n%s", err, out)
}
