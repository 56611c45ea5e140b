// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command askown asks for a pod's own numbers, from inside one of its containers, and prints the answer.
//
//	askown SOCKET
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "askown:", err)
		os.Exit(1)
	}
}

func run(socket string) error {
	c, err := net.DialTimeout("unix", socket, 10*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.0\r\nHost: kerf\r\n\r\n"); err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, c) // it ends with the answer
	return err
}
