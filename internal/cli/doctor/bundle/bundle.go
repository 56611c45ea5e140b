// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package bundle writes the support archive of kerf doctor --bundle: files that show how Kerf runs, without secrets.
//
// It promises that no Secret, environment, annotation or token is read into the archive on purpose, and that text which
// looks like one is removed. It does not promise to find a secret in a form that nothing names as one.
package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// mostBytes is the largest file of an archive: the end of a longer one is left out.
const mostBytes = 8 << 20

// Archive collects files. Make one with New.
type Archive struct {
	now    time.Time
	redact *redactor
	files  map[string][]byte
	left   []string
}

// New makes an empty archive of that time.
func New(now time.Time) *Archive {
	return &Archive{now: now, redact: newRedactor(), files: map[string][]byte{}}
}

// Text adds a file without its secrets. With an error, the archive says that it is missing, and why.
func (a *Archive) Text(name string, text []byte, err error) {
	if err != nil {
		a.left = append(a.left, string(a.redact.text([]byte(name+": "+err.Error()))))
		return
	}
	if len(text) > mostBytes {
		a.left = append(a.left, fmt.Sprintf("%s: the first %d bytes", name, len(text)-mostBytes))
		text = text[len(text)-mostBytes:]
	}
	a.files[name] = a.redact.text(text)
}

// JSON adds an object without its secrets.
func (a *Archive) JSON(name string, v any, err error) {
	var text []byte
	if err == nil {
		text, err = a.redact.json(v)
	}
	a.Text(name, append(text, '\n'), err)
}

// Left says what is missing, and why.
func (a *Archive) Left() []string { return a.left }

// Names are the names of the files, sorted.
func (a *Archive) Names() []string {
	names := make([]string, 0, len(a.files))
	for name := range a.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// File is the text of a file; nil if there is none.
func (a *Archive) File(name string) []byte { return a.files[name] }

// Write writes a new file, which only its owner may read. Errors: sharing.ErrConflict if it exists.
func (a *Archive) Write(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("write %s: the file exists; name another one: %w", path, sharing.ErrConflict)
	case err != nil:
		return fmt.Errorf("write support archive: %w", err)
	}
	text, err := a.encoded()
	if err == nil {
		_, err = f.Write(text)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func (a *Archive) encoded() ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	t := tar.NewWriter(z)
	a.files["missing.txt"] = []byte(strings.Join(append(a.left, ""), "\n"))
	for _, name := range a.Names() {
		text := a.files[name]
		err := t.WriteHeader(&tar.Header{Name: "kerf-support/" + name, Mode: 0o600, Size: int64(len(text)),
			ModTime: a.now, Format: tar.FormatPAX})
		if err == nil {
			_, err = t.Write(text)
		}
		if err != nil {
			return nil, err
		}
	}
	err := errors.Join(t.Close(), z.Close())
	return out.Bytes(), err
}
