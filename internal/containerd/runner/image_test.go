// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"go.uber.org/goleak"

	base "github.com/kerf-gpu/kerf/internal/containerd"
	"github.com/kerf-gpu/kerf/sharing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFullName(t *testing.T) {
	for ref, want := range map[string]string{
		"busybox":                          "docker.io/library/busybox:latest",
		"busybox:1.36":                     "docker.io/library/busybox:1.36",
		"team/app":                         "docker.io/team/app:latest",
		"docker.io/busybox:1":              "docker.io/library/busybox:1",
		"nvcr.io/nvidia/pytorch:24.05-py3": "nvcr.io/nvidia/pytorch:24.05-py3",
		"localhost/app":                    "localhost/app:latest",
		"localhost:5000/app":               "localhost:5000/app:latest",
		"kerf.test/agent:1":                "kerf.test/agent:1",
		"busybox@sha256:0123":              "docker.io/library/busybox@sha256:0123",
		"gcr.io/a/b:1@sha256:0123":         "gcr.io/a/b:1@sha256:0123",
		"":                                 "", " ": "", "a b": "", "UPPER": "", "a:": "", "a@": "", "a@b": "",
		"gcr.io/": "", "gcr.io//a": "", "a/b/": "", "a:1:2": "", "a;b": "", "x\x00": "",
	} {
		got, err := FullName(ref)
		if got != want || (err != nil) != (want == "") || err != nil && !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("FullName(%q) = %q, %v; want %q", ref, got, err, want)
		}
	}
}

// A full name stands for itself.
func FuzzFullName(f *testing.F) {
	for _, s := range []string{"busybox", "a/b:c@d:e", "localhost:5/x", ":", "@", "/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, ref string) {
		name, err := FullName(ref)
		if err != nil {
			return
		}
		if again, err := FullName(name); err != nil || again != name {
			t.Errorf("%q is %q, which is %q (%v)", ref, name, again, err)
		}
	})
}

func TestAsOnTheHost(t *testing.T) {
	s := &specs.Spec{
		Process: &specs.Process{Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: 1024, Soft: 1024}}},
		Mounts: []specs.Mount{{Destination: "/proc"},
			{Destination: "/dev/shm", Options: []string{"nosuid", "size=65536k", "mode=1777"}}},
	}
	asOnTheHost(s)
	want := &specs.Spec{Process: &specs.Process{}, Mounts: []specs.Mount{{Destination: "/proc"},
		{Destination: "/dev/shm", Options: []string{"nosuid", "mode=1777"}}}}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := bind(Mount{Source: "/a", Target: "/b", ReadOnly: true}); got.Options[2] != "ro" || got.Source != "/a" ||
		got.Destination != "/b" {
		t.Errorf("got %+v", got)
	}
}

// The end of the input is reported once, whether it comes before or after there is a receiver.
func TestClosingReader(t *testing.T) {
	for _, early := range []bool{true, false} {
		r, known := &closingReader{from: strings.NewReader("abc")}, 0
		if !early {
			r.onEnd(func() { known++ })
		}
		text, err := io.ReadAll(r)
		if string(text) != "abc" || err != nil {
			t.Errorf("read %q, %v", text, err)
		}
		if early {
			r.onEnd(func() { known++ })
		}
		if _, err := r.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || known != 1 {
			t.Errorf("early %t: reported %d times, %v", early, known, err)
		}
	}
	if (&closingReader{}).orNil() != nil {
		t.Error("a reader without a source")
	}
}

// The error of containerd's own client tells, too, that no container runtime is there.
func TestNoRuntime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "containerd.sock")
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Image(t.Context(), "busybox:1", PullNever, nil); !errors.Is(err, base.ErrNoRuntime) ||
		!strings.Contains(err.Error(), path) {
		t.Error(err)
	}
}
