// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// entry is a file of an archive, with its path in the archive.
type entry struct {
	path    string
	mode    int64
	content []byte
}

// program reads a file that an archive has as a program.
func program(file, path string) (entry, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return entry{}, fmt.Errorf("read program: %w", err)
	}
	return entry{path, 0o755, content}, nil
}

// tree reads the files below a folder. Each path begins with prefix.
func tree(folder, prefix string) ([]entry, error) {
	var all []entry
	err := filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(folder, file)
		all = append(all, entry{path.Join(prefix, filepath.ToSlash(below)), 0o644, content})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read folder %s: %w", folder, err)
	}
	return all, nil
}

func sorted(entries []entry) []entry {
	return slices.SortedFunc(slices.Values(entries), func(a, b entry) int { return strings.Compare(a.path, b.path) })
}

// tarOf is a tar of the files, sorted, with their folders if wanted.
func tarOf(entries []entry, at time.Time, folders bool) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{".": true}
	for _, e := range sorted(entries) {
		if folders {
			if err := writeFolders(w, made, path.Dir(e.path), at); err != nil {
				return nil, err
			}
		}
		h := &tar.Header{Name: e.path, Mode: e.mode, Size: int64(len(e.content)), ModTime: at, Typeflag: tar.TypeReg,
			Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("write tar entry %s: %w", e.path, err)
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, fmt.Errorf("write tar entry %s: %w", e.path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write tar: %w", err)
	}
	return b.Bytes(), nil
}

func writeFolders(w *tar.Writer, made map[string]bool, folder string, at time.Time) error {
	if made[folder] {
		return nil
	}
	made[folder] = true
	if err := writeFolders(w, made, path.Dir(folder), at); err != nil {
		return err
	}
	h := &tar.Header{Name: folder + "/", Mode: 0o755, ModTime: at, Typeflag: tar.TypeDir, Format: tar.FormatPAX}
	if err := w.WriteHeader(h); err != nil {
		return fmt.Errorf("write tar folder %s: %w", folder, err)
	}
	return nil
}

func tarGz(entries []entry, at time.Time) ([]byte, error) {
	text, err := tarOf(entries, at, false)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b) // no name and no time in its header
	if _, err := w.Write(text); err != nil {
		return nil, fmt.Errorf("compress tar: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress tar: %w", err)
	}
	return b.Bytes(), nil
}

func zipOf(entries []entry, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range sorted(entries) {
		h := &zip.FileHeader{Name: e.path, Method: zip.Deflate, Modified: at}
		h.SetMode(fs.FileMode(e.mode))
		f, err := w.CreateHeader(h)
		if err != nil {
			return nil, fmt.Errorf("write zip entry %s: %w", e.path, err)
		}
		if _, err := f.Write(e.content); err != nil {
			return nil, fmt.Errorf("write zip entry %s: %w", e.path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write zip: %w", err)
	}
	return b.Bytes(), nil
}
