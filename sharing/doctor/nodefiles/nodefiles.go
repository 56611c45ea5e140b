// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodefiles examines the files of a node whose root folder is mounted in a container. It needs Linux.
package nodefiles

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/internal/mounttable"
	"github.com/kerf-gpu/kerf/sharing/doctor/preset"
)

const (
	// dialTimeout bounds the connection to one socket.
	dialTimeout = 2 * time.Second
	// mostLinks is how many links one path may have, as in Linux.
	mostLinks = 40
	// releaseBytes is how much of os-release is read.
	releaseBytes = 64 << 10
)

// Examine reports what a node has at these paths. root is where the node's root folder is mounted: "/" or a folder
// such as /host. Links lead to files of the node. A path that cannot be examined has the problem in its entry. Examine
// connects to each socket and leaves again. ctx bounds the connections.
func Examine(ctx context.Context, root string, paths []string) preset.Files {
	return examine(ctx, root, mounttable.Own, paths)
}

func examine(ctx context.Context, root, ownMounts string, paths []string) preset.Files {
	n := node{root: filepath.Clean(root)}
	n.mounts, n.unknown = readMounts(n.root, ownMounts)
	out := preset.Files{OSImage: n.osImage(), Paths: map[string]preset.Path{}}
	if n.unknown != nil {
		out.MountProblem = n.unknown.Error()
	}
	for _, p := range paths {
		out.Paths[p] = n.examine(ctx, p)
	}
	return out
}

// node is the root folder of a node and its mount table. unknown says why there is no table.
type node struct {
	root    string
	mounts  []*mounttable.Mount
	unknown error
}

func (n node) examine(ctx context.Context, path string) preset.Path {
	at, info, err := n.resolve(path)
	if err != nil {
		return preset.Path{Problem: n.onNode(err)}
	}
	var out preset.Path
	if n.unknown == nil {
		out.Mount = flagsOf(n.mounts, at)
	}
	if info == nil {
		return out
	}
	switch {
	case info.IsDir():
		out.Kind = preset.Folder
	case info.Mode().IsRegular():
		out.Kind = preset.File
	case info.Mode().Type() == fs.ModeSocket:
		out.Kind = preset.Socket
		out.Listens, err = listens(ctx, n.inside(at))
		if err != nil {
			out.Problem = n.onNode(err)
		}
	default:
		out.Kind = preset.Other
	}
	return out
}

// inside is a path of the node, as this process reaches it.
func (n node) inside(path string) string { return filepath.Join(n.root, path) }

// onNode is an error with paths of the node.
func (n node) onNode(err error) string {
	if n.root == "/" {
		return err.Error()
	}
	return strings.ReplaceAll(err.Error(), n.root+"/", "/")
}

// resolve follows the links of a path as the node does. info is nil if the path does not exist; path is then the one
// that a new file would have.
func (n node) resolve(path string) (at string, info fs.FileInfo, err error) {
	rest, links := strings.Split(path, "/"), 0
	at = "/"
	if info, err = os.Lstat(n.inside(at)); err != nil {
		return "", nil, fmt.Errorf("examine folder /: %w", err)
	}
	for len(rest) > 0 {
		next := filepath.Join(at, rest[0]) // ".." of the root is the root
		rest = rest[1:]
		info, err = os.Lstat(n.inside(next))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return filepath.Join(append([]string{next}, rest...)...), nil, nil
		case err != nil:
			return "", nil, fmt.Errorf("examine path %s: %w", next, err)
		case info.Mode().Type() != fs.ModeSymlink:
			at = next
			continue
		}
		if links++; links > mostLinks {
			return "", nil, fmt.Errorf("examine path %s: more than %d links", path, mostLinks)
		}
		target, err := os.Readlink(n.inside(next))
		if err != nil {
			return "", nil, fmt.Errorf("read link %s: %w", next, err)
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, info, nil
}

// listens reports whether a program accepts connections at a socket.
func listens(ctx context.Context, socket string) (bool, error) {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "unix", socket)
	switch {
	case err == nil:
		_ = conn.Close() // nothing was sent
		return true, nil
	case refused(err):
		return false, nil
	}
	return false, fmt.Errorf("connect to socket: %w", err)
}

// osImage is PRETTY_NAME of the node's os-release; empty if there is none.
func (n node) osImage() string {
	for _, path := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		at, info, err := n.resolve(path)
		if err != nil || info == nil || !info.Mode().IsRegular() {
			continue
		}
		f, err := os.Open(n.inside(at))
		if err != nil {
			continue
		}
		name := prettyName(io.LimitReader(f, releaseBytes))
		_ = f.Close()
		if name != "" {
			return name
		}
	}
	return ""
}

// prettyName reads PRETTY_NAME of an os-release.
func prettyName(text io.Reader) string {
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		value, ok := strings.CutPrefix(lines.Text(), "PRETTY_NAME=")
		if !ok {
			continue
		}
		if plain, err := strconv.Unquote(value); err == nil {
			return plain
		}
		return strings.Trim(value, `'"`)
	}
	return ""
}
