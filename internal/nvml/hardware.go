// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// architectureName is the name of an NVML_DEVICE_ARCH_*, in lower case; empty for one that is newer than this list.
func architectureName(a nvml.DeviceArchitecture) string {
	switch a {
	case nvml.DEVICE_ARCH_KEPLER:
		return "kepler"
	case nvml.DEVICE_ARCH_MAXWELL:
		return "maxwell"
	case nvml.DEVICE_ARCH_PASCAL:
		return "pascal"
	case nvml.DEVICE_ARCH_VOLTA:
		return "volta"
	case nvml.DEVICE_ARCH_TURING:
		return "turing"
	case nvml.DEVICE_ARCH_AMPERE:
		return "ampere"
	case nvml.DEVICE_ARCH_ADA:
		return "ada"
	case nvml.DEVICE_ARCH_HOPPER:
		return "hopper"
	case nvml.DEVICE_ARCH_BLACKWELL:
		return "blackwell"
	}
	return ""
}

func (g goDevice) architecture() string {
	a, err := ask(g.d, "nvmlDeviceGetArchitecture", g.dev.GetArchitecture)
	if err != nil {
		return ""
	}
	return architectureName(a)
}

// rootComplex is the first folder of a PCI device in sysfs, below "devices".
var rootComplex = regexp.MustCompile(`^pci[0-9a-f]{4}:[0-9a-f]{2}$`)

// pciRoot is the PCIe root complex above a device, from the device's path in sysfs; empty if that does not show it.
func pciRoot(sysfs string, pci pciAddress) string {
	target, err := filepath.EvalSymlinks(filepath.Join(sysfs, "bus/pci/devices", pci.String()))
	if err != nil {
		return ""
	}
	_, below, _ := strings.Cut(target, "/devices/")
	root, _, _ := strings.Cut(below, "/")
	if !rootComplex.MatchString(root) {
		return ""
	}
	return root
}
