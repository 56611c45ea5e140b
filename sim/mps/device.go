// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/wire"
)

const askTime = 10 * time.Second

// device is a GPU of the simulated driver, and this process's hold on it.
type device struct {
	uuid string
	pci  uint64 // domain, bus and device as one number
	// file is the device file itself: /proc/PID/fd shows that this process uses the GPU, as with a real driver.
	file int
	conn *net.UnixConn
}

// devices opens all GPUs in dev, in PCI order. The caller closes them.
func devices(dev string) ([]device, error) {
	paths, err := filepath.Glob(filepath.Join(dev, "nvidia[0-9]*"))
	if err != nil {
		return nil, fmt.Errorf("look for GPUs: %w", err)
	}
	var all []device
	for _, p := range paths {
		d, err := open(p)
		if errors.Is(err, os.ErrPermission) || err != nil && len(paths) > 1 {
			continue // one that this process may not open is not visible to it
		}
		if err != nil {
			return nil, fmt.Errorf("open GPU: %w", err)
		}
		info, err := d.ask(wire.OpGPUInfo)
		if err != nil || len(info.Vals) < 12 {
			d.close()
			continue
		}
		d.uuid, _, _ = strings.Cut(info.Text, "\n")
		d.pci = info.Vals[9]<<32 | info.Vals[10]<<16 | info.Vals[11]
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b device) int { return cmp.Compare(a.pci, b.pci) })
	return all, nil
}

// open opens a device file and connects to its GPU.
func open(path string) (device, error) {
	file, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return device{}, fmt.Errorf("open device file %s: %w", path, err)
	}
	conn, err := connect(path)
	if err != nil {
		_ = unix.Close(file) // nothing was written
		return device{}, err
	}
	return device{file: file, conn: conn}, nil
}

func connect(path string) (*net.UnixConn, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	return conn, nil
}

// faulted reports whether a server takes no clients because of a fault. Any GPU of dev has the answer.
func faulted(dev string, pid int) bool {
	paths, err := filepath.Glob(filepath.Join(dev, "nvidia[0-9]*"))
	if err != nil {
		return false
	}
	for _, p := range paths {
		conn, err := connect(p)
		if err != nil {
			continue
		}
		_, err = device{conn: conn}.ask(wire.OpMPSState, uint64(max(0, pid))) // #nosec G115 -- not negative
		_ = conn.Close()                                                      // nothing is left to be sent
		if !errors.Is(err, wire.Lost) {
			return errors.Is(err, wire.NotReady)
		}
	}
	return false
}

// ask sends one request; an answer that is no success is an error.
func (d device) ask(op wire.Op, args ...uint64) (wire.Response, error) {
	req := wire.Request{Op: op}
	copy(req.Args[:], args)
	packet, err := req.Encode()
	if err != nil {
		return wire.Response{}, err
	}
	buf := make([]byte, wire.MaxResponse)
	n := 0
	err = d.conn.SetDeadline(time.Now().Add(askTime))
	if err == nil {
		_, err = d.conn.Write(packet)
	}
	if err == nil {
		n, err = d.conn.Read(buf)
	}
	if err != nil {
		return wire.Response{}, fmt.Errorf("ask GPU: %w", err)
	}
	resp, err := wire.DecodeResponse(buf[:n])
	if err == nil && resp.Status != wire.OK {
		err = fmt.Errorf("ask GPU: %w: %w", resp.Status, sharing.ErrUnavailable)
	}
	return resp, err
}

func (d device) close() {
	_ = d.conn.Close()     // nothing is left to be sent
	_ = unix.Close(d.file) // nothing was written
}
