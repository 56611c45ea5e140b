// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command release packs the built programs as a release: images, chart, command line archives, krew manifest, SBOM,
// provenance and checksums. The same programs and flags give the same bytes. It builds and uploads nothing.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	var r release
	var epoch int64
	flag.StringVar(&r.root, "root", "../..", "folder of the repository")
	flag.StringVar(&r.programs, "programs", "", "folder of the built programs")
	flag.StringVar(&r.libraries, "libraries", "/lib/x86_64-linux-gnu", "folder of the C library for the agent's image")
	flag.StringVar(&r.librariesARM64, "libraries-arm64", "../../.cache/cross/libc",
		"folder of the C library for the agent's image on arm64")
	flag.StringVar(&r.out, "out", "", "folder to write")
	flag.StringVar(&r.version, "version", "", "version, such as v0.1.0")
	flag.StringVar(&r.registry, "registry", "", "registry and folder of the images, such as registry.example/kerf")
	flag.StringVar(&r.commit, "commit", "", "Git commit of the source")
	flag.Int64Var(&epoch, "epoch", 0, "time of all files, in seconds since 1970")
	flag.Parse()
	r.time = time.Unix(epoch, 0).UTC()
	if err := r.write(); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}
