// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// helperAsk, before a socket's path, makes the helper ask there over HTTP and print the answer.
const helperAsk = "ask"

// ask prints what is answered.
func ask(path string) int {
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
	r, err := c.Get("http://kerf/")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer r.Body.Close()
	fmt.Println(r.StatusCode)
	if _, err := io.Copy(os.Stdout, r.Body); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// helperBoot, before a file, a program and its arguments, makes the helper become that program, which finds the file's
// content as the node's boot id.
const helperBoot = "boot"

// boot returns only with an error.
func boot(file string, argv []string) error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep mounts to itself: %w", err)
	}
	if err := unix.Mount(file, "/proc/sys/kernel/random/boot_id", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("another boot id: %w", err)
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, helperEnv+"=") })
	return unix.Exec(argv[0], argv, env)
}

// helper is what the test binary does when it plays a tenant's program: it tries to connect to each of the
// device sockets named, and prints a line for each: "open" or "shut", and the file's name.
func helper(sockets []string) int {
	if len(sockets) == 2 && sockets[0] == helperAsk {
		return ask(sockets[1])
	}
	if len(sockets) > 2 && sockets[0] == helperBoot {
		fmt.Fprintln(os.Stderr, boot(sockets[1], sockets[2:]))
		return 1
	}
	if len(sockets) > 3 && sockets[0] == helperOCIHook {
		fmt.Fprintln(os.Stderr, ociHook(sockets[1], sockets[2], sockets[3:]))
		return 1
	}
	if len(sockets) == 3 && sockets[0] == helperActivate {
		return activate(sockets[1], sockets[2])
	}
	if len(sockets) == 4 && sockets[0] == helperFlood {
		if err := runFlood(sockets[1], sockets[2], sockets[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
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
	return writeProgram(to, in)
}

// writeProgram makes a file that is to be executed. Other tests start processes meanwhile, and one that is between fork
// and exec would hold the file open for writing still, so that it could not be executed ("text file busy"): none is
// started before it is closed.
func writeProgram(to string, text io.Reader) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, text); err != nil {
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
