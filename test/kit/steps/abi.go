// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/test/kit/bench"
	"github.com/kerf-gpu/kerf/test/kit/core"
)

// abi lists what the driver's libraries export. The lists are the simulator's next source of names.
func abi(ctx context.Context, b *bench.Bench) error {
	d, err := b.OpenDriver(ctx)
	if err != nil {
		return err
	}
	folders := append([]string{filepath.Dir(d.Path())}, nvml.DriverFolders(os.Getenv("LD_LIBRARY_PATH"))...)
	if management, err := libkerf.DriverNames([]string{d.Path()}); err == nil {
		b.Fact("functions of NVML", "%d", len(management))
		b.Save("libnvidia-ml.txt", []byte(strings.Join(management, "\n")+"\n"))
	}
	_ = d.Close()
	var files []string
	for _, dir := range append(folders, "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64") {
		files = append(files, filepath.Join(dir, "libcuda.so.1"))
	}
	names, err := libkerf.DriverNames(files)
	if err != nil {
		return err
	}
	slices.Sort(names)
	b.Fact("functions of CUDA", "%d", len(names))
	b.Save("libcuda.txt", []byte(strings.Join(names, "\n")+"\n"))
	table, err := libkerf.Families()
	if err != nil {
		return err
	}
	unknown := table.Unknown(names)
	b.Add(core.Is("abi-known", len(unknown) == 0, "%d unknown functions that may allocate %s", len(unknown), strings.Join(unknown, " ")))
	return identities(ctx, b, names)
}

// identities asks cuGetProcAddress for each name, with and without its version.
func identities(ctx context.Context, b *bench.Bench, names []string) error {
	all := slices.Clone(names)
	for _, n := range names {
		for _, suffix := range []string{"_ptsz", "_ptds", "_v4", "_v3", "_v2"} {
			n = strings.TrimSuffix(n, suffix)
		}
		all = append(all, n)
	}
	slices.Sort(all)
	file := filepath.Join(b.Work, "names")
	if err := os.WriteFile(file, []byte(strings.Join(slices.Compact(all), "\n")+"\n"), 0o644); err != nil {
		return err
	}
	var got struct{ Asked, Found, Others int }
	if err := b.Run(ctx, b.Native(), &got, "abi", "--names", file); err != nil {
		return err
	}
	b.Fact("cuGetProcAddress", "%d questions, %d answers", got.Asked, got.Found)
	b.Add(core.Is("abi-identity", got.Others == 0 && got.Found > 0, "%d of %d answers are no exported function", got.Others, got.Found))
	return nil
}
