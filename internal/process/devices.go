// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/sharing"
)

// DeviceFile identifies a device file in all mount namespaces. A character device is its device number, because each
// container has its own node of it. Any other file (the simulator's sockets) is its file system and inode. The zero
// value is no file.
type DeviceFile struct {
	kind fileKind
	dev  uint64 // the device number of a character device, else of the file system
	ino  uint64 // 0 for a character device
}

type fileKind uint8

const (
	noFile fileKind = iota
	charDevice
	otherFile
)

// DeviceFileAt identifies the file at a path and follows links. It does not open the file. Errors: sharing.ErrNotFound,
// sharing.ErrDenied, sharing.ErrUnavailable.
func DeviceFileAt(path string) (DeviceFile, error) {
	d, err := identify(path)
	if err != nil {
		return DeviceFile{}, fmt.Errorf("identify device file %q: %w (%w)", path, err, classifyFile(err))
	}
	return d, nil
}

// identify asks no file server for attributes: the server of a user-space file system may belong to a tenant.
func identify(path string) (DeviceFile, error) {
	var s unix.Statx_t
	var err error = unix.EINTR
	for errors.Is(err, unix.EINTR) {
		err = unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO, &s)
	}
	if err != nil {
		return DeviceFile{}, err //nolint:wrapcheck // the caller names the file
	}
	if s.Mode&unix.S_IFMT == unix.S_IFCHR {
		return DeviceFile{kind: charDevice, dev: unix.Mkdev(s.Rdev_major, s.Rdev_minor)}, nil
	}
	return DeviceFile{kind: otherFile, dev: unix.Mkdev(s.Dev_major, s.Dev_minor), ino: s.Ino}, nil
}

// OpenDevices reports which of files the process pid has open, in the order of files. It finds descriptors of any of
// its threads, and mappings, which keep a file open after its descriptor is closed. A zombie has none. A descriptor
// that is on its way through a socket is not seen.
//
// An error means that the answer is unknown: sharing.ErrNotFound (no such process) or sharing.ErrUnavailable (for
// example, the caller is out of descriptors). The error sharing.ErrDenied means that the caller has no CAP_SYS_PTRACE,
// or no CAP_DAC_READ_SEARCH for another user's process. The answer is about the process that has the pid now. Hold a
// Handle across the call to know which process that is.
func OpenDevices(pid int, files []DeviceFile) ([]bool, error) {
	s := deviceScan{pid: strconv.Itoa(pid), files: files, open: make([]bool, len(files))}
	if err := s.run(); err != nil {
		kind := classifyFile(err)
		if errors.Is(kind, sharing.ErrDenied) {
			kind = fmt.Errorf("give this program's container the capabilities SYS_PTRACE and DAC_READ_SEARCH: %w", kind)
		}
		return nil, fmt.Errorf("find device files of process %d: %w (%w)", pid, err, kind)
	}
	return s.open, nil
}

// deviceScan looks through one process until it has found all files.
type deviceScan struct {
	pid   string
	files []DeviceFile
	open  []bool
}

func (s *deviceScan) run() error {
	if err := s.descriptors("/proc/" + s.pid); err != nil || s.done() {
		return err
	}
	threads, err := os.ReadDir("/proc/" + s.pid + "/task")
	if err != nil {
		return err //nolint:wrapcheck // the caller names the process
	}
	for _, t := range threads {
		if t.Name() == s.pid || sameDescriptors(s.pid, t.Name()) {
			continue
		}
		if err := s.descriptors("/proc/" + s.pid + "/task/" + t.Name()); err != nil && !vanished(err) {
			return err
		}
	}
	if s.done() {
		return nil
	}
	return s.mappings()
}

func (s *deviceScan) done() bool { return !slices.Contains(s.open, false) }

// descriptors looks at each descriptor of a process or thread.
func (s *deviceScan) descriptors(of string) error {
	links, err := os.ReadDir(of + "/fd")
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	for _, l := range links {
		if err := s.look(of + "/fd/" + l.Name()); err != nil || s.done() {
			return err
		}
	}
	return nil
}

// mappings looks at each file that the process has mapped, once.
func (s *deviceScan) mappings() error {
	text, err := os.ReadFile("/proc/" + s.pid + "/maps")
	if vanished(err) {
		return nil // a zombie: it had a folder of descriptors just now
	}
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		// address range, permissions, offset, device, inode, path
		fields := strings.Fields(line)
		if len(fields) < 5 || fields[4] == "0" || seen[fields[3]+" "+fields[4]] {
			continue
		}
		seen[fields[3]+" "+fields[4]] = true
		if err := s.look("/proc/" + s.pid + "/map_files/" + fields[0]); err != nil || s.done() {
			return err
		}
	}
	return nil
}

// look marks the file behind a link. A link that has vanished is closed.
func (s *deviceScan) look(link string) error {
	file, err := identify(link)
	if err != nil {
		if vanished(err) {
			return nil
		}
		return err
	}
	for i, f := range s.files {
		s.open[i] = s.open[i] || f == file
	}
	return nil
}

// sameDescriptors reports whether a thread certainly has the same table of descriptors as its process.
func sameDescriptors(pid, tid string) bool {
	p, err1 := strconv.Atoi(pid)
	t, err2 := strconv.Atoi(tid)
	if err1 != nil || err2 != nil {
		return false
	}
	same, err := kcmp(p, t, kcmpFiles)
	return err == nil && same
}

func vanished(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) }

func classifyFile(err error) error {
	switch {
	case vanished(err), errors.Is(err, unix.ENOTDIR):
		return sharing.ErrNotFound
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return sharing.ErrDenied
	}
	return sharing.ErrUnavailable
}
