// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libkerf

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/sharing"
)

// owner4711 owns the folders of these tests, and stranger4712 is another user.
const owner4711, stranger4712 = 4711, 4712

// folder makes a grant's folder that every user could reach but for its own mode.
func folder(t *testing.T) (dir string) {
	t.Helper()
	if !mountns.Allowed() {
		t.Skip("mounting needs CAP_SYS_ADMIN")
	}
	base, err := os.MkdirTemp("/tmp", "kf") // above t.TempDir() there is a folder that only root can enter
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(base, "client", "k-1")
	t.Cleanup(func() {
		if err := errors.Join(RemoveFolder(dir), os.RemoveAll(base)); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := Folder{Owner: owner4711, Preload: PreloadPath(dir), Devices: []Device{{gpu0, 100}, {gpu1, 7}}}.Make(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return dir
}

// as runs a shell script as a user without capabilities and returns what it prints.
func as(t *testing.T, user uint32, script string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "sh", append([]string{"-c", script, "sh"}, args...)...)
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	out, _ := c.CombinedOutput()
	return string(out)
}

func TestFolder(t *testing.T) {
	dir := folder(t)
	region := filepath.Join(dir, "region")
	for path, want := range map[string]string{
		filepath.Dir(dir): "drwx--x--x 0", dir: "drwx------ 4711", region: "drwxr-xr-x 0",
		region + "/limits": "-rw-r--r-- 0",
		region + "/usage":  "-rw-rw-rw- 0", region + "/preload": "-rw-r--r-- 0", region + "/libkerf.so": "-rw-r--r-- 0",
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		got := info.Mode().String() + " " + strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Uid))
		if got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if got := UsageFileDir(dir); got != region {
		t.Errorf("region in %q", got)
	}
	if text, err := os.ReadFile(region + "/preload"); err != nil || string(text) != PreloadPath(dir)+"\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// Another user can neither read nor write what is in the folder, nor learn its name.
func TestFolderKeepsOtherUsersOut(t *testing.T) {
	dir := folder(t)
	for _, script := range []string{
		`ls "$1"`, `ls "$(dirname "$1")"`, `cat "$1/region/limits"`, `: >> "$1/region/usage"`,
		`truncate -s 0 "$1/region/usage"`,
		`fallocate -l 1M "$1/region/usage"`, `touch "$1/region/x"`, `rm -f "$1/region/usage"`, `mv "$1/region" "$1/x"`,
	} {
		if out := as(t, stranger4712, script+` && echo done`, dir); !strings.Contains(out, "denied") ||
			strings.Contains(out, "done") {
			t.Errorf("%s: %q", script, out)
		}
	}
	if out := as(t, owner4711, `: >> "$1/region/usage" && echo done`, dir); out != "done\n" {
		t.Errorf("its owner cannot write the counters: %q", out)
	}
}

// Its owner can fill it with nothing, and cannot replace the caps.
func TestFolderIsFull(t *testing.T) {
	dir := folder(t)
	for script, want := range map[string]string{
		`fallocate -l 1M "$1/region/usage"`: "No space", `echo > "$1/x"`: "No space", `mkdir "$1/x"`: "No space",
		`ln -s / "$1/x"`: "No space",
		`truncate -s 1G "$1/region/usage"; dd if=/dev/zero of="$1/region/usage" bs=64k seek=16 count=1 conv=notrunc`: "No space",
		`echo > "$1/region/limits"`: "denied", `rm -f "$1/region/limits"`: "denied",
		`mv "$1/region/usage" "$1/x"`: "denied",
	} {
		if out := as(t, owner4711, script, dir); !strings.Contains(out, want) {
			t.Errorf("%s: %q, want %q", script, out, want)
		}
	}
	if out := as(t, owner4711, `mv "$1/region" "$1/x" && mkdir "$1/region"; mv "$1/x" "$1/limits"`,
		dir); !strings.Contains(out, "No space") {
		t.Errorf("a folder in place of the region's: %q", out)
	}
	if r, err := Open(UsageFileDir(dir)); err == nil {
		t.Error("a region that was moved away was opened")
		_ = r.Close()
	}
}

// A program can punch a hole in a region, or truncate it. Guarded turns the fault into an error, and only of this
// region.
func TestFolderThatIsSpoilt(t *testing.T) {
	for name, script := range map[string]string{
		"cut": `truncate -s 0 "$1"`, "punched": `fallocate -p -o 0 -l 329792 "$1"`,
		"punched, and the room used": `fallocate -p -o 0 -l 329792 "$1"; truncate -s 8M "$1"; dd if=/dev/zero of="$1" bs=4k seek=1024 count=99 conv=notrunc`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t)
			r, err := Open(UsageFileDir(dir))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			check := func() error { return Guarded(func() error { return r.Check(UsageFileDir(dir)) }) }
			if err := check(); err != nil {
				t.Fatal(err)
			}
			as(t, owner4711, script, UsageFileDir(dir)+"/usage")
			if err := check(); !errors.Is(err, sharing.ErrStale) {
				t.Errorf("%v", err)
			}
			if err := Guarded(func() error { r.Counts(); _, err := reclaim(r, otherUser); return err }); err != nil &&
				!errors.Is(err, sharing.ErrStale) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestRemoveFolders(t *testing.T) {
	dir := folder(t)
	parent := filepath.Dir(dir)
	again, err := Folder{Preload: "/l", Devices: []Device{{gpu0, 1}}}.Make(dir) // one that an undone attempt left
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	plain := filepath.Join(parent, "k-plain") // as Kerf made them before it used volumes
	if err := os.Mkdir(plain, 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := Create(plain, []Device{{gpu0, 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got := UsageFileDir(plain); got != plain {
		t.Errorf("region in %q", got)
	}
	if err := RemoveFolders(parent, func(name string) bool { return name == "k-1" }); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 1 || entries[0].Name() != "k-1" {
		t.Errorf("%v, %v", entries, err)
	}
	for range 2 {
		if err := RemoveFolders(parent, func(string) bool { return false }); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
	if err := errors.Join(TryFolder(parent), RemoveFolders(filepath.Join(parent, "absent"), nil)); err != nil {
		t.Error(err)
	}
}

// The volume has exactly the room that the region needs.
func TestFolderHasNoRoomLeft(t *testing.T) {
	var fs unix.Statfs_t
	if err := unix.Statfs(folder(t), &fs); err != nil || fs.Bavail != 0 || fs.Ffree != 0 {
		t.Errorf("%d blocks and %d inodes are free, %v", fs.Bavail, fs.Ffree, err)
	}
}
