// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
)

func TestPreloadFileFree(t *testing.T) {
	dir := t.TempDir()
	absent, taken := filepath.Join(dir, "absent"), filepath.Join(dir, "taken")
	if err := os.WriteFile(taken, []byte("/usr/lib/libsite.so\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !preloadFileFree(absent) {
		t.Error("a file that does not exist is not free")
	}
	if _, err := os.Stat(absent); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file exists afterwards: %v", err)
	}
	if preloadFileFree(taken) || preloadFileFree(filepath.Join(dir, "no", "folder")) || preloadFileFree(dir) {
		t.Error("free, and it is not")
	}
}

func TestPreloadingEnvironment(t *testing.T) {
	library := &nodeapi.ActivateResponse{Preload: "/r/libkerf.so"}
	for name, tt := range map[string]struct {
		activated *nodeapi.ActivateResponse
		byEnv     bool
		had       string
		want      []string
	}{
		"by the file":      {library, false, "/a.so", []string{"LD_PRELOAD=/a.so", "X=1"}},
		"no library":       {&nodeapi.ActivateResponse{}, true, "/a.so", []string{"LD_PRELOAD=/a.so", "X=1"}},
		"before another":   {library, true, "/a.so", []string{"X=1", "LD_PRELOAD=/r/libkerf.so:/a.so"}},
		"in place of none": {library, true, "", []string{"X=1", "LD_PRELOAD=/r/libkerf.so"}},
	} {
		if d := cmp.Diff(tt.want, preloading([]string{"LD_PRELOAD=/a.so", "X=1"}, tt.activated, tt.byEnv,
			tt.had)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
