// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command protogen writes the Go code of protobuf files. It compiles them with protocompile, so that no protoc has to
// be installed. It passes the result to plugins over the protocol that protoc itself uses.
//
//	protogen -root DIR -out DIR -plugin PATH [-plugin PATH]... FILE.proto...
//
// Files are named relative to -root; what the plugins make of them goes to the same relative place under
// -out. It writes nothing unless every plugin succeeded.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// limit bounds the whole run, plugins included: they are local programs that work for milliseconds.
const limit = time.Minute

// list is a flag that may be given more than once.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(s string) error {
	*l = append(*l, s)
	return nil
}

func main() {
	var g generator
	var plugins list
	flag.StringVar(&g.root, "root", ".", "folder that FILE.proto arguments are relative to")
	flag.StringVar(&g.out, "out", ".", "folder under which the generated files are written")
	flag.Var(&plugins, "plugin", "path of a protoc plugin; may be repeated")
	flag.Parse()
	g.plugins = plugins

	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := g.run(ctx, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}
