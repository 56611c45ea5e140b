// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf_test

import (
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
)

// Each processor name leads 64-bit programs to the library of the folder, and 32-bit programs to a library without
// code.
func TestMakePreload(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // a folder that an earlier agent made
		if err := libkerf.MakePreload(dir); err != nil {
			t.Fatal(err)
		}
	}
	own := filepath.Join(dir, libkerf.LibraryFile)
	if err := os.WriteFile(own, []byte("library"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := libkerf.PreloadPath(dir)
	for _, name := range []string{"x86_64", "haswell", "xeon_phi", "aarch64", "$PLATFORM"} {
		text, err := os.ReadFile(strings.ReplaceAll(path, "$PLATFORM", name))
		if err != nil || string(text) != "library" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	for _, name := range []string{"i386", "i486", "i586", "i686"} {
		checkEmpty(t, strings.ReplaceAll(path, "$PLATFORM", name))
	}
	if err := libkerf.MakePreload(filepath.Join(own, "none")); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("a folder that is none: %v", err)
	}
}

func checkEmpty(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if f.Class != elf.ELFCLASS32 || f.Machine != elf.EM_386 || f.Type != elf.ET_DYN || info.Mode().Perm() != 0o644 {
		t.Errorf("%s: %v, %v, %v, %v", path, f.Class, f.Machine, f.Type, info.Mode())
	}
	kinds := map[elf.ProgType]bool{}
	for _, p := range f.Progs {
		kinds[p.Type] = true
		if p.Flags&elf.PF_X != 0 || p.Off+p.Filesz > uint64(info.Size()) {
			t.Errorf("%s: segment %v of a file of %d bytes", path, p.ProgHeader, info.Size())
		}
	}
	if !kinds[elf.PT_LOAD] || !kinds[elf.PT_DYNAMIC] || !kinds[elf.PT_GNU_STACK] {
		t.Errorf("%s: segments %v", path, kinds)
	}
}
