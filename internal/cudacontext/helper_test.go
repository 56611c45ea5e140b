// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cudacontext

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// asHelper is the first argument of this program where it is the helper of a test. The others are libraries.
const asHelper = "hold-context"

func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != asHelper {
		os.Exit(m.Run())
	}
	if err := RunHelper(os.Stdin, os.Stdout, os.Args[2:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// helping starts this program as a helper with a library.
func helping(t *testing.T, library string, keep func(int) error) (*Helper, error) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := Start{
		Program: program, Args: []string{asHelper, library}, GPU: "GPU-0",
		Folders: []string{"/nowhere"}, NoMPS: filepath.Join(t.TempDir(), "none"), MoveToCgroup: keep,
	}
	return s.Run(t.Context())
}

func free(int) error { return nil }

func TestHelper(t *testing.T) {
	kept := 0
	h, err := helping(t, library(t, initOK+deviceOK+retainOK), func(pid int) error { kept = pid; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	if kept != h.PID() {
		t.Errorf("process %d was kept, and the helper is %d", kept, h.PID())
	}
	if err := h.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", kept)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}
}

// The helper shows one GPU to CUDA, and no MPS daemon.
func TestHelperEnvironment(t *testing.T) {
	h, err := helping(t, library(t, `#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int cuInit(unsigned f) {
	const char *gpu = getenv("CUDA_VISIBLE_DEVICES"), *mps = getenv("CUDA_MPS_PIPE_DIRECTORY");
	return gpu && !strcmp(gpu, "GPU-0") && mps && access(mps, F_OK) && !getenv("PATH") ? 0 : 1;
}
`+deviceOK+retainOK), free)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(h.Ready(t.Context()), h.Stop()); err != nil {
		t.Error(err)
	}
}

func TestHelperThatFails(t *testing.T) {
	for name, c := range map[string]struct{ source, says string }{
		"CUDA refuses": {"int cuInit(unsigned f) { return 100; }\n" + deviceOK + retainOK, "CUDA error 100"},
		"it crashes": {"#include <stdlib.h>\nint cuInit(unsigned f) { _Exit(3); }\n" + deviceOK + retainOK,
			"made no context"},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := helping(t, library(t, c.source), free)
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Ready(t.Context()); !errors.Is(err, sharing.ErrUnavailable) ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
			if err := h.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A helper that hangs in the driver's library ends with the context, and so does the wait for it.
func TestHelperThatHangs(t *testing.T) {
	h, err := helping(t, library(t, "#include <unistd.h>\nint cuInit(unsigned f) { for (;;) pause(); }\n"+deviceOK+
		retainOK), free)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if err := h.Ready(ctx); !errors.Is(err, sharing.ErrUnavailable) {
		t.Error(err)
	}
	if err := h.Stop(); err != nil {
		t.Error(err)
	}
}

func TestHelperThatCannotBeStarted(t *testing.T) {
	no := errors.New("no cgroup")
	pid := 0
	if _, err := helping(t, "libcuda.so.1", func(p int) error { pid = p; return no }); !errors.Is(err, no) {
		t.Error(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}
	s := Start{Program: "/nowhere/kerf-agent", MoveToCgroup: free}
	if _, err := s.Run(t.Context()); !errors.Is(err, sharing.ErrUnavailable) {
		t.Error(err)
	}
}
