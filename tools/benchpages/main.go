// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command benchpages makes the tables and charts of docs/benchmarks from measured values.
//
//	benchpages collect RESULTS <OUTPUT    take the values in the output of make bench into the file RESULTS
//	benchpages [--check] DIR              write the tables and charts of the pages in DIR
//
// DIR has results.json, the measured values, and pages.json, which says what each page shows. A page has its table and
// chart between the lines "<!-- results -->" and "<!-- end of results -->". With --check, benchpages changes nothing
// and fails if a page is not up to date.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "benchpages:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: benchpages collect RESULTS, or benchpages [--check] DIR")

func run(args []string, in io.Reader) error {
	if len(args) == 2 && args[0] == "collect" {
		return collect(args[1], in, time.Now())
	}
	check := len(args) == 2 && args[0] == "--check"
	if check {
		args = args[1:]
	}
	if len(args) != 1 {
		return errUsage
	}
	return writePages(args[0], check)
}

// collect adds the values in the output to the file. A value that the output lacks stays as it is.
func collect(path string, in io.Reader, now time.Time) error {
	all, err := readResults(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	fresh, err := parse(in)
	if err != nil {
		return err
	}
	if len(fresh) == 0 {
		return errors.New("the output has no measured value")
	}
	if all == nil {
		all = results{}
	}
	for key, v := range fresh {
		v.Date = now.UTC().Format(time.DateOnly)
		all[key] = v
	}
	return writeResults(path, all)
}

func writePages(dir string, check bool) error {
	values, err := readResults(filepath.Join(dir, "results.json"))
	if err != nil {
		return err
	}
	pages, err := readPages(filepath.Join(dir, "pages.json"))
	if err != nil {
		return err
	}
	for name, p := range pages {
		path := filepath.Join(dir, name+".md")
		old, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read page: %w", err)
		}
		text, err := p.put(string(old), values)
		if err != nil {
			return fmt.Errorf("page %s: %w", path, err)
		}
		switch {
		case text == string(old):
		case check:
			return fmt.Errorf("%s does not match %s: run make generate", path, filepath.Join(dir, "results.json"))
		default:
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return fmt.Errorf("write page: %w", err)
			}
		}
	}
	return nil
}
