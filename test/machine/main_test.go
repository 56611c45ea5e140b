// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// soakTime is -soak: a flag without a value is the long run, and none is a short one.
type soakTime time.Duration

func (s *soakTime) String() string   { return time.Duration(*s).String() }
func (s *soakTime) IsBoolFlag() bool { return true }

func (s *soakTime) Set(v string) error {
	if v == "true" {
		v = "10m"
	}
	d, err := time.ParseDuration(v)
	if err == nil && d <= 0 {
		err = fmt.Errorf("%q is not above zero", v)
	}
	*s = soakTime(d)
	return err
}

var (
	soakFor  = soakTime(shortSoak)
	soakSeed = flag.Uint64("seed", 1, "seed of the soak; 0 takes one from the clock and logs it")

	// patience is how long to wait for what must come. It is far beyond what anything here needs.
	patience = flag.Duration("patience", time.Minute, "how long to wait for what must come")
	// waited is set once that was not long enough: where one thing never comes, others will not either, and
	// the tests that are left shall fail before the whole run is ended from outside.
	waited atomic.Bool

	// bin is where "make build" puts the programs.
	bin string
)

// shortSoak is how long the soak runs without -soak.
const shortSoak = 4 * time.Second

// soaking reports whether this is the long run.
func soaking() bool { return time.Duration(soakFor) > shortSoak }

// helperEnv makes the test binary play a program that a tenant runs; see helper_test.go.
const helperEnv = "KERF_MACHINE_TEST_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		os.Exit(helper(os.Args[1:]))
	}
	flag.Var(&soakFor, "soak", "how long the soak runs")
	flag.Parse()
	if args := flag.Args(); len(args) > 0 { // -soak 30m -seed 1
		err := soakFor.Set(args[0])
		if err == nil {
			err = flag.CommandLine.Parse(args[1:])
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "-soak:", err)
			os.Exit(2)
		}
	}
	if err := findPrograms(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// The tests mostly wait for other processes.
	if p := flag.Lookup("test.parallel"); p != nil {
		if n, err := strconv.Atoi(p.Value.String()); err == nil && n < 8 {
			_ = p.Value.Set("8")
		}
	}
	status, err := keepControllers(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// repository is the directory of go.mod.
func repository() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above the working directory: run the test from the repository")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

func findPrograms() error {
	root, err := repository()
	if err != nil {
		return err
	}
	bin = filepath.Join(root, "bin")
	for _, name := range []string{"kerf", "kerf-agent", "kerf-monitor", "gpusim", "gpuload"} {
		// The stat also tells the test cache that the result hangs on these files.
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return fmt.Errorf("bin/%s is missing: run make build (%w)", name, err)
		}
	}
	return nil
}

func program(name string) string { return filepath.Join(bin, name) }

// needRoot skips without root: cgroups, mount namespaces and other users' processes ask for it.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: the suite makes cgroups and mount namespaces")
	}
}
