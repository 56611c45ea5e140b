// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/cli/command"
)

// fallbackPath is what execvp searches when there is no PATH.
const fallbackPath = "/bin:/usr/bin"

// lookup finds the file that a shell would execute for name: a name with a slash is a path, any other is
// searched for in the directories of path. The error is a *command.Failure with the status of a shell.
func lookup(name, path string) (string, error) {
	notFound := command.Exit(exitNotFound, fmt.Errorf("%q: command not found", name))
	if name == "" {
		return "", notFound
	}
	if strings.Contains(name, "/") {
		if err := executable(name); err != nil {
			return "", execFailure(name, err)
		}
		return name, nil
	}
	if path == "" {
		path = fallbackPath
	}
	var refused error
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			dir = "."
		}
		file := filepath.Join(dir, name)
		if dir == "." {
			file = "./" + name
		}
		switch err := executable(file); {
		case err == nil:
			return file, nil
		case errors.Is(err, unix.EACCES) && refused == nil && command.Exists(file):
			refused = execFailure(file, err)
		}
	}
	if refused != nil {
		return "", refused
	}
	return "", notFound
}

// executable tells whether the effective user may execute the regular file at path.
func executable(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return unix.EISDIR
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return unix.EACCES
	}
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
}

// execFailure is why a file was not executed, with the status of a shell.
func execFailure(name string, err error) error {
	code := exitNotExec
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		code = exitNotFound
	}
	return command.Exit(code, fmt.Errorf("%q: %w", name, err))
}
