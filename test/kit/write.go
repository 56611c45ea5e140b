// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kerf-gpu/kerf/test/kit/core"
)

// simulator is the report of a run on the simulator, to compare with.
//
//go:embed reports/simulator.json
var simulator []byte

// write leaves three files: report.md, report.json and raw.tar.gz.
func (r *runner) write(report *core.Report) error {
	data, err := json.Marshal(report)
	if err != nil {
		return err
	}
	if !report.Simulated {
		if err := json.Unmarshal(simulator, &report.Other); err != nil {
			return err
		}
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(r.out, "report.json"), append(data, '\n'), 0o644),
		os.WriteFile(filepath.Join(r.out, "report.md"), []byte(report.Markdown()), 0o644),
		pack(r.raw, filepath.Join(r.out, "raw.tar.gz")),
	)
	if err == nil {
		err = os.RemoveAll(r.raw)
	}
	fmt.Printf("report: %s\n", filepath.Join(r.out, "report.md"))
	return err
}

func pack(dir, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(f)
	t := tar.NewWriter(z)
	err = t.AddFS(os.DirFS(dir))
	return errors.Join(err, t.Close(), z.Close(), f.Close())
}
