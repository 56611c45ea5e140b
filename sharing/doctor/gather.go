// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/cgroup"
	"github.com/kerf-gpu/kerf/internal/containerd"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
)

// groupName is the group of the agent's sockets.
const groupName = "kerf"

// driverTimeout bounds all questions to the driver, which may hang.
const driverTimeout = 15 * time.Second

// Where says where to look. Environment variables are values here: only programs read them.
type Where struct {
	// Dir is the directory of the agent's sockets.
	Dir string
	// Path and LibraryPath are PATH and LD_LIBRARY_PATH.
	Path, LibraryPath string
	// DeviceRoot is the directory whose dev holds the device files; empty is "/".
	DeviceRoot string
	// RuntimeSocket is the container runtime's; empty looks in the usual places.
	RuntimeSocket string
}

// Gather looks at the machine. What cannot be looked at is left unknown, so there is no error.
func Gather(ctx context.Context, w Where) Facts {
	sockets := runtimeSockets()
	if w.RuntimeSocket != "" {
		sockets = []string{w.RuntimeSocket}
	}
	space, _ := process.PIDSpace(os.Getpid()) // 0 says that it is not known
	return Facts{
		Kernel: kernelRelease(), Root: os.Geteuid() == 0, PIDSpace: space, Dir: w.Dir,
		Cgroup: gatherCgroup(), Driver: gatherDriver(ctx, w), Agent: gatherAgent(ctx, w.Dir), Group: gatherGroup(),
		MPSControl: inPath("nvidia-cuda-mps-control", w.Path),
		CDISpecs:   cdiSpecs("/etc/cdi", "/var/run/cdi"),
		Runtime:    gatherRuntime(ctx, sockets, nriSocket, containerd.ToolkitPath),
	}
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

func gatherCgroup() Cgroup {
	var out Cgroup
	h, err := cgroup.Default()
	if err != nil {
		out.Problem = err.Error()
	} else {
		out.V2 = h.Mount
		if b, err := os.ReadFile(filepath.Join(h.Mount, "cgroup.controllers")); err == nil {
			out.Controllers = append([]string{}, strings.Fields(string(b))...)
		}
		out.Unusable, out.Remedy = tryCgroup(h)
	}
	out.V1, _ = cgroup.V1Mounted() // an unreadable mount table shows none
	return out
}

// tryCgroup makes and removes a group. A user without rights proves nothing: the agent has them.
func tryCgroup(h cgroup.Hierarchy) (problem, remedy string) {
	err := h.Probe(fmt.Sprintf("kerf-doctor-%d", os.Getpid()))
	if err == nil || os.Geteuid() != 0 && errors.Is(err, sharing.ErrDenied) && !errors.Is(err, unix.EROFS) {
		return "", ""
	}
	return err.Error(), h.Remedy(err)
}

func gatherDriver(ctx context.Context, w Where) Driver {
	ctx, cancel := context.WithTimeout(ctx, driverTimeout)
	defer cancel()
	out := Driver{Devices: deviceFiles(filepath.Join("/", w.DeviceRoot, "dev"))}
	lib, err := nvml.Open(ctx, nvml.Options{LibraryPaths: nvml.DefaultLibraryPaths(w.LibraryPath), ReadOnly: true})
	if err != nil {
		out.Problem = err.Error()
		return out
	}
	// A driver that does not let go costs a program that ends right after nothing.
	defer func() { _ = lib.Close() }()
	out.Library, out.Version, out.MemoryLimits = lib.Path(), lib.System().DriverVersion, lib.HasMemoryLimits()
	gpus, left, err := lib.GPUs(ctx)
	if err != nil {
		out.GPUProblem = err.Error()
	}
	out.GPUs = gpus
	for _, l := range left {
		out.LeftOut = append(out.LeftOut, l.Error())
	}
	return out
}

// deviceFiles are the names of NVIDIA's control and GPU files in dir, sorted.
func deviceFiles(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), "nvidia")
		if _, err := strconv.ParseUint(number, 10, 16); ok && (number == "ctl" || err == nil) {
			out = append(out, e.Name())
		}
	}
	slices.Sort(out)
	return out
}

func gatherAgent(ctx context.Context, dir string) Agent {
	client, err := nodeclient.New(dir)
	if err != nil {
		return Agent{Problem: err.Error()}
	}
	defer func() { _ = client.Close() }()
	p, err := client.Node(ctx)
	if err != nil {
		return Agent{Problem: err.Error(), Absent: errors.Is(err, nodeclient.ErrNoAgent),
			Denied: errors.Is(err, sharing.ErrDenied)}
	}
	return Agent{
		Answered: true, Ready: p.GetReady(), NotReady: p.GetNotReady(), DriverVersion: p.GetDriverVersion(),
		GPUSettings: p.GetGpuSettings(), Levels: levelsOf(p), Backends: backendsOf(p),
	}
}

// backendsOf are the backends of the first GPU that reports them. Each has the answer of the first GPU on which it does
// not work.
func backendsOf(p *nodeapi.GetNodeResponse) []Backend {
	var out []Backend
	for _, g := range p.GetGpus() {
		for _, b := range g.GetBackends() {
			level, err := sharing.ParseLevel("level", b.GetLevel())
			if err != nil {
				continue
			}
			one := Backend{Name: b.GetName(), Level: level, Listed: b.GetListed(), Works: b.GetAnswer() == "supported"}
			if !one.Works {
				one.Reason = fmt.Sprintf("%s on GPU %d: %s", b.GetAnswer(), g.GetIndex(),
					strings.TrimSuffix(b.GetReason()+"; "+b.GetRemedy(), "; "))
			}
			i := slices.IndexFunc(out, func(had Backend) bool { return had.Name == one.Name })
			switch {
			case i < 0:
				out = append(out, one)
			case out[i].Works:
				out[i] = one
			}
		}
	}
	return out
}

// levelsOf are the levels that some GPU offers, strongest first. A level that this program does not know is
// left out.
func levelsOf(p *nodeapi.GetNodeResponse) []sharing.Level {
	var out []sharing.Level
	for _, g := range p.GetGpus() {
		for _, name := range g.GetLevels() {
			if l, err := sharing.ParseLevel("level", name); err == nil && !slices.Contains(out, l) {
				out = append(out, l)
			}
		}
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out
}

func gatherGroup() Group {
	g, err := user.LookupGroup(groupName)
	var unknown user.UnknownGroupError
	switch {
	case errors.As(err, &unknown):
		return Group{Known: true}
	case err != nil:
		return Group{Problem: err.Error()}
	}
	ids, err := os.Getgroups()
	if err != nil {
		return Group{Problem: fmt.Sprintf("own groups: %v", err)}
	}
	gid, err := strconv.Atoi(g.Gid)
	return Group{Known: true, Exists: true, Member: err == nil && (slices.Contains(ids, gid) || os.Getegid() == gid)}
}

// inPath is the executable file name in the directories of path, or empty.
func inPath(name, path string) string {
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() && unix.Access(file, unix.X_OK) == nil {
			return file
		}
	}
	return ""
}

// cdiSpecs are NVIDIA's spec files in dirs.
func cdiSpecs(dirs ...string) []string {
	var out []string
	for _, dir := range dirs {
		for _, ext := range []string{"yaml", "yml", "json"} {
			found, err := filepath.Glob(filepath.Join(dir, "nvidia*."+ext))
			if err == nil { // the pattern is a constant
				out = append(out, found...)
			}
		}
	}
	return out
}
