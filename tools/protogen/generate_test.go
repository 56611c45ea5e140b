// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/pluginpb"
)

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// Plugins link the files in the order of the request: an import must come before its importer, once.
func TestCompileOrdersImports(t *testing.T) {
	root := t.TempDir()
	writeFiles(t, root, map[string]string{
		"a.proto":   `syntax = "proto3"; package t; import "x/b.proto"; import "x/c.proto"; message A { B b = 1; C c = 2; }`,
		"x/b.proto": `syntax = "proto3"; package t; import "x/c.proto"; message B { C c = 1; }`,
		"x/c.proto": `syntax = "proto3"; package t; import "google/protobuf/duration.proto"; message C { google.protobuf.Duration d = 1; }`,
	})
	g := generator{root: root}
	request, err := g.compile(t.Context(), []string{"a.proto"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, file := range request.GetProtoFile() {
		got = append(got, file.GetName())
	}
	want := []string{"google/protobuf/duration.proto", "x/c.proto", "x/b.proto", "a.proto"}
	if !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
}

func TestRunRefuses(t *testing.T) {
	root := t.TempDir()
	writeFiles(t, root, map[string]string{
		"good.proto": `syntax = "proto3"; message A {}`,
		"bad.proto":  `syntax = "proto3"; message A { Missing m = 1; }`,
		"fails":      "#!/bin/sh\nexit 3\n",
		"talks":      "#!/bin/sh\necho no protobuf\n",
	})
	fails, talks := filepath.Join(root, "fails"), filepath.Join(root, "talks")
	tests := map[string]struct {
		plugins, files []string
		want           string
	}{
		"no file":           {[]string{fails}, nil, "no .proto file"},
		"no plugin":         {nil, []string{"good.proto"}, "no -plugin"},
		"missing file":      {[]string{fails}, []string{"none.proto"}, "none.proto"},
		"file does not fit": {[]string{fails}, []string{"bad.proto"}, "Missing"},
		"plugin fails":      {[]string{fails}, []string{"good.proto"}, "exit status 3"},
		"plugin talks":      {[]string{talks}, []string{"good.proto"}, "decode response"},
		"plugin missing":    {[]string{fails + "x"}, []string{"good.proto"}, "no such file"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			g := generator{root: root, out: out, plugins: test.plugins}
			err := g.run(t.Context(), test.files)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if left, _ := os.ReadDir(out); len(left) > 0 {
				t.Errorf("%d files written in spite of the error", len(left))
			}
		})
	}
}

func TestWriteStaysBelowOut(t *testing.T) {
	out := t.TempDir()
	g := generator{out: filepath.Join(out, "in")}
	for _, name := range []string{"../evil.go", "/evil.go", ""} {
		file := &pluginpb.CodeGeneratorResponse_File{Name: new(name), Content: new("x")}
		if err := g.write([]*pluginpb.CodeGeneratorResponse_File{file}); err == nil {
			t.Errorf("name %q was written", name)
		}
	}
	if left, _ := os.ReadDir(out); len(left) > 0 {
		t.Errorf("%d entries left", len(left))
	}
}
