// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// criConfig is what is read of the configuration that containerd's CRI plugin answers, in 1.7 and 2.x. Only
// what is here is looked at; each field may be missing.
type criConfig struct {
	Containerd struct {
		DefaultRuntimeName string                `json:"defaultRuntimeName"`
		Runtimes           map[string]criRuntime `json:"runtimes"`
	} `json:"containerd"`
	// EnableCDI is a setting up to 2.x; where it is gone, CDI is always on.
	EnableCDI   *bool    `json:"enableCDI"`
	CDISpecDirs []string `json:"cdiSpecDirs"`
}

type criRuntime struct {
	Type                 string         `json:"runtimeType"`
	PodAnnotations       []string       `json:"PodAnnotations"`
	ContainerAnnotations []string       `json:"ContainerAnnotations"`
	Options              map[string]any `json:"options"`
}

// readContainerd adds what the CRI plugin's configuration says to r. It is JSON from another program: what
// cannot be read is untold.
func readContainerd(r *Report, config string) {
	var c criConfig
	if config == "" {
		r.untold("the CRI plugin does not tell its configuration")
		return
	}
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		r.untold("the CRI plugin's configuration cannot be read: %v", err)
		return
	}
	version, known := parseVersion(r.Version)
	switch {
	case c.EnableCDI != nil && *c.EnableCDI:
		r.CDI = Yes
	case c.EnableCDI != nil, known && version[0] < 2:
		r.CDI = No
	case known:
		r.CDI = Yes
	}
	r.CDIDirs = c.CDISpecDirs
	r.DefaultRuntime = c.Containerd.DefaultRuntimeName
	for _, name := range slices.Sorted(maps.Keys(c.Containerd.Runtimes)) {
		rt := c.Containerd.Runtimes[name]
		h := Handler{Name: name, Type: rt.Type, PodAnnotations: rt.PodAnnotations, ContainerAnnotations: rt.ContainerAnnotations}
		h.Binary, _ = rt.Options["BinaryName"].(string) // of another type, it is not runc's option
		r.Handlers = append(r.Handlers, h)
		if name == r.DefaultRuntime {
			if systemd, told := rt.Options["SystemdCgroup"].(bool); told && systemd {
				r.CgroupDriver = CgroupSystemd
			} else if rt.Type == "io.containerd.runc.v2" {
				r.CgroupDriver = CgroupFS
			}
		}
	}
}

// release is major, minor and patch of a version.
type release [3]int

func (r release) before(o release) bool { return slices.Compare(r[:], o[:]) < 0 }

// parseVersion reads "2.4.2", "v1.7.24-0ubuntu1" or "2.0.0-rc.1". Without a patch it is 0.
func parseVersion(s string) (r release, ok bool) {
	for i, part := range strings.SplitN(strings.TrimPrefix(s, "v"), ".", len(r)) {
		if end := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 && i > 0 {
			part = part[:end]
		}
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return r, i > 1
		}
		r[i], ok = int(n), i > 0
	}
	return r, ok
}
