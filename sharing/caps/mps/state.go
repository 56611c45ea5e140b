// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	recordName, modeName = "daemon.json", "mode.json"
	recordVersion        = 1
	// reachable lets processes of any user through to what they know the name of, listed also lets them look.
	reachable, listed, private = 0o711, 0o755, 0o600
)

// daemonRecord is what is written down of a daemon, beside its pipe directory and never in it, where its clients could
// change it.
type daemonRecord struct {
	Version int           `json:"version"`
	BootID  string        `json:"bootID"`
	GPU     sharing.GPUID `json:"gpu"`
	Domain  string        `json:"domain"`
	PID     int           `json:"pid"` // 0: it is being started
	Start   uint64        `json:"start"`
}

// modeRecord is what is written down of a GPU before its mode is changed.
type modeRecord struct {
	Version int           `json:"version"`
	BootID  string        `json:"bootID"`
	GPU     sharing.GPUID `json:"gpu"`
	Before  string        `json:"before"`
}

// gpuDir is short, because sockets' addresses are: the first 48 bits of the UUID. Two GPUs of a node that share them
// are told apart by the record.
func gpuDir(gpu sharing.GPUID) string {
	name := strings.TrimPrefix(string(gpu), "GPU-")
	return name[:min(len(name), 13)]
}

// domainDir is a digest: a domain's name is of any length and characters.
func domainDir(domain string) string {
	sum := sha256.Sum256([]byte(domain))
	return hex.EncodeToString(sum[:5])
}

func (o Options) gpuPath(gpu sharing.GPUID) string { return filepath.Join(o.Dir, gpuDir(gpu)) }
func (o Options) path(k Key) string                { return filepath.Join(o.gpuPath(k.GPU), domainDir(k.Domain)) }

// Pipe is the pipe directory of a key, whether there is a daemon or not.
func (o Options) Pipe(k Key) string { return filepath.Join(o.path(k), "pipe") }

func save(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	return atomicfile.Write(path, append(data, '\n'), private)
}

// load reads a record; sharing.ErrNotFound when there is none, sharing.ErrInvalid when it is none.
func load(path string, v any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read %q: %w", path, sharing.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("read %q: %w (%w)", path, err, sharing.ErrUnavailable)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("read %q: %w (%w)", path, err, sharing.ErrInvalid)
	}
	return nil
}

// makeDirs makes a daemon's directories; those that are there, which containers may have mounted, stay. The modes hold
// whatever the umask is.
func (o Options) makeDirs(k Key) error {
	for _, d := range []struct {
		path string
		mode fs.FileMode
	}{
		{o.Dir, reachable}, {o.gpuPath(k.GPU), reachable}, {o.path(k), reachable}, {o.Pipe(k), listed}, {o.logs(k), listed},
	} {
		err := os.Mkdir(d.path, d.mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = os.Chmod(d.path, d.mode)
		}
		if err != nil {
			return fmt.Errorf("make a directory for MPS: %w (%w)", err, sharing.ErrUnavailable)
		}
	}
	return nil
}

func (o Options) logs(k Key) string { return filepath.Join(o.path(k), "log") }
