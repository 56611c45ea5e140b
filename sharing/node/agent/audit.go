// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"path/filepath"

	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/audit/file"
)

// openAudit opens the audit log. If the disk fails, GPUs stay available, and the status reports the error.
func (a *agent) openAudit() {
	log, err := file.Open(file.Options{Dir: a.auditPath(), Node: a.opt.Cluster.Node, Log: a.log})
	if err != nil {
		a.log.Error("failed to open audit log", "error", err.Error())
		a.auditFault = "no audit log is kept: " + err.Error()
		return
	}
	a.audit = log
}

func (a *agent) auditPath() string {
	return cmp.Or(a.opt.Dirs.Audit, filepath.Join(a.opt.Dirs.Dir, "audit"))
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
