// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"time"

	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/audit/file"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// openAudit opens the audit log. A disk that does not take it keeps nobody from a GPU: it is told in status.
func (a *agent) openAudit() {
	log, err := file.Open(file.Options{Dir: a.auditPath(), Node: a.nodeName, Log: a.log})
	if err != nil {
		a.log.Error("no audit log is kept", "error", err.Error())
		a.auditFault = "no audit log is kept: " + err.Error()
		return
	}
	a.audit = log
}

func (a *agent) auditPath() string { return cmp.Or(a.auditDir, filepath.Join(a.dir, "audit")) }

// serveUsage answers what grants used since a time, as the audit log has it. A log that is not whole is told as far as it
// can be read: kerf audit verify says what is wrong with it.
func (a *agent) serveUsage(w http.ResponseWriter, r *http.Request) {
	since, err := time.Parse(time.RFC3339, r.URL.Query().Get("since"))
	if err != nil {
		http.Error(w, "write since=TIME, such as 2006-01-02T15:04:05Z", http.StatusBadRequest)
		return
	}
	a.reading.Lock()
	defer a.reading.Unlock()
	paths, err := file.Files(a.auditPath())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	out := json.NewEncoder(w)
	head := config.Prices{}
	if p := a.prices.Load(); p != nil {
		head = *p
	}
	err = out.Encode(head)
	_, verr := file.Verify(paths, func(e audit.Entry) {
		if e.What == audit.Usage && e.Time.After(since) && err == nil {
			err = out.Encode(e)
		}
	})
	if verr != nil {
		a.log.Warn("audit log is not whole", "error", verr.Error())
	}
}

// auditTo is where the runtime writes entries; nil for nowhere.
func (a *agent) auditTo() func(audit.Entry) {
	if a.audit == nil {
		return nil
	}
	return a.audit.Write
}

// runAudit writes the log until the returned function is called, which waits for the last entry.
func (a *agent) runAudit(ctx context.Context) (stop func() error) {
	if a.audit == nil {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- a.audit.Run(ctx) }()
	return func() error {
		cancel()
		return <-done
	}
}
