// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// repository is where the source and the releases are.
const repository = "https://github.com/kerf-gpu/kerf"

// release is what a release is made from.
type release struct {
	// root, programs, libraries and out are folders.
	root, programs, libraries, librariesARM64, out string
	version, registry, commit                      string
	// time is that of each file.
	time time.Time
	// written has the artifacts in the order of writing.
	written []artifact
}

// artifact is a file of the release.
type artifact struct{ name, sha256 string }

var (
	versionForm  = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)
	registryForm = regexp.MustCompile(`^[a-z0-9][a-z0-9.:-]*(/[a-z0-9._-]+)*$`)
)

func (r *release) check() error {
	var errs []error
	if !versionForm.MatchString(r.version) {
		errs = append(errs, fmt.Errorf("version %q: write VERSION=v1.2.3 or v1.2.3-rc.1", r.version))
	}
	if !registryForm.MatchString(r.registry) {
		errs = append(errs, fmt.Errorf("registry %q: write REGISTRY=registry.example/kerf", r.registry))
	}
	if r.programs == "" || r.out == "" {
		errs = append(errs, errors.New("give -programs and -out"))
	}
	return errors.Join(errs...)
}

// write writes the release into an empty folder.
func (r *release) write() error {
	if err := r.check(); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return fmt.Errorf("clear %s: %w", r.out, err)
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return fmt.Errorf("create %s: %w", r.out, err)
	}
	for _, step := range []func() error{r.writeImages, r.writeChart, r.writeCLI, r.writeKrew, r.writeSBOM,
		r.writeProvenance, r.writeSums} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// number is the version without the letter.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

// add writes an artifact.
func (r *release) add(name string, content []byte) error {
	if err := os.WriteFile(filepath.Join(r.out, name), content, 0o644); err != nil {
		return fmt.Errorf("write artifact: %w", err)
	}
	r.written = append(r.written, artifact{name, sum(content)})
	return nil
}

func (r *release) sumOf(name string) (string, error) {
	for _, a := range r.written {
		if a.name == name {
			return a.sha256, nil
		}
	}
	return "", fmt.Errorf("artifact %s: not written", name)
}

func sum(content []byte) string {
	s := sha256.Sum256(content)
	return hex.EncodeToString(s[:])
}
