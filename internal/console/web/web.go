// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package web has the console's static files. The script is bundled from TypeScript in src by tools/console.
package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed static
var static embed.FS

// Files answers with the static files. Every path without a file is a page of the console, so that links into it work.
func Files() http.Handler {
	all := map[string]file{}
	files, err := fs.Glob(static, "static/*")
	if err != nil {
		files = nil // the pattern is constant
	}
	for _, name := range files {
		body, err := static.ReadFile(name)
		if err != nil {
			continue
		}
		sum := sha256.Sum256(body)
		all["/"+path.Base(name)] = file{body, `"` + hex.EncodeToString(sum[:8]) + `"`, typeOf(name)}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := all[r.URL.Path]
		if !ok {
			if strings.HasPrefix(r.URL.Path, "/api/") || path.Ext(r.URL.Path) != "" {
				http.NotFound(w, r)
				return
			}
			f = all["/index.html"]
		}
		w.Header().Set("ETag", f.tag)
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("Content-Type", f.kind)
		if r.Header.Get("If-None-Match") == f.tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(f.body)
	})
}

type file struct {
	body      []byte
	tag, kind string
}

func typeOf(name string) string {
	switch path.Ext(name) {
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "text/html; charset=utf-8"
}
