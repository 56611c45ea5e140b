// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"syscall"
)

func syscallBlocking(f *os.File) error { return syscall.SetNonblock(int(f.Fd()), false) }

// exchange asks, and waits for the answer, as often as one GPU is asked.
func exchange(fd int) error {
	b := make([]byte, size)
	for range each {
		if _, err := syscall.Write(fd, b); err != nil {
			return fmt.Errorf("ask: %w", err)
		}
		if n, err := syscall.Read(fd, b); err != nil || n != size {
			return fmt.Errorf("answer of %d bytes: %w", n, err)
		}
	}
	return nil
}
