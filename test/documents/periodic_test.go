// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package documents_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var periodicRow = regexp.MustCompile("(?m)^\\| [^|]+ \\| (\\d+) (ms|s|min) \\| [^|]+\\. \\| `([^`]+)` \\|$")

// periodicPlaces are the folders of the agent's loops.
var periodicPlaces = []string{"sharing/node", "sharing/backend", "sharing/audit", "mig/manager", "deviceplugin",
	"monitor/health", "internal/kube", "internal/cgroup"}

// waits are intervals of loops that end with what they wait for, and least times between two runs that events start.
var waits = []string{
	"sharing/node/contextprobe.listEvery", "sharing/node/uninstall.removeAgain", "sharing/node/cluster.labelPause",
	"sharing/node/cluster.publishPause", "sharing/node/cluster.claimsRetry",
}

// docs/reference/periodic-work.md lists the intervals of the agent's loops as they are.
func TestPeriodicWork(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/periodic-work.md")
	if err != nil {
		t.Fatal(err)
	}
	units := map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "min": time.Minute}
	listed := map[string]time.Duration{}
	for _, m := range periodicRow.FindAllStringSubmatch(string(page), -1) {
		n, _ := strconv.Atoi(m[1])
		listed[m[3]] = time.Duration(n) * units[m[2]]
	}
	if rows := strings.Count(string(page), "\n| ") - 1; rows < 20 || rows != len(listed) {
		t.Fatalf("%d rows, %d of them in order", rows, len(listed))
	}
	constants, loops := map[string]time.Duration{}, []string{}
	for _, place := range periodicPlaces {
		err := filepath.WalkDir("../../"+place, func(name string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			loops = append(loops, intervals(strings.TrimPrefix(path.Dir(filepath.ToSlash(name)), "../../"), file,
				constants)...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, is := range listed {
		if constants[name] != is {
			t.Errorf("%s is %s, listed as %s", name, constants[name], is)
		}
	}
	for _, name := range loops {
		if _, known := constants[name]; known && listed[name] == 0 && !slices.Contains(waits, name) {
			t.Errorf("%s is the interval of a loop, and not listed", name)
		}
	}
}

// intervals takes the durations of a file among the constants, and returns the names that its tickers and sleeps have.
func intervals(pkg string, file *ast.File, constants map[string]time.Duration) (loops []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, value := range n.Values {
				if d, err := duration(value); err == nil {
					constants[pkg+"."+n.Names[i].Name] = d
				}
			}
		case *ast.CallExpr:
			of, _ := n.Fun.(*ast.SelectorExpr)
			if of == nil || of.Sel.Name != "NewTicker" && of.Sel.Name != "For" {
				break
			}
			if name, is := n.Args[len(n.Args)-1].(*ast.Ident); is {
				loops = append(loops, pkg+"."+name.Name)
			}
		}
		return true
	})
	return loops
}

// duration is the value of an expression such as 2 * time.Second.
func duration(e ast.Expr) (time.Duration, error) {
	units := map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute,
		"Hour": time.Hour}
	switch e := e.(type) {
	case *ast.SelectorExpr:
		if d, is := units[e.Sel.Name]; is {
			return d, nil
		}
	case *ast.BinaryExpr:
		if n, is := e.X.(*ast.BasicLit); is && e.Op == token.MUL {
			times, err := strconv.Atoi(n.Value)
			d, err2 := duration(e.Y)
			if err == nil && err2 == nil {
				return time.Duration(times) * d, nil
			}
		}
	}
	return 0, fmt.Errorf("%T is no duration", e)
}
