// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/cli/doctor"
	"github.com/kerf-gpu/kerf/internal/cli/doctor/bundle"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/clitest"
)

// planted is in every secret of these tests.
const planted = "PLANTED"

// read returns the files of an archive.
func read(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || h.Mode != 0o600 {
			t.Fatalf("%s: mode %o, %v", h.Name, h.Mode, err)
		}
		files[strings.TrimPrefix(h.Name, "kerf-support/")] = string(text)
	}
}

// Each form of a secret goes, and what is near it stays.
func TestText(t *testing.T) {
	through := func(text string) string {
		a := bundle.New(time.Now())
		a.Text("x", []byte(text), nil)
		return string(a.File("x"))
	}
	for name, tt := range map[string]struct{ text, stays string }{
		"token": {"level=info msg=x token=" + planted + " node=n", "node=n"},
		"web token": {"got eyJhbGciOiJSUzI1NiIs.eyJpc3MiOiJrdWJl" + planted + ".c2ln" + planted + " from n",
			"from n"},
		"bearer":       {"sent Bearer " + planted + "abcdef to n", "to n"},
		"header":       {"Authorization: Basic " + planted + "\nnext", "next"},
		"address":      {"get https://u:" + planted + "@host/x", "host/x"},
		"environment":  {"AWS_SECRET_ACCESS_KEY=" + planted + " x", "x"},
		"JSON":         {`{"apiKey": "` + planted + `", "b": 1}`, `"b": 1`},
		"escaped JSON": {`{"password": "a\"` + planted + `", "b": 1}`, `"b": 1`},
		"YAML":         {"a: 1\nclient-secret: " + planted + "\nb: 1", "b: 1"},
		"flag":         {"--registry-password=" + planted + " --verbose", "--verbose"},
		"key": {"-----BEGIN RSA PRIVATE KEY-----\n" + planted + "\n-----END RSA PRIVATE KEY-----\nafter",
			"after"},
		"cut key": {"before\n-----BEGIN PRIVATE KEY-----\n" + planted + "\n", "before"},
	} {
		got := through(tt.text)
		if strings.Contains(got, planted) || !strings.Contains(got, tt.stays) || !strings.Contains(got,
			bundle.Removed) {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, text := range []string{"no secret here", "GPU-1 has 3 tokens per second", `{"secretName": "x"}`} {
		if got := through(text); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

// Environments, annotations and secret fields go at any depth.
func TestJSON(t *testing.T) {
	a := bundle.New(time.Now())
	a.JSON("x", map[string]any{
		"metadata": map[string]any{"name": "n", "annotations": map[string]string{"a": planted},
			"managedFields": []string{planted}},
		"spec": []any{map[string]any{"env": []string{planted}, "envFrom": planted, "token": planted, "image": "i",
			"args": []string{"--token=" + planted}}},
	}, nil)
	if text := string(a.File("x")); strings.Contains(text, planted) || !strings.Contains(text, `"image": "i"`) ||
		!strings.Contains(text, `"name": "n"`) {
		t.Errorf("%s: missing %q", text, a.Left())
	}
}

// The file of an archive is new.
func TestWriteIsNew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.tar.gz")
	a := bundle.New(time.Now())
	a.Text("x", nil, errors.New("token="+planted))
	if err := a.Write(path); err != nil {
		t.Fatal(err)
	}
	if text := read(t, path)["missing.txt"]; strings.Contains(text, planted) || !strings.Contains(text, "x: ") {
		t.Errorf("missing: %q", text)
	}
	if err := a.Write(path); !errors.Is(err, sharing.ErrConflict) {
		t.Errorf("a second time: %v", err)
	}
}

// The archive of a cluster has what Kerf is, without the secrets that are planted in everything that it reads. No
// Secret is read.
func TestCluster(t *testing.T) {
	f := clitest.StartCluster(t, doctor.ClusterCommands)
	now := time.Now().UTC().Format(time.RFC3339)
	f.Lists["/api/v1/namespaces/kerf-system/pods"] = []string{`{"metadata":{"name":"kerf-agent-x","annotations":{"a":"` +
		planted + `"}},"spec":{"containers":[{"name":"agent","image":"kerf/agent:v1","env":[{"name":"T","value":"` +
		planted + `"}],"args":["--token=` + planted + `"]}]},"status":{"phase":"Running",` +
		`"containerStatuses":[{"name":"agent","restartCount":1}]}}`}
	f.Lists["/api/v1/namespaces/kerf-system/configmaps"] = []string{
		`{"metadata":{"name":"kerf-config"},"data":{"config.yaml":"pools: []\npassword: ` + planted + `\n"}}`,
		`{"metadata":{"name":"kube-root-ca.crt"},"data":{"x":"` + planted + `"}}`}
	f.Lists["/api/v1/events"] = []string{
		`{"metadata":{"namespace":"team"},"reason":"GPUCapped","source":{"component":"kerf-agent"},"lastTimestamp":"` + now +
			`","message":"token=` + planted + `"}`,
		`{"metadata":{"namespace":"team"},"reason":"Other","source":{"component":"kubelet"},"lastTimestamp":"` + now + `"}`,
		`{"metadata":{"namespace":"team"},"reason":"Old","source":{"component":"kerf-agent"},` +
			`"lastTimestamp":"2020-01-01T00:00:00Z"}`}
	f.On = func(w http.ResponseWriter, method, path, _ string) bool {
		if path != "/api/v1/namespaces/kerf-system/pods/kerf-agent-x/log" {
			return false
		}
		_, _ = io.WriteString(w, "msg=started secret="+planted+" node=n\n")
		return true
	}
	path := filepath.Join(t.TempDir(), "a.tar.gz")
	out, errOut, code := f.Call("doctor", "--bundle", path)
	if code != command.ExitOK || !strings.Contains(out, "read them before you send the archive") ||
		!strings.Contains(errOut, "missing: cluster/version.json") {
		t.Fatalf("status %d: %s%s", code, out, errOut)
	}
	files := read(t, path)
	for name, want := range map[string]string{"kerf.json": "version", "doctor.txt": "gpu-1",
		"cluster/gpunodes.json": "gpu-1", "cluster/pods.json": "kerf/agent:v1", "cluster/configmaps.json": "pools: []",
		"cluster/heartbeats.json": "kerf-node-gpu-1", "cluster/events.json": "GPUCapped",
		"logs/kerf-agent-x-agent.log": "msg=started", "logs/kerf-agent-x-agent-previous.log": "node=n"} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s has no %q: %.200s", name, want, files[name])
		}
	}
	for name, text := range files {
		if strings.Contains(text, planted) || strings.Contains(text, "kube-root-ca") ||
			strings.Contains(text, "Other") ||
			strings.Contains(text, `"Old"`) {
			t.Errorf("%s has what it must not: %s", name, text)
		}
	}
	for _, r := range f.Reads() {
		if strings.Contains(r, "/secrets") {
			t.Errorf("read %s", r)
		}
	}
}
