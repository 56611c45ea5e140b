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
	major, _, known := parseVersion(r.Version)
	switch {
	case c.EnableCDI != nil && *c.EnableCDI:
		r.CDI = Yes
	case c.EnableCDI != nil, known && major < 2:
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

// parseVersion reads major and minor out of "2.4.2", "v1.7.24-0ubuntu1" or "2.0.0-rc.1".
func parseVersion(s string) (major, minor int, ok bool) {
	first, rest, two := strings.Cut(strings.TrimPrefix(s, "v"), ".")
	digits := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if digits >= 0 {
		rest = rest[:digits]
	}
	a, err := strconv.ParseUint(first, 10, 16)
	b, err2 := strconv.ParseUint(rest, 10, 16)
	return int(a), int(b), two && err == nil && err2 == nil
}
