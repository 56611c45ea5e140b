// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// noAssertion is the word of SPDX for an unknown value.
const noAssertion = "NOASSERTION"

// writeSBOM writes the programs of the release, the modules that each has, and the libraries of the images.
func (r *release) writeSBOM() error {
	doc := &v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      "kerf-" + r.version,
		DocumentNamespace: repository + "/releases/download/" + r.version + "/kerf-" + r.version + ".spdx.json",
		CreationInfo: &v2_3.CreationInfo{Created: r.time.Format("2006-01-02T15:04:05Z"),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "kerf-release"}}},
	}
	known := map[string]bool{}
	for _, t := range r.targets() {
		for _, i := range images() {
			if err := r.describeImage(doc, known, t, i); err != nil {
				return err
			}
		}
	}
	for _, platform := range platforms() {
		system, arch, _ := strings.Cut(platform, "/")
		file := filepath.Join(r.programs, "cli", system+"-"+arch, programOn(system))
		if err := r.describe(doc, known, file, "kubectl-kerf-"+system+"-"+arch); err != nil {
			return err
		}
	}
	var b bytes.Buffer
	if err := spdxjson.Write(doc, &b, spdxjson.Indent("  ")); err != nil {
		return fmt.Errorf("encode SBOM: %w", err)
	}
	return r.add("kerf-"+r.version+".spdx.json", b.Bytes())
}

// describeImage adds the programs and libraries of an image for a platform. Names have the platform, but for amd64.
func (r *release) describeImage(doc *v2_3.Document, known map[string]bool, t target, i image) error {
	ending := ""
	if t.arch != "amd64" {
		ending = "-" + t.arch
	}
	for _, name := range i.programs {
		if err := r.describe(doc, known, filepath.Join(t.programs, name), name+ending); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.librariesOf(i))) {
		e, err := program(filepath.Join(t.libraries, name), name)
		if err != nil {
			return err
		}
		list(doc, known, "DOCUMENT", "DESCRIBES", component{name: name + ending, checksum: sum(e.content)})
	}
	return nil
}

// describe adds a program and its modules. A program without Go's build information has none.
func (r *release) describe(doc *v2_3.Document, known map[string]bool, file, name string) error {
	e, err := program(file, name)
	if err != nil {
		return err
	}
	of := list(doc, known, "DOCUMENT", "DESCRIBES", component{name: name, version: r.version, checksum: sum(e.content)})
	if strings.HasSuffix(file, ".so") {
		return nil
	}
	info, err := buildinfo.Read(bytes.NewReader(e.content))
	if err != nil {
		return fmt.Errorf("read build information of %s: %w", name, err)
	}
	list(doc, known, of, "CONTAINS", component{name: "stdlib", version: info.GoVersion,
		url: "pkg:golang/stdlib@" + strings.TrimPrefix(info.GoVersion, "go")})
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if strings.HasPrefix(m.Path, ".") {
			continue // a module of this repository
		}
		list(doc, known, of, "CONTAINS", component{name: m.Path, version: m.Version,
			url: "pkg:golang/" + m.Path + "@" + m.Version})
	}
	return nil
}

// component is a package of the SBOM.
type component struct{ name, version, checksum, url string }

var notInIDs = regexp.MustCompile("[^A-Za-z0-9.-]+")

// list adds a package once, and its relation to another. It returns the package's ID.
func list(doc *v2_3.Document, known map[string]bool, from, relation string, c component) string {
	id := "Package-" + notInIDs.ReplaceAllString(strings.TrimSuffix(c.name+"-"+c.version, "-"), "-")
	doc.Relationships = append(doc.Relationships, &v2_3.Relationship{RefA: common.MakeDocElementID("", from),
		RefB: common.MakeDocElementID("", id), Relationship: relation})
	if known[id] {
		return id
	}
	known[id] = true
	p := &v2_3.Package{PackageName: c.name, PackageSPDXIdentifier: common.ElementID(id), PackageVersion: c.version,
		PackageDownloadLocation: noAssertion, PackageLicenseConcluded: noAssertion, PackageLicenseDeclared: noAssertion,
		PackageCopyrightText: noAssertion}
	if c.checksum != "" {
		p.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: c.checksum}}
	}
	if c.url != "" {
		p.PackageExternalReferences = []*v2_3.PackageExternalReference{{Category: common.CategoryPackageManager,
			RefType: "purl", Locator: c.url}}
	}
	doc.Packages = append(doc.Packages, p)
	slices.SortFunc(doc.Packages, func(a, b *v2_3.Package) int {
		return cmp.Compare(a.PackageSPDXIdentifier, b.PackageSPDXIdentifier)
	})
	return id
}
