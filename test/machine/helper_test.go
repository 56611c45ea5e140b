// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// helper is what the test binary does when it plays a tenant's program: it tries to connect to each of the
// device sockets named, and prints a line for each: "open" or "shut", and the file's name.
func helper(sockets []string) int {
	for _, path := range sockets {
		how := "open"
		if err := connect(path); err != nil {
			how = "shut"
		}
		fmt.Println(how, filepath.Base(path))
	}
	return 0
}

func connect(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path})
}

// copyProgram puts a program where every user can execute it: the checkout may lie in a private directory.
func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

// sendPacket sends one packet to a device socket and goes away.
func sendPacket(path string, data []byte) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return err
	}
	_, err = unix.Write(fd, data)
	return err
}
