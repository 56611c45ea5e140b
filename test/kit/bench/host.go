// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/test/kit/core"
)

// Host is what the kernel tells of this machine and of the rights here.
func Host() []core.Fact {
	var u unix.Utsname
	_ = unix.Uname(&u)
	facts := []core.Fact{
		{Name: "kernel", Value: unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])},
		{Name: "user", Value: fmt.Sprint(os.Getuid())},
	}
	for _, name := range []string{"CapEff", "Seccomp", "NoNewPrivs"} {
		if v := statusField(name); v != "" {
			facts = append(facts, core.Fact{Name: name, Value: v})
		}
	}
	for _, space := range []string{"pid", "mnt", "user", "cgroup"} {
		if link, err := os.Readlink("/proc/self/ns/" + space); err == nil {
			facts = append(facts, core.Fact{Name: space + " namespace", Value: link})
		}
	}
	where, err := Cgroup2()
	text := where + ", writable"
	if err != nil {
		text = err.Error()
	}
	return append(facts, core.Fact{Name: "cgroup v2", Value: text})
}

func statusField(name string) string {
	data, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Cgroup2 returns the mount point of a cgroup v2 in which a group can be made. The error says what is missing.
func Cgroup2() (string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	err = errors.New("no cgroup v2 is mounted")
	for line := range strings.Lines(string(data)) {
		before, after, _ := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if !strings.HasPrefix(after, "cgroup2 ") || len(fields) < 5 {
			continue
		}
		probe := filepath.Join(fields[4], fmt.Sprintf("kerf-kit-probe-%d", os.Getpid()))
		if err = os.Mkdir(probe, 0o755); err == nil {
			return fields[4], os.Remove(probe)
		}
		err = fmt.Errorf("no group can be made in the cgroup v2 at %s: %w", fields[4], err)
	}
	return "", err
}

// AgentLacks says why kerf-agent cannot run here; "" if it can.
func AgentLacks() string {
	if os.Getuid() != 0 {
		return "kerf-agent needs root"
	}
	if _, err := Cgroup2(); err != nil {
		return "kerf-agent needs a cgroup v2: " + err.Error()
	}
	return ""
}

// MPSLacks says why MPS cannot run here; "" if it can.
func MPSLacks() string {
	if _, err := exec.LookPath("nvidia-cuda-mps-control"); err != nil {
		return "nvidia-cuda-mps-control is not in PATH"
	}
	return ""
}

// HasGroup reports whether a cgroup exists, by its path as the agent tells it: below the mount of cgroup v2.
func HasGroup(group string) bool {
	root, err := Cgroup2()
	if err != nil {
		return false
	}
	for _, path := range []string{group, filepath.Join(root, group)} {
		if info, err := os.Stat(path); err == nil && info.IsDir() && strings.HasPrefix(path, root+"/") {
			return true
		}
	}
	return false
}
