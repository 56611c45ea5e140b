// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/hooks/oci"
	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/sharing"
)

// maxSpec bounds the config.json of a bundle.
const maxSpec = 16 << 20

// patchBundle puts the grant into a bundle's config.json, and returns the file's path.
func patchBundle(bundle string, resp *nodeapi.ReserveResponse) (string, error) {
	file := filepath.Join(bundle, "config.json")
	info, err := os.Lstat(file)
	if err != nil {
		return "", fmt.Errorf("bundle %q: %w", bundle, err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxSpec {
		return "", sharing.Invalid(file, "", "name a bundle as runc spec makes it",
			"is no regular file of at most %d MiB", maxSpec>>20)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("bundle %q: %w", bundle, err)
	}
	grant, err := containerGrant(resp)
	if err != nil {
		return "", err
	}
	patched, err := patchText(file, text, grant)
	if err != nil {
		return "", err
	}
	if err := atomicfile.Write(file, patched, info.Mode().Perm()); err != nil {
		return "", fmt.Errorf("bundle %q: %w", bundle, err)
	}
	return file, nil
}

// patchText is the text of an OCI spec with the grant in it. Fields that are newer than this program stay as they are.
// Such fields in a list are an error, because the patch could not match them to entries.
func patchText(file string, text []byte, grant oci.Grant) ([]byte, error) {
	var spec specs.Spec
	var original, known, patched any
	if err := decode(text, &spec); err != nil {
		return nil, sharing.Invalid(file, "", "name a bundle as runc spec makes it", "is no OCI spec: %v", err)
	}
	if err := decode(text, &original); err != nil {
		return nil, err
	}
	if err := through(spec, &known); err != nil {
		return nil, err
	}
	if err := oci.Patch(&spec, grant); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := through(spec, &patched); err != nil {
		return nil, err
	}
	if err := restore(original, known, patched, nil); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "\t")
	if err := e.Encode(patched); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return out.Bytes(), nil
}

// decode reads one JSON document and nothing after it, with numbers as they are written.
func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if d.More() {
		return fmt.Errorf("text after the JSON object: %w", sharing.ErrInvalid)
	}
	return nil
}

// through is a value as generic JSON.
func through(v any, into *any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode spec: %w", err)
	}
	return decode(text, into)
}

// restore copies into patched what original has and known lacks, which is original as this program understands it.
// Errors have at, the path.
func restore(original, known, patched any, at []string) error {
	switch o := original.(type) {
	case map[string]any:
		k, _ := known.(map[string]any)
		p, isMap := patched.(map[string]any)
		for name, value := range o {
			path := slices.Concat(at, []string{name})
			if have, ok := k[name]; ok {
				if isMap && p[name] != nil {
					if err := restore(value, have, p[name], path); err != nil {
						return err
					}
				}
				continue
			}
			switch {
			case blank(value): // what says nothing may be left out
			case knownAs(k, name): // the decoder took it for that one
			case !isMap || inList(path):
				return sharing.Invalid(strings.Join(path, "."), "", "take it out, or use a newer kerf",
					"is a field that this kerf does not know")
			case p[name] == nil:
				p[name] = value
			}
		}
	case []any:
		k, _ := known.([]any)
		for i, value := range o {
			if i >= len(k) {
				break // the same document through one type has the same lists
			}
			if err := restore(value, k[i], map[string]any{}, append(slices.Clip(at), "[]")); err != nil {
				return err
			}
		}
	}
	return nil
}

// knownAs tells whether a field goes by this name in other letter case, to which the decoder pays no regard.
func knownAs(fields map[string]any, name string) bool {
	for field := range fields {
		if strings.EqualFold(field, name) {
			return true
		}
	}
	return false
}

func inList(path []string) bool { return slices.Contains(path, "[]") }

// blank tells a value that means the same as none: null, false, 0, or nothing in it.
func blank(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case json.Number:
		f, err := v.Float64()
		return err == nil && f == 0
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return reflect.ValueOf(v).IsZero()
}

// engineHook is a hook file as Podman and CRI-O read it, version 1.0.0.
type engineHook struct {
	Version string          `json:"version"`
	Hook    specs.Hook      `json:"hook"`
	When    map[string]bool `json:"when"`
	Stages  []string        `json:"stages"`
}

// writeHook writes the grant's hooks into a directory, one file each, and returns the first one's path.
func writeHook(dir string, resp *nodeapi.ReserveResponse) (string, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", sharing.Invalid("DIR", dir, "make an empty directory for this one container", "is no directory")
	}
	grant, err := containerGrant(resp)
	if err != nil {
		return "", err
	}
	// The engine adds the GPUs itself, by their CDI names.
	grant.Edits = oci.Grant{}.Edits
	bare := &specs.Spec{Process: &specs.Process{Args: []string{"true"}}, Linux: &specs.Linux{}}
	if err := oci.Patch(bare, grant); err != nil {
		return "", err
	}
	first := ""
	for i, h := range bare.Hooks.CreateRuntime {
		text, err := json.MarshalIndent(engineHook{Version: "1.0.0", Hook: h, When: map[string]bool{"always": true},
			Stages: []string{"createRuntime"}}, "", "\t")
		if err != nil {
			return "", fmt.Errorf("encode hook: %w", err)
		}
		file := filepath.Join(dir, fmt.Sprintf("kerf-%s-%d.json", grant.ID, i))
		if err := atomicfile.Write(file, append(text, '\n'), 0o644); err != nil {
			return "", fmt.Errorf("write hook: %w", err)
		}
		if i == 0 {
			first = file
		}
	}
	return first, nil
}
