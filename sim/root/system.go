// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package root

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kerf-gpu/kerf/sim/control"
)

const (
	driverProc = "proc/driver/nvidia"
	pciBus     = "sys/bus/pci/devices"

	class3D, vendorNVIDIA, configBytes = 0x030200, 0x10de, 256
)

// capFolders are the folders below /proc/driver that show capabilities.
func capFolders() []string { return []string{"nvidia/capabilities", "nvidia-caps"} }

// params are those of the kernel module that tools read: who may make device files, and how.
const params = `ResmanDebugLevel: 4294967295
ModifyDeviceFiles: 1
DeviceFileUID: 0
DeviceFileGID: 0
DeviceFileMode: 438
InitializeSystemMemoryAllocations: 1
UsePageAttributeTable: 4294967295
EnableMSI: 1
EnablePCIeGen3: 0
EnableGpuFirmware: 18
RegistryDwords: ""
`

// proc writes what the kernel module shows in /proc, and that it is loaded.
func (t *tree) proc() {
	version := t.node.DriverVersion
	t.do(func() error { return os.RemoveAll(filepath.Join(t.dir, "proc")) })
	t.file("NVRM version: NVIDIA UNIX "+platform+" Kernel Module  "+version+"  Mon Jan  5 00:00:00 UTC 2026\n"+
		"GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n", driverProc, "version")
	t.file(params, driverProc, "params")
	for _, g := range t.node.GPUs {
		t.file(information(g), driverProc, "gpus", address(g), "information")
	}
	for _, dir := range capFolders() {
		from := filepath.Join(t.node.Dir, "proc/driver", dir)
		if info, err := os.Stat(from); err == nil && info.IsDir() {
			t.copyTree(from, filepath.Join("proc/driver", dir))
		}
	}
	t.file("nvidia_uvm 4210688 0 - Live 0x0000000000000000 (OE)\n"+
		"nvidia_modeset 1736704 0 - Live 0x0000000000000000 (OE)\n"+
		"nvidia 14635008 2 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (OE)\n", "proc", "modules")
	t.do(func() error {
		now, err := os.ReadFile("/proc/devices")
		if err != nil {
			return err
		}
		ours := fmt.Sprintf("Character devices:\n%3d nvidia-frontend\n%3d nvidia-uvm\n%3d nvidia-caps\n", gpuMajor,
			uvmMajor,
			capsMajor)
		text := strings.Replace(string(now), "Character devices:\n", ours, 1)
		return os.WriteFile(filepath.Join(t.dir, "proc/devices"), []byte(text), fileMode) // #nosec G306
	})
}

// copyTree copies plain files.
func (t *tree) copyTree(from, to string) {
	t.do(func() error {
		return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path) // #nosec G304 G122 -- the simulator's own files
			if err != nil {
				return err
			}
			name, err := filepath.Rel(from, path)
			if err != nil {
				return err
			}
			t.file(string(text), to, name)
			return t.err
		})
	})
}

func information(g control.GPU) string {
	return fmt.Sprintf("Model: \t\t %s\nIRQ:   \t\t 16\nGPU UUID: \t %s\nVideo BIOS: \t ??.??.??.??.??\n"+
		"Bus Type: \t PCIe\n"+
		"DMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t %s\nDevice Minor: \t %d\n"+
		"GPU Excluded:\t No\n", g.Model, g.UUID, address(g), g.Minor)
}

// address is a GPU's PCI address as the kernel writes it: four digits of the domain, in lower case.
func address(g control.GPU) string {
	domain, rest, _ := strings.Cut(strings.ToLower(g.PCI), ":")
	return domain[max(0, len(domain)-4):] + ":" + rest
}

// pci writes the GPUs as devices of the PCI bus.
func (t *tree) pci() {
	t.do(func() error { return os.RemoveAll(filepath.Join(t.dir, "sys")) })
	for _, g := range t.node.GPUs {
		dir := filepath.Join(pciBus, address(g))
		// #nosec G115 -- both have 32 bits
		device, subsystem := uint16(g.PCIDevice>>16), uint16(g.PCISubsystem>>16)
		config := make([]byte, configBytes)
		binary.LittleEndian.PutUint16(config[0x00:], vendorNVIDIA)
		binary.LittleEndian.PutUint16(config[0x02:], device)
		binary.LittleEndian.PutUint32(config[0x08:], class3D<<8|0xa1)
		binary.LittleEndian.PutUint16(config[0x2c:], uint16(g.PCISubsystem)) // #nosec G115 -- the vendor
		binary.LittleEndian.PutUint16(config[0x2e:], subsystem)
		for name, text := range map[string]string{
			"vendor": fmt.Sprintf("0x%04x\n", vendorNVIDIA), "device": fmt.Sprintf("0x%04x\n", device),
			"subsystem_vendor": fmt.Sprintf("0x%04x\n", uint16(g.PCISubsystem)), // #nosec G115 -- the vendor
			"subsystem_device": fmt.Sprintf("0x%04x\n", subsystem),
			"class":            fmt.Sprintf("0x%06x\n", class3D), "revision": "0xa1\n", "irq": "16\n",
			"numa_node": fmt.Sprintf("%d\n", g.NUMA), "config": string(config),
			"resource": strings.Repeat("0x0000000000000000 0x0000000000000000 0x0000000000000000\n", 13),
		} {
			t.file(text, dir, name)
		}
		t.link("../../drivers/nvidia", dir, "driver")
	}
}
