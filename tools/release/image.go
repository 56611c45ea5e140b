// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

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

const programFolder = "usr/local/bin"

// target is a platform of the images.
type target struct {
	arch    string
	machine elf.Machine
	// folder has the C library in an image, and loader is the path of its loader there.
	folder, loader string
	// programs and libraries are the folders with the programs and the C library for it.
	programs, libraries string
}

// targets are the platforms of the images. The programs for amd64 are directly in the folder of programs.
func (r *release) targets() []target {
	return []target{
		{arch: "amd64", machine: elf.EM_X86_64, folder: "lib/x86_64-linux-gnu", loader: "lib64/ld-linux-x86-64.so.2",
			programs: r.programs, libraries: r.libraries},
		{arch: "arm64", machine: elf.EM_AARCH64, folder: "lib/aarch64-linux-gnu", loader: "lib/ld-linux-aarch64.so.1",
			programs: filepath.Join(r.programs, "arm64"), libraries: r.librariesARM64},
	}
}

// librariesOf are the libraries of an image with the loader, by their paths in the image.
func (t target) librariesOf(i image) map[string]string {
	all := map[string]string{}
	for _, name := range i.libraries {
		all[name] = t.folder + "/" + name
	}
	if len(all) > 0 {
		all[path.Base(t.loader)] = t.loader
	}
	return all
}

// images are those of a release.
func images() []image {
	return []image{
		{name: "agent", entry: "kerf-agent",
			programs: []string{"kerf-agent", "kerf-monitor", "kerf-console", "kerf", "kerf-hook", "libkerf.so"},
			libraries: []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1",
				"libresolv.so.2"}},
		{name: "scheduler", entry: "kerf-scheduler", programs: []string{"kerf-scheduler"}, user: "65532:65532"},
	}
}

func (r *release) writeImages() error {
	for _, i := range images() {
		archive, err := r.ociArchive(i)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.name, err)
		}
		if err := r.add(fmt.Sprintf("kerf-%s-%s.oci.tar", i.name, r.version), archive); err != nil {
			return err
		}
	}
	return nil
}

// filesOf reads the files of an image for a platform. Each library that a file needs must be in the image.
func filesOf(t target, i image) ([]entry, error) {
	var all []entry
	for _, name := range i.programs {
		e, err := program(filepath.Join(t.programs, name), programFolder+"/"+name)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	libraries := t.librariesOf(i)
	for name, to := range libraries {
		e, err := program(filepath.Join(t.libraries, name), to)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	for _, e := range all {
		if err := t.complete(e, libraries); err != nil {
			return nil, err
		}
	}
	if i.user != "" {
		all = append(all, entry{"etc/passwd", 0o644, []byte("nonroot:x:65532:65532::/:/sbin/nologin\n")})
	}
	return all, nil
}

// complete checks that a program is for the platform, and needs no library but those of its image.
func (t target) complete(e entry, libraries map[string]string) error {
	f, err := elf.NewFile(bytes.NewReader(e.content))
	if err != nil {
		return fmt.Errorf("read %s: %w", e.path, err)
	}
	defer func() { _ = f.Close() }()
	if f.Machine != t.machine {
		return fmt.Errorf("%s is for %s, not for %s", e.path, f.Machine, t.arch)
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("read libraries of %s: %w", e.path, err)
	}
	for _, name := range needed {
		if libraries[name] == "" {
			return fmt.Errorf("%s needs %s, which the image lacks", e.path, name)
		}
	}
	return nil
}

// ociArchive is a tar of an OCI image layout with one index, which has the image for each platform.
func (r *release) ociArchive(i image) ([]byte, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, t := range r.targets() {
		files, err := filesOf(t, i)
		if err != nil {
			return nil, err
		}
		built, err := r.build(t, i, files)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: built,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: t.arch}}})
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
	err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{
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
func (r *release) build(t target, i image, files []entry) (v1.Image, error) {
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
	config.OS, config.Architecture, config.Created = "linux", t.arch, v1.Time{Time: r.time}
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
