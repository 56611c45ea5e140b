// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/pluginpb"
)

// parameter places a generated file next to its source, whatever go_package says.
const parameter = "paths=source_relative"

// generator holds what is the same for all files of one run.
type generator struct {
	root    string
	out     string
	plugins []string
}

// run compiles files and writes what the plugins make of them.
func (g *generator) run(ctx context.Context, files []string) error {
	if len(files) == 0 {
		return errors.New("no .proto file given")
	}
	if len(g.plugins) == 0 {
		return errors.New("no -plugin given")
	}
	request, err := g.compile(ctx, files)
	if err != nil {
		return err
	}
	var made []*pluginpb.CodeGeneratorResponse_File
	for _, plugin := range g.plugins {
		response, err := call(ctx, plugin, request)
		if err != nil {
			return err
		}
		made = append(made, response.GetFile()...)
	}
	return g.write(made)
}

// compile parses and links files. Comments are kept, because the plugins copy them into the Go code.
func (g *generator) compile(ctx context.Context, files []string) (*pluginpb.CodeGeneratorRequest, error) {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{g.root}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	linked, err := compiler.Compile(ctx, files...)
	if err != nil {
		return nil, fmt.Errorf("compile: %w", err)
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: files,
		Parameter:      new(parameter),
	}
	seen := map[string]bool{}
	for _, file := range linked {
		appendInOrder(request, file, seen)
	}
	return request, nil
}

// appendInOrder adds file after everything that it imports: plugins link in the order given.
func appendInOrder(request *pluginpb.CodeGeneratorRequest, file linker.File, seen map[string]bool) {
	if seen[file.Path()] {
		return
	}
	seen[file.Path()] = true
	imports := file.Imports()
	for i := range imports.Len() {
		if dep := file.FindImportByPath(imports.Get(i).Path()); dep != nil {
			appendInOrder(request, dep, seen)
		}
	}
	request.ProtoFile = append(request.ProtoFile, protoutil.ProtoFromFileDescriptor(file))
}

// call runs one plugin on the request: bytes in, bytes out, messages for people on its stderr.
func call(ctx context.Context, plugin string, request *pluginpb.CodeGeneratorRequest) (*pluginpb.CodeGeneratorResponse,
	error) {
	input, err := proto.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, plugin)
	cmd.Stdin = bytes.NewReader(input)
	cmd.Stdout = &output
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("plugin %q: %w", plugin, err)
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(output.Bytes(), &response); err != nil {
		return nil, fmt.Errorf("plugin %q: decode response: %w", plugin, err)
	}
	if response.Error != nil {
		return nil, fmt.Errorf("plugin %q: %s", plugin, response.GetError())
	}
	return &response, nil
}

// write puts the files under g.out. A plugin's name for a file must stay below it.
func (g *generator) write(files []*pluginpb.CodeGeneratorResponse_File) error {
	for _, file := range files {
		name := filepath.FromSlash(file.GetName())
		if !filepath.IsLocal(name) || file.InsertionPoint != nil {
			return fmt.Errorf("generated file %q: not a plain file below %q", file.GetName(), g.out)
		}
		path := filepath.Join(g.out, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("generated file %q: %w", file.GetName(), err)
		}
		if err := os.WriteFile(path, []byte(file.GetContent()), 0o644); err != nil {
			return fmt.Errorf("generated file %q: %w", file.GetName(), err)
		}
	}
	return nil
}
