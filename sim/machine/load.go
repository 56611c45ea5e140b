// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
)

//go:embed machines/*.yaml
var files embed.FS

const (
	modelsFile = "models.yaml"
	maxFile    = 1 << 20
)

// Names returns the names of the built-in machines, sorted.
func Names() []string {
	var names []string
	entries, err := files.ReadDir("machines")
	if err != nil {
		return nil // impossible: the folder is part of the program
	}
	for _, e := range entries {
		if e.Name() != modelsFile {
			names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
		}
	}
	return names
}

// Load returns the built-in machine of that name. If ref has a slash or ends in .yaml or .yml, it returns the one that
// the file describes. Errors: sharing.ErrInvalid with all errors of the file, sharing.ErrNotFound,
// sharing.ErrUnavailable (the file cannot be read).
func Load(ref string) (Machine, error) {
	ext := path.Ext(ref)
	if strings.Contains(ref, "/") || ext == ".yaml" || ext == ".yml" {
		data, err := readFile(ref)
		if err != nil {
			return Machine{}, err
		}
		return parse(ref, data)
	}
	data, err := files.ReadFile("machines/" + ref + ".yaml")
	if err != nil || ref+".yaml" == modelsFile {
		return Machine{}, sharing.Invalid("--machine", ref,
			"write one of "+strings.Join(Names(), ", ")+", or the path of a machine file", "is not a built-in machine")
	}
	return parse(ref, data)
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		kind := sharing.ErrUnavailable
		if errors.Is(err, os.ErrNotExist) {
			kind = sharing.ErrNotFound
		}
		return nil, fmt.Errorf("read machine file: %w (%w)", err, kind)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read machine file: %w (%w)", err, sharing.ErrUnavailable)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("machine file %q is larger than %d bytes: %w", name, maxFile, sharing.ErrInvalid)
	}
	return data, nil
}

// parse reads a machine file together with the built-in models; name is for errors.
func parse(name string, data []byte) (Machine, error) {
	builtin, err := files.ReadFile("machines/" + modelsFile)
	if err != nil {
		return Machine{}, fmt.Errorf("built-in models: %w", err)
	}
	return Parse(name, data, builtin)
}
