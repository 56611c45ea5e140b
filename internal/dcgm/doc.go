// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package dcgm is the one door to NVIDIA's Data Center GPU Manager: a host engine, within this process or another's, that
// watches fields of all GPUs and MIG instances, and their newest values.
//
// It promises that a library which is missing, or lacks a function that is called, is an error before anything of it
// runs; that a value which DCGM has not (its blanks, and values with an error) is absent and never zero; and that
// profiling fields are watched only where DCGM says that it can.
//
// It does not promise to survive the library: a fault in it ends the process. That is why one program alone imports
// this package, which nothing depends on. Calls may hang as the driver may; the caller has a goroutine for them.
//
// A process has one host engine, because go-dcgm keeps it in a variable of its own. It binds to one copy of the library for
// its life. The program itself needs no function of the library, so it starts without DCGM and with LD_BIND_NOW set.
package dcgm
