// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package preset

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Kind is what a node has at a path.
type Kind string

// The kinds of files. None means that the path does not exist.
const (
	None   Kind = ""
	Socket Kind = "socket"
	Folder Kind = "folder"
	File   Kind = "file"
	Other  Kind = "other"
)

// Path is what the examination of a node found at one path.
type Path struct {
	Kind Kind `json:"kind"`
	// Listens is true if a program accepts connections at the socket.
	Listens bool `json:"listens"`
	// Mount has the flags of the file system of the path, or of its closest existing parent. Nil means unknown.
	Mount *Mount `json:"mount"`
	// Problem says why the path could not be examined; empty if it was.
	Problem string `json:"problem"`
}

// Mount has the flags of a mounted file system.
type Mount struct {
	ReadOnly bool `json:"readOnly"`
	NoExec   bool `json:"noExec"`
}

// Files is what the examination of a node's files found.
type Files struct {
	// OSImage is PRETTY_NAME of os-release; empty if it is unknown.
	OSImage string `json:"osImage"`
	// MountProblem says why no path has the flags of its file system; empty if they have.
	MountProblem string `json:"mountProblem"`
	// Paths has the examined paths.
	Paths map[string]Path `json:"paths"`
}

// Values are the paths of a preset, with the chart's values for those that it leaves out.
type Values struct {
	// Name is the preset, and Runtime its container runtime: containerd or crio.
	Name, Runtime string
	// DriverLibrary is the driver's library on the node.
	DriverLibrary string
	// Kubelet, CDI, CDISource, Hook and Toolkit are folders. Toolkit is empty if the agent does not read it.
	Kubelet, CDI, CDISource, Hook, Toolkit string
	RuntimeSocket, NRISocket               string
}

// The chart's values that name paths of a node.
const (
	keyRuntimeSocket = "poolDefaults.paths.runtimeSocket"
	keyKubelet       = "poolDefaults.paths.kubelet"
	keyNRISocket     = "poolDefaults.paths.nriSocket"
	keyCDI           = "poolDefaults.paths.cdi"
	keyCDISource     = "poolDefaults.paths.cdiSource"
	keyHook          = "poolDefaults.paths.hook"
	keyToolkit       = "poolDefaults.paths.toolkit"
	keyDriverLibrary = "poolDefaults.driverLibrary"
)

// rule is what a node needs at the path of a value.
type rule struct {
	key   string
	value func(*Values) *string
	// file is what the value, a folder, must have; empty if the value itself is examined.
	file string
	// decides is true if a node without it needs another preset.
	decides bool
	// wrong says what is wrong with the path; empty if nothing is.
	wrong func(Path) string
	// mount is true if wrong needs the flags of the file system.
	mount  bool
	remedy string
}

func rules() []rule {
	return []rule{
		{key: keyRuntimeSocket, value: func(v *Values) *string { return &v.RuntimeSocket }, decides: true,
			wrong: noListener, remedy: "set it to the socket of the container runtime"},
		{key: keyKubelet, value: func(v *Values) *string { return &v.Kubelet }, file: "pod-resources/kubelet.sock",
			decides: true, wrong: noListener, remedy: "set it to kubelet's --root-dir"},
		{key: keyNRISocket, value: func(v *Values) *string { return &v.NRISocket }, wrong: noListener,
			remedy: "enable NRI in the config of the container runtime, or set it to the socket of NRI"},
		{key: keyHook, value: func(v *Values) *string { return &v.Hook }, wrong: notExecutable, mount: true,
			remedy: "set it to a folder that is writable and not mounted noexec"},
		{key: keyCDI, value: func(v *Values) *string { return &v.CDI }, wrong: notWritable, mount: true,
			remedy: "set it to a writable folder in which the container runtime reads CDI specs"},
		{key: keyCDISource, value: func(v *Values) *string { return &v.CDISource }, wrong: notCreatable, mount: true,
			remedy: "set it to the folder of NVIDIA's CDI spec"},
		{key: keyDriverLibrary, value: func(v *Values) *string { return &v.DriverLibrary }, wrong: noFile,
			remedy: "install NVIDIA's driver, or set it to libnvidia-ml.so.1 of the driver"},
		{key: keyToolkit, value: func(v *Values) *string { return &v.Toolkit }, file: "config.toml", wrong: noFile,
			remedy: "install NVIDIA's container toolkit, or set it to the folder of the toolkit's config.toml"},
	}
}

// path is the path that the rule examines for a value; empty if there is none.
func (r rule) path(value string) string {
	if value == "" {
		return ""
	}
	return path.Join(value, r.file)
}

// Paths are the paths to examine on a node: those of all presets, sorted.
func Paths(all []Values) []string {
	var out []string
	for _, v := range all {
		for _, r := range rules() {
			out = append(out, r.path(*r.value(&v)))
		}
		out = append(out, arm64Library(v.Name))
	}
	out = slices.DeleteFunc(out, func(p string) bool { return p == "" })
	slices.Sort(out)
	return slices.Compact(out)
}

func noListener(p Path) string {
	switch {
	case p.Kind == None:
		return "does not exist"
	case p.Kind != Socket:
		return "is not a socket"
	case !p.Listens:
		return "has no listener"
	}
	return ""
}

func noFile(p Path) string {
	switch p.Kind {
	case None:
		return "does not exist"
	case File:
		return ""
	case Socket, Folder, Other:
	}
	return "is not a file"
}

func notWritable(p Path) string {
	if p.Mount.ReadOnly {
		return "is on a read-only file system"
	}
	return ""
}

func notExecutable(p Path) string {
	if p.Mount.NoExec {
		return "is on a file system that is mounted noexec"
	}
	return notWritable(p)
}

func notCreatable(p Path) string {
	if p.Kind == None && p.Mount.ReadOnly {
		return "does not exist, and its file system is read-only"
	}
	return ""
}

// Lack is a path of a preset that a node does not have.
type Lack struct {
	// Key is the chart's value, and Path the path that was examined for it.
	Key  string `json:"key"`
	Path string `json:"path"`
	// Problem says what is wrong with the path, and Remedy what to do.
	Problem string `json:"problem"`
	Remedy  string `json:"remedy"`
}

// fit is how the files of a node agree with a preset.
type fit struct {
	values Values
	set    []Setting
	lacks  []Lack
	// missing are deciding paths that the node lacks, and unknown are deciding paths that could not be examined.
	missing, unknown []string
}

func (f fit) confirmed() bool { return len(f.missing) == 0 && len(f.unknown) == 0 }

// fit compares the files of a node with a preset and the settings that the node needs next to it.
func (f Files) fit(v Values, set []Setting, all []Values) fit {
	out := fit{values: v, set: set}
	for _, s := range set {
		for _, r := range rules() {
			if r.key == s.Key {
				*r.value(&out.values) = s.Value
			}
		}
	}
	for _, r := range rules() {
		at := r.path(*r.value(&out.values))
		if at == "" {
			continue
		}
		problem, known := f.check(r, at)
		switch {
		case !known:
			out.lacks = append(out.lacks, Lack{r.key, at, problem, "check it on the node"})
			if r.decides {
				out.unknown = append(out.unknown, at)
			}
		case problem != "":
			out.add(r, at, problem, f.elsewhere(r, all))
		}
	}
	return out
}

// add adds what the node lacks. If the node has exactly one other path of the kind, that becomes a setting.
func (f *fit) add(r rule, at, problem string, others []string) {
	if r.decides {
		f.missing = append(f.missing, at)
	}
	if len(others) == 1 && !r.decides {
		f.set = slices.DeleteFunc(slices.Clone(f.set), func(s Setting) bool { return s.Key == r.key })
		f.set = append(f.set, Setting{r.key, others[0]})
		*r.value(&f.values) = others[0]
		return
	}
	remedy := r.remedy
	if len(others) > 0 {
		remedy = "set it to " + strings.Join(others, " or ") + ", which the node has"
	}
	f.lacks = append(f.lacks, Lack{r.key, at, problem, remedy})
}

// check says what is wrong with the path of a rule. If that is unknown, it says why.
func (f Files) check(r rule, at string) (problem string, known bool) {
	p, ok := f.Paths[at]
	switch {
	case !ok:
		return "was not examined", false
	case p.Problem != "":
		return fmt.Sprintf("could not be examined: %q", p.Problem), false
	case r.mount && p.Mount == nil:
		return fmt.Sprintf("has unknown mount flags: %q", f.MountProblem), false
	}
	return r.wrong(p), true
}

// elsewhere are the values of all presets whose path is right on the node. Folders that Kerf creates are left out,
// because almost every node has a place for them.
func (f Files) elsewhere(r rule, all []Values) []string {
	if r.mount {
		return nil
	}
	var out []string
	for _, v := range all {
		values := []string{*r.value(&v)}
		if r.key == keyDriverLibrary {
			values = append(values, arm64Library(v.Name))
		}
		for _, value := range values {
			if at := r.path(value); at != "" && !slices.Contains(out, value) {
				if problem, known := f.check(r, at); known && problem == "" {
					out = append(out, value)
				}
			}
		}
	}
	return out
}
