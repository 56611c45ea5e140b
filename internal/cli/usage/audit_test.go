// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
)

func TestAuditVerify(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit-00000001.jsonl")
	var out bytes.Buffer
	a := &command.App{Out: &out, Dir: filepath.Dir(dir)}
	if err := verifyAudit(a, dir, ""); !errors.Is(err, sharing.ErrNotFound) {
		t.Errorf("no log: %v", err)
	}
	var data []byte
	var tail audit.Tail
	for range 3 {
		line, next, err := tail.Append(audit.Entry{Type: audit.Reserve, Time: time.Unix(1, 0), Grant: "k-1"})
		if err != nil {
			t.Fatal(err)
		}
		data, tail = append(data, line...), next
	}
	write := func(b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(data)
	if err := verifyAudit(a, dir, tail.Sum); err != nil ||
		!strings.Contains(out.String(), "entries 1 to 3 in 1 files are whole") ||
		!strings.Contains(out.String(), tail.Sum) {
		t.Errorf("%v: %s", err, out.String())
	}
	write(bytes.Replace(data, []byte("k-1"), []byte("k-2"), 1))
	if err := verifyAudit(a, dir, ""); !errors.Is(err, sharing.ErrInvalid) ||
		!strings.Contains(err.Error(), path+": line 1:") {
		t.Errorf("a changed line: %v", err)
	}
	write(data[:bytes.LastIndexByte(data[:len(data)-1], '\n')+1])
	if err := verifyAudit(a, dir, ""); err != nil {
		t.Errorf("a line less, and nothing that tells: %v", err)
	}
	if err := verifyAudit(a, dir, tail.Sum); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("a line less: %v", err)
	}
}
