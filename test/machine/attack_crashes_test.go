// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// crashRounds is how often the agent is killed.
const crashRounds = 25

// attackCrashes kills the agent at random moments while programs come and go. The driver judges.
func attackCrashes(t *testing.T) {
	b := strongest()
	m := b.make(t, usualHardware, b.driver, "")
	random := rand.New(rand.NewPCG(raceSeed, 1))
	var runs []*run
	start := func() {
		gibs := 1 + random.IntN(4)
		takes := gibs + random.IntN(3) - 1
		runs = append(runs, m.run(flags(fmt.Sprintf("--memory %dGiB", gibs)),
			load(fmt.Sprintf("--alloc %dMiB --step 256MiB --hold %dms", takes*1024+512, 50+random.IntN(2000)))))
	}
	for round := range crashRounds {
		for range random.IntN(3) {
			start()
		}
		time.Sleep(time.Duration(random.IntN(350)) * time.Millisecond) // a random moment
		m.killAgent()
		if random.IntN(2) == 0 {
			start() // waits for an agent
		}
		m.startAgent()
		if round%5 == 4 {
			m.ready()
			checkInvariants(t, m)
		}
	}
	m.ready()
	for _, r := range runs {
		if end := r.wait(); end.signal != 0 || !slices.Contains([]int{0, 9, 125}, end.code) {
			t.Errorf("a program ended so: %v", end)
		}
	}
	m.noGrants()
	checkInvariants(t, m)
}

// attackSpoiltFiles spoils a file of the agent's after each kill. The agent always comes back, and its ledger has no
// less than what runs.
func attackSpoiltFiles(t *testing.T) {
	b := strongest()
	m := b.make(t, usualHardware, b.driver, "")
	runs := []*run{
		m.run(flags("--memory 4GiB --name one"), load("--alloc 3GiB --hold 1h")),
		m.run(flags("--memory 6GiB --name two"), load("--alloc 5GiB --hold 1h")),
		m.run(flags("--gpus 1 --name whole"), load("--alloc 1GiB --hold 1h")),
	}
	for _, r := range runs {
		wantLoad(t, r.loads(1)[0], "", gib, 5*gib)
	}
	before := m.state()
	random := rand.New(rand.NewPCG(raceSeed, 2))
	for range 12 {
		m.killAgent()
		what := m.spoil(random)
		m.startAgent()
		m.ready()
		for _, g := range before.GPUs {
			if now := m.gpu(g.Index); now.Granted < g.Granted {
				t.Errorf("after %s, GPU %d has %d bytes granted, %d before", what, g.Index, now.Granted, g.Granted)
			}
		}
		if n := len(m.state().Grants); n != len(runs) {
			t.Errorf("after %s there are %d grants, want %d", what, n, len(runs))
		}
	}
	for _, r := range runs {
		if !r.running() {
			t.Errorf("a program ended: %v", r.wait())
		}
		r.end()
	}
	m.noGrants()
}

// spoil damages one of the agent's files at random, and says how.
func (m *machine) spoil(random *rand.Rand) string {
	m.t.Helper()
	var files []string
	for _, pattern := range []string{m.dir + "/*.json", stateDir(m.dir) + "/*"} {
		found, _ := filepath.Glob(pattern) // the pattern is well formed
		for _, file := range found {
			if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
				files = append(files, file)
			}
		}
	}
	if len(files) < 2 {
		m.t.Fatalf("the agent's files: %q", files)
	}
	file := files[random.IntN(len(files))]
	data, err := os.ReadFile(file)
	if err != nil {
		m.t.Fatal(err)
	}
	how := []string{"cut", "flipped", "doubled", "emptied", "zeroed", "removed"}[random.IntN(6)]
	switch how {
	case "cut":
		data = data[:len(data)/2]
	case "flipped":
		data = flip(data)
	case "doubled":
		data = append(data, data...)
	case "emptied":
		data = nil
	case "zeroed":
		clear(data)
	}
	if err = os.WriteFile(file, data, 0o600); how == "removed" {
		err = os.Remove(file)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return filepath.Base(file) + " was " + how
}
