// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image is one image of the release.
type image struct {
	name, user string
	// entry is the program that starts; programs are all.
	entry    string
	programs []string
	// libraries are the files of the C library, for programs that load the driver's library.
	libraries []string
}

const (
	programFolder = "usr/local/bin"
	loader        = "ld-linux-x86-64.so.2"
)

// images are those of a release. Their programs and libraries are for linux/amd64.
func images() []image {
	return []image{
		{name: "agent", entry: "kerf-agent",
			programs: []string{"kerf-agent", "kerf-monitor", "kerf-console", "kerf", "kerf-hook", "libkerf.so"},
			libraries: []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1",
				"libresolv.so.2", loader}},
		{name: "scheduler", entry: "kerf-scheduler", programs: []string{"kerf-scheduler"}, user: "65532:65532"},
	}
}

func (r *release) writeImages() error {
	for _, i := range images() {
		files, err := r.filesOf(i)
		if err != nil {
			return err
		}
		archive, err := r.ociArchive(i, files)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.name, err)
		}
		if err := r.add(fmt.Sprintf("kerf-%s-%s-linux-amd64.oci.tar", i.name, r.version), archive); err != nil {
			return err
		}
	}
	return nil
}

// filesOf reads the files of an image. Each library that a file needs must be in the image.
func (r *release) filesOf(i image) ([]entry, error) {
	var all []entry
	for _, name := range i.programs {
		e, err := program(filepath.Join(r.programs, name), programFolder+"/"+name)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	for _, name := range i.libraries {
		to := "lib/x86_64-linux-gnu/" + name
		if name == loader {
			to = "lib64/" + name
		}
		e, err := program(filepath.Join(r.libraries, name), to)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	for _, e := range all {
		if err := complete(e, i.libraries); err != nil {
			return nil, fmt.Errorf("image %s: %w", i.name, err)
		}
	}
	if i.user != "" {
		all = append(all, entry{"etc/passwd", 0o644, []byte("nonroot:x:65532:65532::/:/sbin/nologin\n")})
	}
	return all, nil
}

// complete checks that a program for amd64 needs no library but those of its image.
func complete(e entry, libraries []string) error {
	f, err := elf.NewFile(bytes.NewReader(e.content))
	if err != nil {
		return fmt.Errorf("read %s: %w", e.path, err)
	}
	defer func() { _ = f.Close() }()
	if f.Machine != elf.EM_X86_64 {
		return fmt.Errorf("%s is for %s, not for amd64", e.path, f.Machine)
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("read libraries of %s: %w", e.path, err)
	}
	for _, name := range needed {
		if !slices.Contains(libraries, name) {
			return fmt.Errorf("%s needs %s, which the image lacks", e.path, name)
		}
	}
	return nil
}

// ociArchive is a tar of an OCI image layout with one image.
func (r *release) ociArchive(i image, files []entry) ([]byte, error) {
	built, err := r.build(i, files)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "kerf-release-")
	if err != nil {
		return nil, fmt.Errorf("create folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return nil, fmt.Errorf("write layout: %w", err)
	}
	err = path.AppendImage(built, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"}),
		layout.WithAnnotations(map[string]string{
			"org.opencontainers.image.ref.name": r.registry + "/" + i.name + ":" + r.version}))
	if err != nil {
		return nil, fmt.Errorf("write layout: %w", err)
	}
	entries, err := tree(folder, "")
	if err != nil {
		return nil, err
	}
	return tarOf(entries, r.time, false)
}

// build makes an image of one layer.
func (r *release) build(i image, files []entry) (v1.Image, error) {
	text, err := tarOf(files, r.time, true)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("make layer: %w", err)
	}
	built, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON), mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
		History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "make release"}})
	if err != nil {
		return nil, fmt.Errorf("add layer: %w", err)
	}
	config, err := built.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", "amd64", v1.Time{Time: r.time}
	config.Config = v1.Config{
		User: i.user, Entrypoint: []string{"/" + programFolder + "/" + i.entry},
		Env: []string{"PATH=/usr/local/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.source": repository, "org.opencontainers.image.version": r.version,
			"org.opencontainers.image.revision": r.commit, "org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	built, err = mutate.ConfigFile(built, config)
	if err != nil {
		return nil, fmt.Errorf("set config: %w", err)
	}
	return built, nil
}
