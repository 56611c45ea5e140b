// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"maps"
	"net/http"
	"strconv"
)

// Rendered answers with what h writes once h has ended, so that a slow reader occupies bytes, which are counted, and
// nothing of h. At most atOnce calls of h run at a time; the others wait.
func Rendered(h http.Handler, atOnce int) http.Handler {
	slots := make(chan struct{}, atOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := &page{header: http.Header{}, code: http.StatusOK}
		select {
		case slots <- struct{}{}:
			page.render(h, r, slots)
		case <-r.Context().Done():
			return // the peer is gone
		}
		conn := ConnOf(r.Context())
		if conn == nil {
			http.Error(w, "the connection is not counted", http.StatusInternalServerError)
			return
		}
		free, ok := conn.Hold(page.body.Len())
		if !ok {
			busy(w, "too many answers wait for their readers")
			return
		}
		defer free()
		maps.Copy(w.Header(), page.header)
		w.Header().Set("Content-Length", strconv.Itoa(page.body.Len()))
		w.WriteHeader(page.code)
		_, _ = w.Write(page.body.Bytes()) // a reader that left
	})
}

// page is an answer in memory.
type page struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (p *page) render(h http.Handler, r *http.Request, slots <-chan struct{}) {
	defer func() { <-slots }()
	h.ServeHTTP(p, r)
}

// Header implements http.ResponseWriter.
func (p *page) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *page) WriteHeader(code int) { p.code = code }

// Write implements http.ResponseWriter.
func (p *page) Write(b []byte) (int, error) { return p.body.Write(b) }
