// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/simlib"
)

// A process binds to one library for its life, so each case runs in a child of the test, which finds its case
// and its library in these variables.
const (
	caseEnv    = "KERF_TEST_NVML_CASE"
	libraryEnv = "KERF_TEST_NVML_LIBRARY"
)

// inChild runs a case in a separate process, where the library's folder comes first, so that it is found also on a
// machine that has a real driver.
func inChild(t *testing.T, name, library string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestSimulated$", "-test.v")
	cmd.Env = append(os.Environ(), caseEnv+"="+name, libraryEnv+"="+library, "LD_LIBRARY_PATH="+filepath.Dir(library),
		"LD_BIND_NOW=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s with %s: %v\n%s", name, library, err, out)
	}
}

// TestSimulated runs the adapter with the libraries of the simulator.
func TestSimulated(t *testing.T) {
	library := os.Getenv(libraryEnv)
	switch name := os.Getenv(caseEnv); name {
	case "loader":
		testLoader(t, library)
		return
	case "later":
		testLibraryThatComesLater(t, library)
		return
	case "driver":
		testDriver(t, library)
		return
	case "mig":
		testMIG(t, library)
		return
	case "":
	default:
		t.Fatalf("no case %q", name)
	}
	out := simlib.Build(t)
	for _, driver := range []string{"r580", "r615"} {
		t.Run("loader "+driver, func(t *testing.T) { inChild(t, "loader", filepath.Join(out, driver, LibraryName)) })
	}
	for _, driver := range []string{"r580", "r615"} {
		t.Run("driver "+driver, func(t *testing.T) { inChild(t, "driver", nodeWith(t, out, driver)) })
	}
	t.Run("mig r550", func(t *testing.T) { inChild(t, "mig", nodeWith(t, out, "r550")) })
	t.Run("library that comes later", func(t *testing.T) {
		inChild(t, "later", filepath.Join(out, "later", LibraryName))
	})
}

// nodeWith makes a folder with a driver's libraries in the form of a node, and returns the one of NVML.
func nodeWith(t *testing.T, out, driver string) string {
	t.Helper()
	node := filepath.Join(t.TempDir(), driver)
	if err := os.Mkdir(node, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(node, "lib"), os.DirFS(filepath.Join(out, driver))); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(node, "lib", LibraryName)
}

// go-nvml loads the simulated library by its path, and finds that no driver runs: an error, and not the end
// of the process. Opening again must not be blocked by that. What a driver lacks is really absent.
func testLoader(t *testing.T, library string) {
	if err := preflight(library); err != nil {
		t.Fatal(err)
	}
	h, err := openHandles(library)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Base(filepath.Dir(library)) == "r615"; (dlsym(h.lib, setLimitsFunc) != nil) != want ||
		h.find == nil {
		t.Errorf("memory limits present: %v, want %v", !want, want)
	}
	h.close()
	for range 3 {
		wantNoDriver(t, library)
	}
}

func wantNoDriver(t *testing.T, library string) {
	t.Helper()
	l, err := Open(t.Context(), Options{LibraryPaths: DefaultLibraryPaths(os.Getenv("LD_LIBRARY_PATH"))})
	var e *Error
	if l != nil || !errors.Is(err, sharing.ErrUnavailable) || !errors.As(err, &e) ||
		e.Code != int(nvml.ERROR_DRIVER_NOT_LOADED) {
		t.Fatalf("%v, %v; want a driver that is not loaded", l, err)
	}
	if got := boundLibrary(); got != library {
		t.Errorf("bound to %q, want %q", got, library)
	}
}

// A process that starts before the driver's libraries are there finds them later, although the dynamic
// linker itself does not look twice into a directory that was missing.
func testLibraryThatComesLater(t *testing.T, library string) {
	if l, err := Open(t.Context(), Options{}); err == nil {
		_ = l.Close()
		t.Skip("not supported: this machine has its own driver")
	} else if boundLibrary() != "" {
		t.Skip("not supported: this machine has its own library")
	}
	if err := os.Symlink("r615", filepath.Dir(library)); err != nil {
		t.Fatal(err)
	}
	wantNoDriver(t, library)
}
