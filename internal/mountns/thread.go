// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mountns

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnThread calls do on a thread that ends with the call, so that no other goroutine inherits the namespaces that do
// enters. It returns the error of do.
func OnThread(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// /proc/self describes the first thread, and that thread never ends: take another one.
			defer runtime.UnlockOSThread()
			done <- OnThread(do)
			return
		}
		done <- do() // a thread that is still locked ends with its goroutine
	}()
	return <-done
}
