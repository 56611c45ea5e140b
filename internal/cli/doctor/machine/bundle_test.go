// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/cli/doctor/bundle"
	"github.com/kerf-gpu/kerf/test/clitest"
)

// The archive of a machine has checkpoint, config and checks, without the environment of this process and without
// secrets in the files.
func TestBundle(t *testing.T) {
	const planted = "PLANTED-VALUE"
	p := clitest.New(map[string]string{"SOME_TOKEN": planted})
	p.App.Dir = t.TempDir()
	for name, text := range map[string]string{
		"record.json":           `{"grants":[{"id":"k-1","env":["A=` + planted + `"],"token":"` + planted + `"}]}`,
		"config.last-good.yaml": "pools: []\npassword: " + planted + "\n",
		"cordons.json":          `{"cordonedGPUs":[]}`,
	} {
		if err := os.WriteFile(filepath.Join(p.App.Dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	to := bundle.New(time.Now())
	addTo(t.Context(), p.App, "", to)
	names := strings.Join(to.Names(), " ")
	for _, want := range []string{"checkpoint.json", "config.yaml", "cordons.json", "doctor.txt", "doctor.json"} {
		if !strings.Contains(names, want) {
			t.Errorf("no %s in %s", want, names)
		}
	}
	if left := strings.Join(to.Left(), " "); !strings.Contains(left, "status.json") {
		t.Errorf("missing without an agent: %q", left)
	}
	for _, name := range to.Names() {
		if text := string(to.File(name)); strings.Contains(text, planted) {
			t.Errorf("%s has the secret: %s", name, text)
		}
	}
	if text := string(to.File("checkpoint.json")); !strings.Contains(text, "k-1") {
		t.Errorf("checkpoint: %s", text)
	}
}
