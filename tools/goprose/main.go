// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command goprose checks the prose in Go files with Vale: all comments, and the strings outside tests.
// Comments follow the rules of the documentation. Strings follow only the list of words.
//
//	goprose VALE STYLES TREE [-update] [-list PREFIX]
//
// testdata/allowed.txt has the findings that a Go file may still have. The list may only shrink:
// goprose fails if a file has more findings, or fewer. With -update it lowers the numbers, and never raises one.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// allowedFile is below the tree.
const allowedFile = "tools/goprose/testdata/allowed.txt"

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: goprose VALE STYLES TREE [-update | -list PREFIX]")
		os.Exit(2)
	}
	found, err := check(os.Args[1], os.Args[2], os.Args[3])
	if err == nil {
		err = report(os.Args[3], found, os.Args[4:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "goprose:", err)
		os.Exit(1)
	}
}

// check extracts the prose below the tree into a temporary folder, and has Vale read it.
func check(vale, styles, tree string) ([]finding, error) {
	dir, err := os.MkdirTemp("", "goprose")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	texts, err := extractTree(tree)
	if err != nil {
		return nil, err
	}
	if styles, err = filepath.Abs(styles); err != nil {
		return nil, err
	}
	return lint(vale, styles, dir, texts)
}

func report(tree string, found []finding, args []string) error {
	if len(args) == 2 && args[0] == "-list" {
		for _, f := range found {
			if strings.HasPrefix(f.file, args[1]) {
				fmt.Println(f)
			}
		}
		return nil
	}
	path := filepath.Join(tree, allowedFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	allowed, err := parse(string(data))
	if err != nil {
		return err
	}
	have := count(found)
	if len(args) == 1 && args[0] == "-update" {
		allowed = lowered(allowed, have)
		if err := os.WriteFile(path, []byte(format(allowed)), 0o644); err != nil { // #nosec G306 -- a source file
			return err
		}
	}
	if wrong := compare(allowed, have, found); len(wrong) > 0 {
		return fmt.Errorf("the prose of Go files:\n%s", strings.Join(wrong, "\n"))
	}
	return nil
}
