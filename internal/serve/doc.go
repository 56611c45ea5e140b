// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package serve is the server side of every listener of a program: TCP, Unix sockets, HTTP and gRPC.
//
// A Share is the part of the program's connections, requests and answer bytes that one kind of listener has. Package
// limit decides what a Share takes. This package asks it for each connection and request.
//
// It promises:
//   - a listener never takes what belongs to another Share, so a flood of one socket leaves the others their connections;
//   - all Shares of a Plan together leave a number of file descriptors to the rest of the program;
//   - a peer that sends slowly, reads slowly or sends nothing keeps its connection for a bounded time;
//   - a stop lets answers in progress end, but waits a bounded time for them.
//
// It does not decide what is answered, and to whom. It does not bound the CPU time of one request.
package serve
