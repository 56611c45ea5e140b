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
	"github.com/kerf-gpu/kerf/internal/mps"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	recordName, modeName = "daemon.json", "mode.json"
	recordVersion        = 1
	// reachable lets processes of any user through to what they know the name of, listed also lets them look.
	reachable, listed, private = 0o711, 0o755, 0o600
	// forAll is what /dev/shm has.
	forAll = fs.ModeSticky | 0o777
)

// daemonRecord is what is written down of a daemon, beside its pipe directory and never in it, where its clients could
// change it.
type daemonRecord struct {
	Version int           `json:"version"`
	BootID  string        `json:"bootID"`
	GPU     sharing.GPUID `json:"gpu"`
	Domain  string        `json:"domain"`
	// Contained is Key's.
	Contained bool   `json:"contained,omitempty"`
	PID       int    `json:"pid"` // 0: it is being started
	Start     uint64 `json:"start"`
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

// volume is where a volume is mounted, in the directory of a domain of containers. It holds all that clients write, and
// never the record.
const volume = "v"

// shared is where the directories lie that the daemon has.
func (o Options) shared(k Key) string {
	if k.Contained {
		return filepath.Join(o.path(k), volume)
	}
	return o.path(k)
}

// Pipe is the pipe directory of a key, whether there is a daemon or not. Its path is the same for all clients.
func (o Options) Pipe(k Key) string { return filepath.Join(o.shared(k), "pipe") }

// Shm is the folder that is /dev/shm for the daemon of a key and its clients; empty: the node's own is.
func (o Options) Shm(k Key) string {
	if !k.Contained {
		return ""
	}
	return filepath.Join(o.shared(k), "shm")
}

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

// dir is one to be made.
type dir struct {
	path string
	mode fs.FileMode
}

// makeDirs makes a daemon's directories; those that are there, which containers may have mounted, stay. The modes hold
// whatever the umask is.
func (o Options) makeDirs(k Key) error {
	dirs := []dir{{o.Dir, reachable}, {o.gpuPath(k.GPU), reachable}, {o.path(k), reachable}}
	own := []dir{{o.Pipe(k), listed}, {o.logs(k), listed}}
	if !k.Contained {
		return makeAll(append(dirs, own...))
	}
	if err := makeAll(append(dirs, dir{o.shared(k), reachable})); err != nil {
		return err
	}
	if err := mps.MountVolume(o.shared(k)); err != nil {
		return err
	}
	return makeAll(append(own, dir{o.Shm(k), forAll}))
}

func makeAll(dirs []dir) error {
	for _, d := range dirs {
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

func (o Options) logs(k Key) string { return filepath.Join(o.shared(k), "log") }
