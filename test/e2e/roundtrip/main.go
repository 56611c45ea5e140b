// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Command roundtrip measures what it takes on this machine, now, to ask another process that has nothing to do: as
// often as an arm asks the simulated driver, and over the same kind of socket. What an arm takes beyond it is Kerf's.
//
//	roundtrip serve SOCKET          answer
//	roundtrip ask SOCKET TIME       ask four times a second for so long; one line in nanoseconds for each
//
// Only the benchmark in this folder depends on it.
package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

const (
	lanes = 8                      // GPUs of the simulated node, asked in parallel
	each  = 2                      // a limit is set and read back
	pause = 250 * time.Millisecond // so rarely that it is no load itself
	size  = 64                     // bytes of a question, and of an answer
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "roundtrip:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case len(args) == 3 && args[0] == "ask":
		d, err := time.ParseDuration(args[2])
		if err != nil {
			return err
		}
		return ask(args[1], d)
	}
	return errors.New("usage: roundtrip serve SOCKET | roundtrip ask SOCKET TIME")
}

// serve answers until it is killed.
func serve(socket string) error {
	l, err := net.Listen("unixpacket", socket)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			b := make([]byte, size)
			for {
				if _, err := c.Read(b); err != nil {
					return
				}
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		}()
	}
}

func ask(socket string, d time.Duration) error {
	files := make([]*os.File, lanes)
	for i := range files {
		c, err := net.Dial("unixpacket", socket)
		if err != nil {
			return err
		}
		// A blocking descriptor: the thread waits in the kernel, as in a driver's library.
		if files[i], err = c.(*net.UnixConn).File(); err != nil {
			return err
		}
		if err := errors.Join(c.Close(), syscallBlocking(files[i])); err != nil {
			return err
		}
	}
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(pause) {
		began := time.Now()
		errs := make([]error, lanes)
		var group sync.WaitGroup
		for i, f := range files {
			group.Go(func() { errs[i] = exchange(int(f.Fd())) })
		}
		group.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		fmt.Println(time.Since(began).Nanoseconds())
	}
	return nil
}
