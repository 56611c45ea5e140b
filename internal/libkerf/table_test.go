// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

// published are the names that the driver's headers and its library had from CUDA 11.4 to 13.2.
func published(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "cuda-driver-symbols.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		if name, _, ok := strings.Cut(line, "\t"); ok && !strings.HasPrefix(line, "#") {
			names = append(names, name)
		}
	}
	if len(names) < 690 {
		t.Fatalf("%d names, which cannot be all", len(names))
	}
	return names
}

func shipped(t *testing.T) Table {
	t.Helper()
	table, err := Families()
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestKnowsEveryPublishedName(t *testing.T) {
	table, names := shipped(t), published(t)
	if unknown := table.Unknown(names); len(unknown) > 0 {
		t.Errorf("the table lacks %v", unknown)
	}
	for name := range table.class {
		if !slices.Contains(names, name) {
			t.Errorf("no driver has published %q", name)
		}
	}
	// The test above depends on Unknown: it has to report each missing name.
	for _, name := range slices.Sorted(maps.Keys(table.class)) {
		class := table.class[name]
		delete(table.class, name)
		if d := cmp.Diff([]string{name}, table.Unknown([]string{"cuInit", name})); d != "" {
			t.Errorf("without %s (-want +got):\n%s", name, d)
		}
		table.class[name] = class
	}
}

func TestUnknown(t *testing.T) {
	got := shipped(t).Unknown([]string{
		"cuMemAlloc_v3", "cuMemAlloc_v2", "cuMemcpy_v9", "cuMemsetD64", "cublasCreate", "cuArrayCreate_v9",
		"cuStreamQuery", "cuGraphAddNode_v3_ptsz", "cuMemAlloc_v3", "cuDeviceTotalMem_v3", "cuLaunchKernel_v9",
		"cuStreamBatchMemOp_v2",
	})
	want := []string{"cuArrayCreate_v9", "cuDeviceTotalMem_v3", "cuGraphAddNode_v3_ptsz", "cuLaunchKernel_v9",
		"cuMemAlloc_v3", "cuMemcpy_v9", "cuMemsetD64"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A variant for another stream or with wider arguments means the same as the name that it comes from.
func TestVariantsMeanTheSame(t *testing.T) {
	table := shipped(t)
	variants := 0
	for name, class := range table.class {
		for _, suffix := range []string{"_ptsz", "_ptds", "_v2", "_v3", "_v4"} {
			base, ok := strings.CutSuffix(name, suffix)
			if baseClass, known := table.Class(base); ok && known {
				variants++
				if class != baseClass {
					t.Errorf("%s is %s and %s is %s", name, class, base, baseClass)
				}
			}
		}
	}
	if variants < 30 {
		t.Errorf("compared %d variants only", variants)
	}
}

func TestClasses(t *testing.T) {
	table := shipped(t)
	for name, want := range map[string]Class{
		"cuMemAlloc": Charge, "cuMemAlloc_v2": Charge, "cuMemAllocPitch_v2": Charge, "cuMemAllocManaged": Charge,
		"cuMemAllocAsync_ptsz": Charge, "cuMemAllocFromPoolAsync": Charge, "cuMemCreate": Charge,
		"cuArray3DCreate_v2": Charge, "cuMipmappedArrayCreate": Charge, "cuGraphAddMemAllocNode": Charge,
		"cuGraphAddNode_v2": Charge, "cuMemFree_v2": Release, "cuMemFreeAsync_ptsz": Release, "cuMemRelease": Release,
		"cuMemUnmap": Release, "cuArrayDestroy": Release, "cuDeviceGraphMemTrim": Release, "cuMemMap": Track,
		"cuMemRetainAllocationHandle": Track, "cuMemPoolCreate": Track, "cuGraphLaunch_ptsz": Track,
		"cuMemGetInfo_v2": Size, "cuDeviceTotalMem_v2": Size, "cuGetProcAddress_v2": Resolve,
		"cuDevicePrimaryCtxRetain": Overhead, "cuModuleLoadData": Overhead, "cuCtxSetLimit": Overhead,
		"cuGreenCtxCreate": Overhead, "cuCtxFromGreenCtx": Overhead, "cuLibraryLoadData": Overhead,
		"cuMemPrefetchBatchAsync_ptsz": Overhead, "cuImportExternalMemory": Imported,
		"cuMemPrefetchAsync_v2_ptsz": Overhead, "cuGLCtxCreate_v2": Overhead, "cuIpcOpenMemHandle_v2": Imported,
		"cuMemImportFromShareableHandle": Imported, "cuMulticastBindMem_v2": Track, "cuMemAllocHost_v2": Host,
		"cuLaunchKernel_ptsz": Time, "cuMemcpyAsync": Time, "cuMemsetD8_v2_ptds": Time, "cuStreamWriteValue32_v2": Time,
		"cuMemAddressReserve": None, "cuLaunchHostFunc": None, "cuMemExportToShareableHandle": None,
	} {
		if got, known := table.Class(name); !known || got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	counts := map[Class]int{}
	for _, class := range table.class {
		counts[class]++
	}
	for _, class := range classes() {
		if counts[class] == 0 {
			t.Errorf("no name is %q", class)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"no entry": "cuMemAlloc", "no such class": "FAMILY(cuMemAlloc, charges)",
		"not the driver's": "FAMILY(nvmlInit, none)",
		"twice":            "FAMILY(cuMemAlloc, charge)\nFAMILY(cuMemAlloc, none)",
		"two in one":       "FAMILY(cuMemAlloc, charge) FAMILY(cuMemFree, release)",
		"stray space":      " FAMILY(cuMemAlloc, charge)",
	} {
		if _, err := parse(text); !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("/* a\n * b */\nFAMILY(cuMemAlloc_v2, charge)\n")
	f.Add("FAMILY(cu, )")
	f.Fuzz(func(t *testing.T, text string) {
		table, err := parse(text)
		if err != nil {
			return
		}
		for name, class := range table.class {
			if !strings.Contains(text, "FAMILY("+name+", "+string(class)+")") {
				t.Fatalf("%q reads as %s, %s", text, name, class)
			}
		}
	})
}

// C has to read the same file: as many entries, each one a valid name.
func TestCIncludesTheFile(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Fatal("the tests of this project need a C compiler:", err)
	}
	dir := t.TempDir()
	source := `#include <stdio.h>
#define FAMILY(name, class) static const char *const name = #class;
#include "families.def"
#undef FAMILY
int main(void)
{
#define FAMILY(name, class) printf("%s %s\n", #name, name);
#include "families.def"
	return 0;
}
`
	if err := os.WriteFile(filepath.Join(dir, "table.c"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "table")
	build := exec.CommandContext(t.Context(), cc, "-std=c11", "-Wall", "-Wextra", "-Werror", "-I", "lib", "-o", program,
		filepath.Join(dir, "table.c"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), program).Output()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Class{}
	for line := range strings.Lines(string(out)) {
		name, class, _ := strings.Cut(strings.TrimSpace(line), " ")
		got[name] = Class(class)
	}
	if d := cmp.Diff(shipped(t).class, got); d != "" {
		t.Errorf("(-Go +C):\n%s", d)
	}
}
