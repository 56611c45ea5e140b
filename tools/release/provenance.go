// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

type digest map[string]string

type resource struct {
	Name   string `json:"name,omitempty"`
	URI    string `json:"uri,omitempty"`
	Digest digest `json:"digest"`
}

// statement is an in-toto statement with a SLSA provenance.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     provenance `json:"predicate"`
}

type provenance struct {
	BuildDefinition definition `json:"buildDefinition"`
	RunDetails      run        `json:"runDetails"`
}

type definition struct {
	BuildType            string            `json:"buildType"`
	ExternalParameters   map[string]string `json:"externalParameters"`
	ResolvedDependencies []resource        `json:"resolvedDependencies"`
}

type run struct {
	Builder struct {
		ID string `json:"id"`
	} `json:"builder"`
}

// writeProvenance writes how the files before it were made. The statement has no signature.
func (r *release) writeProvenance() error {
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	for _, a := range r.written {
		s.Subject = append(s.Subject, resource{Name: a.name, Digest: digest{"sha256": a.sha256}})
	}
	s.Predicate.BuildDefinition = definition{
		BuildType:          repository + "/blob/main/Makefile#release",
		ExternalParameters: map[string]string{"VERSION": r.version, "REGISTRY": r.registry},
		ResolvedDependencies: []resource{{URI: "git+" + repository + "@refs/tags/" + r.version,
			Digest: digest{"gitCommit": r.commit}}},
	}
	s.Predicate.RunDetails.Builder.ID = repository + "/blob/main/.github/workflows/release.yml"
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode provenance: %w", err)
	}
	return r.add("kerf-"+r.version+".intoto.json", append(text, '\n'))
}

// writeSums writes the checksums in the form of sha256sum.
func (r *release) writeSums() error {
	var b strings.Builder
	for _, a := range slices.SortedFunc(slices.Values(r.written), func(a, b artifact) int {
		return strings.Compare(a.name, b.name)
	}) {
		fmt.Fprintf(&b, "%s  %s\n", a.sha256, a.name)
	}
	if err := os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("write checksums: %w", err)
	}
	return nil
}
