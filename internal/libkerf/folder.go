// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// PreloadName is the file that a program's namespace mounts over /etc/ld.so.preload.
	PreloadName = "preload"
	// inner is the region's folder in a grant's folder.
	inner = "region"
)

// Folder describes the folder of a grant. It is a separate tmpfs, of fixed size and inode count: a program that fills
// it or truncates a file harms this grant alone. Only its owner and root can enter it. Containers get the region's
// folder in it, which programs of every user can enter.
type Folder struct {
	// Owner is the user that may enter the folder: the caller of "kerf run", root for a container.
	Owner uint32
	// Preload is the path by which programs load the library, see PreloadPath.
	Preload string
	// Devices are the GPUs of the region, with their caps.
	Devices []Device
}

// Make mounts the folder of a grant and creates the region in it; an earlier one there is removed. Errors are those of
// Create and of mountns.Volume.
func (f Folder) Make(dir string) (*UsageFile, error) {
	if err := RemoveFolder(dir); err != nil {
		return nil, err
	}
	r, err := f.make(dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create folder %q: %w", dir, err), RemoveFolder(dir))
	}
	return r, nil
}

func (f Folder) make(dir string) (*UsageFile, error) {
	if err := makeDir(filepath.Dir(dir), 0o711); err != nil { // others learn no name in it
		return nil, err
	}
	if err := makeDir(dir, 0o700); err != nil {
		return nil, err
	}
	if err := f.volume().Mount(dir); err != nil {
		return nil, err
	}
	region := filepath.Join(dir, inner)
	if err := makeDir(region, 0o755); err != nil {
		return nil, err
	}
	// The library itself cannot lie here, where no program may be executed: it is mounted over an empty file.
	for name, text := range map[string]string{LibraryFile: "", PreloadName: f.Preload + "\n"} {
		if err := makeFile(filepath.Join(region, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	if err := MakePreload(region); err != nil {
		return nil, err
	}
	return Create(region, f.Devices)
}

// volume has exactly the room that the region needs, so that no program can add to it.
func (f Folder) volume() mountns.Volume {
	// The root, the region's folder, and in it limits, usage, preload, the library's place, and the names of
	// PreloadPath.
	v := mountns.Volume{Inodes: 6 + len(platforms64()) + 2*len(platforms32()), Owner: f.Owner}
	sizes := []uintptr{unsafe.Sizeof(limitsPage{}), unsafe.Sizeof(usagePage{}), uintptr(len(f.Preload) + 1)}
	for range platforms32() {
		sizes = append(sizes, uintptr(len(emptyLibrary())))
	}
	for _, d := range f.Devices {
		if d.GPU.IsInstance() {
			v.Inodes++
			sizes = append(sizes, uintptr(len(d.GPU.String())))
		}
	}
	page := uintptr(os.Getpagesize())
	for _, n := range sizes {
		v.Size += sharing.Bytes((n + page - 1) / page * page)
	}
	return v
}

// makeDir creates a folder, unless it exists, with this mode whatever the umask is.
func makeDir(dir string, mode fs.FileMode) error {
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("%w (%w)", err, sharing.ErrUnavailable)
	}
	if err := os.Chmod(dir, mode); err != nil {
		return fmt.Errorf("%w (%w)", err, sharing.ErrUnavailable)
	}
	return nil
}

// makeFile creates a file with this mode whatever the umask is. sharing.ErrConflict: it exists.
func makeFile(path string, text []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w (%w)", err, sharing.ErrConflict)
	}
	if err != nil {
		return fmt.Errorf("%w (%w)", err, sharing.ErrUnavailable)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return fmt.Errorf("%w (%w)", err, sharing.ErrUnavailable)
	}
	return nil
}

// ShowFolder makes a grant's folder visible to a process in another mount namespace, see mountns.Show.
func ShowFolder(dir string, pid int) error { return mountns.Show(dir, pid) } //nolint:wrapcheck // it says what it did

// UsageFileDir is the region's folder in a grant's folder. In a folder that Kerf made before it used volumes that is
// the folder itself.
func UsageFileDir(dir string) string {
	if info, err := os.Lstat(filepath.Join(dir, LimitsFile)); err == nil && info.Mode().IsRegular() {
		return dir
	}
	return filepath.Join(dir, inner)
}

// RemoveFolder removes a grant's folder with all that is in it. Programs keep what they have mapped. One that does not
// exist is no error. Errors wrap sharing.ErrUnavailable or sharing.ErrDenied.
func RemoveFolder(dir string) error {
	err := mountns.Unmount(dir)
	if err == nil {
		if err = os.RemoveAll(dir); err != nil {
			err = fmt.Errorf("%w (%w)", err, sharing.ErrUnavailable)
		}
	}
	if err != nil {
		return fmt.Errorf("remove folder %q: %w", dir, err)
	}
	return nil
}

// RemoveFolders removes the folders of grants below a parent, except those with a name that keep reports. A parent that
// does not exist is no error. Errors are those of RemoveFolder, joined.
func RemoveFolders(parent string, keep func(name string) bool) error {
	entries, err := os.ReadDir(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list folders of grants: %w (%w)", err, sharing.ErrUnavailable)
	}
	var errs []error
	for _, e := range entries {
		if !keep(e.Name()) {
			errs = append(errs, RemoveFolder(filepath.Join(parent, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// TryFolder reports why no folder can be made below a parent; nil if one can be.
func TryFolder(parent string) error {
	if err := makeDir(parent, 0o711); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(parent, "probe-")
	if err != nil {
		return fmt.Errorf("%w (%w)", err, sharing.ErrUnavailable)
	}
	return errors.Join(mountns.Volume{Size: sharing.MiB, Inodes: 1}.Mount(dir), RemoveFolder(dir))
}
