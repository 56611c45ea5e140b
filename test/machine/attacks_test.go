// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/test/documents"
)

var (
	// attackedDriver is the driver that TestAttacks attacks. Tests that are made for r580 run on r615 then, with limits
	// of memory that do not work, so that the same backend enforces shares.
	attackedDriver = flag.String("attacks", "", "run the attacks on this driver: r580 or r615")
	attacksShort   = flag.Bool("attacks-short", false, "run only the attacks of make attacks-short")
	attacksOnly    = flag.String("attacks-only", "", "run only the attacks whose name matches")
	attacksTable   = flag.String("attacks-table", "", "append a line for each attack to this file")
)

// attackTrial is an attack on a machine, and what comes of it.
type attackTrial struct {
	name string
	// ending is what docs/reference/attacks.md says of it.
	ending string
	run    func(t *testing.T)
	// short: make attacks-short runs it.
	short bool
}

func attackTrials() []attackTrial {
	return []attackTrial{
		{"orphans", "refused at the cap, or killed", attackOrphans, true},
		{"quick orphans", "refused at the cap, or shown with a warning", attackQuickOrphans, false},
		{"PID reuse", "no process is signalled", attackPIDReuse, true},
		{"activation race", "rejected, or within the cap", attackActivation, true},
		{"heirs of an activation", "rejected", TestActivationRejects, false},
		{"usage file filled", "own grant alone: level `unknown`", TestUsageFileTakesNoRoomFromOthers, true},
		{"full disk", "grants are kept, new ones are rejected", TestStartWithoutRoomOnTheDisk, false},
		{"usage files of others", "permission denied", TestOthersCannotReachTheCounters, true},
		{"sizes of contexts", "contexts of others fit, and stay within", attackContextSizes, true},
		{"MPS daemon of others", "permission denied", TestMPSDaemonIsOutOfReachForOthers, true},
		{"raw symbols", "killed; the neighbor runs", attackRawSymbols, true},
		{"idle connections", "bounded; no sample is missed", TestFloodOfIdleConnections, false},
		{"slow readers", "bounded; no sample is missed", TestFloodOfSlowReaders, true},
		{"streams", "bounded; no sample is missed", TestFloodOfStreams, false},
		{"names", "bounded; no sample is missed", TestFloodOfNames, false},
		{"floods of the monitor", "bounded; the monitor answers", TestFloodOfTheMonitor, false},
		{"documents", "rejected", attackDocuments, true},
		{"threads", "within the cap", attackThreads, true},
		{"crash loop", "within the caps; no grant is lost", attackCrashes, true},
		{"spoilt files", "no grant is lost", attackSpoiltFiles, false},
		{"folder of another user", "rejected", TestDirectoriesOfOthers, false},
		{"quota of one user", "rejected above the quota", attackQuota, true},
	}
}

// TestAttacks runs hostile programs against a machine. Each ends as docs/reference/attacks.md says.
func TestAttacks(t *testing.T) {
	if *attackedDriver == "" {
		t.Skip("needs -attacks DRIVER (make attacks)")
	}
	only, err := regexp.Compile(*attacksOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range attackTrials() {
		if *attacksShort && !a.short || !only.MatchString(a.name) {
			continue
		}
		began := time.Now()
		result := "FAILED"
		if t.Run(a.name, func(t *testing.T) { t.Run(*attackedDriver, a.run) }) {
			result = "ok"
		}
		writeAttack(t, a, result, time.Since(began))
	}
}

// writeAttack appends a line to the table.
func writeAttack(t *testing.T, a attackTrial, result string, took time.Duration) {
	t.Helper()
	if *attacksTable == "" {
		return
	}
	f, err := os.OpenFile(*attacksTable, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "%s\t%s\t%s\t%s\t%.0f\n", a.name, *attackedDriver,
		strings.ReplaceAll(a.ending, "`", ""), result, took.Seconds()); err != nil {
		t.Fatal(err)
	}
}

// hostilePrograms are the programs that a review attacked Kerf with. Each has attacks in docs/reference/attacks.md.
func hostilePrograms() []string {
	return []string{
		"node API", "activation race", "cases of pods", "cases of nodes", "usage file truncated", "usage file filled",
		"usage file poisoned", "context sizes poisoned", "flood", "repeated flood", "MPS quit", "orphan", "PID reuse",
		"raw symbols", "64 threads",
		"crash loop", "spoilt files",
	}
}

// attackRow is a line of the tables in docs/reference/attacks.md: the program, the attack, its test, how it ends.
var attackRow = regexp.MustCompile("(?m)^\\| ([^|]+) \\| ([^|]+) \\| `([^`|]+)` \\| ([^|]+) \\|$")

// docs/reference/attacks.md has each attack with its ending, and each hostile program has an attack whose test exists.
func TestAttacksAreDocumented(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "reference", "attacks.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests, err := documents.Tests(root)
	if err != nil {
		t.Fatal(err)
	}
	if wrong, _ := documents.Misnamed(string(text), tests); len(wrong) > 0 {
		t.Errorf("%q", wrong)
	}
	endings, programs := map[string]string{}, map[string]bool{}
	for _, row := range attackRow.FindAllStringSubmatch(string(text), -1) {
		for p := range strings.SplitSeq(row[1], ", ") {
			programs[p] = true
			if !slices.Contains(hostilePrograms(), p) {
				t.Errorf("program %q of the document is not in the list", p)
			}
		}
		if row[3] == "test/machine.TestAttacks" {
			endings[row[2]] = row[4]
		}
	}
	for _, a := range attackTrials() {
		if endings[a.name] != a.ending {
			t.Errorf("attack %q ends so: %q; the document says %q", a.name, a.ending, endings[a.name])
		}
		delete(endings, a.name)
	}
	for name := range endings {
		t.Errorf("attack %q of the document is not made", name)
	}
	for _, p := range hostilePrograms() {
		if !programs[p] {
			t.Errorf("no attack by %q", p)
		}
	}
}
