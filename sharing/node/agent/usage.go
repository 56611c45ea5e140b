// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/audit/file"
	"github.com/kerf-gpu/kerf/sharing/config"
)

const (
	// usageTime bounds an answer to /usage, and usagePart the time that its reader takes for one part of some 64 KiB.
	usageTime, usagePart = time.Minute, 10 * time.Second
	// usageAtOnce is how many parts are read at a time, for all readers.
	usageAtOnce = 2
)

// usageLog answers what grants used, as the audit log has it.
type usageLog struct {
	log    *slog.Logger
	index  *file.Index
	prices func() config.Prices
	// reading has a token for each part that is being read. None is held while a part is sent.
	reading chan struct{}
}

func newUsageLog(log *slog.Logger, dir string, prices func() config.Prices) *usageLog {
	return &usageLog{log: log, index: file.NewIndex(dir, audit.Usage), prices: prices,
		reading: make(chan struct{}, usageAtOnce)}
}

// ServeHTTP answers with the prices and, line by line, the entries since a time. It leaves out lines whose sum is
// wrong: "kerf audit verify" shows them.
func (u *usageLog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	since, err := time.Parse(time.RFC3339, r.URL.Query().Get("since"))
	if err != nil {
		http.Error(w, "write since=TIME, such as 2006-01-02T15:04:05Z", http.StatusBadRequest)
		return
	}
	blocks, err := u.index.Since(since)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), usageTime)
	defer cancel()
	w.Header().Set("Content-Type", "application/jsonl")
	if err := json.NewEncoder(w).Encode(u.prices()); err != nil {
		return // the reader left
	}
	for _, b := range blocks {
		part, err := u.read(ctx, b, since)
		if err != nil {
			u.log.Warn("failed to read usage from audit log", "error", err.Error())
			panic(http.ErrAbortHandler) //nolint:forbidigo // net/http aborts the answer, so that a reader does not take a part for all
		}
		if !send(w, r, part) {
			panic(http.ErrAbortHandler) //nolint:forbidigo // see above
		}
	}
}

// read returns the lines of a block.
func (u *usageLog) read(ctx context.Context, b file.Block, since time.Time) ([]byte, error) {
	select {
	case u.reading <- struct{}{}:
		defer func() { <-u.reading }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var part bytes.Buffer
	err := b.Read(since, func(line []byte) {
		part.Write(line)
		part.WriteByte('\n')
	})
	return part.Bytes(), err
}

// send reports whether the reader took the part in time.
func send(w http.ResponseWriter, r *http.Request, part []byte) bool {
	conn := serve.ConnOf(r.Context())
	if conn == nil {
		return false
	}
	free, ok := conn.Reserve(len(part))
	if !ok {
		return false
	}
	defer free()
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(usagePart)); err != nil {
		return false
	}
	_, err := w.Write(part) //nolint:gosec // JSON lines of the log, in a content type that no browser renders
	return err == nil
}
