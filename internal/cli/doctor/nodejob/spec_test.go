// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodejob

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/test/golden"
)

var update = flag.Bool("update", false, "write testdata/job.json")

// The Job has the rights that its program needs, and no others.
func TestSpec(t *testing.T) {
	got, err := present.JSON(spec("kerf-doctor-x", Options{Node: "gpu-1", Image: "kerf.dev/agent:v1.2.3",
		Runtime: "containerd://2.1.4", Paths: []string{"/etc/cdi", "/run/containerd/containerd.sock"}}), true)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "job.json")
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the Job differs (-file +now); write the file with -update\n%s",
			golden.Diff(string(want), string(got)))
	}
}

// CRI-O rejects a recursive read-only mount of the root folder.
func TestSpecForCRIO(t *testing.T) {
	mount := containerSpec(Options{Runtime: "cri-o://1.34.0"}).VolumeMounts[0]
	if !mount.ReadOnly || mount.RecursiveReadOnly != nil {
		t.Errorf("%+v", mount)
	}
}
