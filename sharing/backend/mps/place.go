// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/internal/mps"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// hidden is for root alone. A reachable folder lets processes of any user through to names that they know, and a
	// listed one also lets them list it.
	hidden, reachable, listed = 0o700, 0o711, 0o755
	// forAll is what /dev/shm has.
	forAll = fs.ModeSticky | 0o777
	// volume is where a volume is mounted, in the folder of a domain: what daemon and clients write lies there.
	volume = "v"
	// ownSize and ownInodes bound what the processes of one user can bring about in their daemon's folder: lines of
	// logs.
	ownSize, ownInodes = 16 * sharing.MiB, 4096
)

// place is where a daemon has its files: DIR/<gpu>/<name>. The name is random, so that no other user can compute it.
//
//   - A domain of one user: the folder is a volume without room that belongs to the user, with mode 0700. The daemon's
//     volume is mounted in it, where root alone can add files.
//   - A domain of containers: root alone can enter. Containers get what they need as mounts, and the daemon and its
//     servers see the volume in place of the folder.
//   - Any other: a user who knows the name can enter.
type place struct {
	dir       string
	contained bool
	// user owns the folder, if alone.
	user  uint32
	alone bool
	// plain is true for a folder of before version 2, whose name can be computed. It stays while processes use it.
	plain bool
}

// newPlace is one with a new name.
func (o Options) newPlace(k Key) place {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return o.placeAt(k, hex.EncodeToString(b[:]))
}

func (o Options) placeAt(k Key, name string) place {
	p := place{dir: filepath.Join(o.gpuPath(k.GPU), name), contained: k.Contained}
	if o.Owner != nil && !k.Contained {
		p.user, p.alone = o.Owner(k.Domain)
	}
	return p
}

// shared is the folder of what daemon and clients share, as this process sees it.
func (p place) shared() string {
	if p.contained || p.alone && !p.plain {
		return filepath.Join(p.dir, volume)
	}
	return p.dir
}

// seen is the same folder as the daemon and its clients see it.
func (p place) seen() string {
	if p.contained && !p.plain {
		return p.dir
	}
	return p.shared()
}

func (p place) pipe() string { return filepath.Join(p.seen(), "pipe") }

// shm is the folder that is /dev/shm for the daemon and its clients; empty: the node's own is.
func (p place) shm() string {
	if !p.contained {
		return ""
	}
	return filepath.Join(p.shared(), "shm")
}

// daemon is the daemon of a key in this place.
func (p place) daemon(program mps.Program, gpu sharing.GPUID) mps.Daemon {
	d := mps.Daemon{Program: program, Pipe: p.pipe(), Logs: filepath.Join(p.seen(), "log"), GPU: gpu, Shm: p.shm()}
	if p.contained && !p.plain {
		d.Volume = p.shared()
	}
	return d
}

// make creates the folders. Those that exist stay, since containers may have mounted them.
func (p place) make() error {
	dirs := []dir{{filepath.Dir(filepath.Dir(p.dir)), reachable}, {filepath.Dir(p.dir), reachable}, {p.dir, hidden}}
	own := []dir{{filepath.Join(p.shared(), "pipe"), listed}, {filepath.Join(p.shared(), "log"), listed}}
	if p.plain || !p.contained && !p.alone {
		dirs[2].mode = reachable
	}
	if err := makeAll(dirs); err != nil {
		return err
	}
	var err error
	switch {
	case p.contained:
		own = append(own, dir{p.shm(), forAll})
		err = p.mountContained()
	case p.alone && !p.plain:
		err = p.mountOwn()
	}
	if err != nil {
		return err
	}
	return makeAll(own)
}

// mountContained mounts the volume of a domain of containers.
func (p place) mountContained() error {
	if err := makeAll([]dir{{p.shared(), reachable}}); err != nil {
		return err
	}
	return mps.MountVolume(p.shared())
}

// mountOwn mounts the folder of one user, and in it the daemon's volume.
func (p place) mountOwn() error {
	outer := mountns.Volume{Size: sharing.MiB, Inodes: 2, Owner: p.user} // its root, and the place of the other
	if err := mountOnce(outer, p.dir); err != nil {
		return err
	}
	if err := makeAll([]dir{{p.shared(), listed}}); err != nil {
		return err
	}
	return mountOnce(mountns.Volume{Size: ownSize, Inodes: ownInodes, Mode: listed}, p.shared())
}

func mountOnce(v mountns.Volume, dir string) error {
	mounted, err := mountns.Mounted(dir)
	if err != nil || mounted {
		return err
	}
	return v.Mount(dir)
}

// remove takes the folder away with what is mounted there, and then the record of it.
func (p place) remove() error {
	if err := removeAll(p.dir); err != nil {
		return err
	}
	return removeAll(p.record())
}

func removeAll(dir string) error {
	if err := mps.UnmountVolume(filepath.Join(dir, volume)); err != nil {
		return err
	}
	if err := mountns.Unmount(dir); err != nil {
		return fmt.Errorf("remove a folder of MPS: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove %q: %w (%w)", dir, err, sharing.ErrUnavailable)
	}
	return nil
}

// dir is one to be made.
type dir struct {
	path string
	mode fs.FileMode
}

// makeAll creates folders, unless they exist, with these modes whatever the umask is.
func makeAll(dirs []dir) error {
	for _, d := range dirs {
		err := os.Mkdir(d.path, d.mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = os.Chmod(d.path, d.mode)
		}
		if err != nil {
			return fmt.Errorf("make a folder for MPS: %w (%w)", err, sharing.ErrUnavailable)
		}
	}
	return nil
}
