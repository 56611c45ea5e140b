// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"context"
	"fmt"
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
	b.Add(core.Is("abi-known", len(unknown) == 0, "%d unknown functions that may allocate %s", len(unknown),
		strings.Join(unknown, " ")))
	return identities(ctx, b, table, names)
}

// identified is one answer of cuGetProcAddress, or the sum of all.
type identified struct {
	Other        string // a name whose function is not exported
	Version      int
	Flags        int
	Asked, Found int
	Failed, Call string
}

// identities asks cuGetProcAddress for each name, with and without its version. The functions that libkerf counts have
// to be exported, because it finds them by their address. Others may be hidden.
func identities(ctx context.Context, b *bench.Bench, table libkerf.Table, names []string) error {
	all := slices.Clone(names)
	for _, n := range names {
		all = append(all, baseName(n))
	}
	slices.Sort(all)
	file := filepath.Join(b.Work, "names")
	if err := os.WriteFile(file, []byte(strings.Join(slices.Compact(all), "\n")+"\n"), 0o644); err != nil {
		return err
	}
	p, err := b.Start(b.Native(), b.Program("kitload"), "abi", "--names", file)
	if err != nil {
		return err
	}
	defer p.End()
	var hidden []identified
	var counted []string
	for {
		var got identified
		if err := p.Line(ctx, &got); err != nil {
			return err
		}
		switch {
		case got.Failed != "":
			return fmt.Errorf("kitload abi: %s in %s", got.Failed, got.Call)
		case got.Other != "":
			hidden = append(hidden, got)
			if counts(table, names, got.Other) {
				counted = append(counted, got.Other)
			}
		default:
			counted = slices.Compact(counted)
			b.SaveJSON("hidden.json", hidden)
			b.Fact("cuGetProcAddress", "%d questions, %d answers, %d of them no exported function", got.Asked,
				got.Found, len(hidden))
			b.Add(core.Is("abi-identity", len(counted) == 0 && got.Found > 0,
				"%d functions that libkerf counts are hidden %v", len(counted), counted))
			return nil
		}
	}
}

// baseName is a name without the suffixes of its versions.
func baseName(name string) string {
	for _, suffix := range []string{"_ptsz", "_ptds", "_v4", "_v3", "_v2"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}

// counts reports whether libkerf counts a function, in any of the versions that the driver has.
func counts(table libkerf.Table, names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		class, known := table.Class(n)
		return known && baseName(n) == baseName(name) && class != libkerf.None && class != libkerf.Host &&
			class != libkerf.Resolve
	})
}
