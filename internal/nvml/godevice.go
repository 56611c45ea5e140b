// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

// goDevice is one GPU through go-nvml. go-nvml's device is a handle in a struct, so two values are equal when
// they are one GPU.
type goDevice struct {
	d   *goAdapter
	dev nvml.Device
}

func (g goDevice) identity() (identity, error) {
	uuid, r1 := g.dev.GetUUID()
	name, r2 := g.dev.GetName()
	minor, r3 := g.dev.GetMinorNumber()
	pci, r4 := g.dev.GetPciInfo()
	id := identity{
		uuid: sharing.GPUID(uuid), model: name, minor: minor,
		pci: pciAddress{pci.Domain, pci.Bus, pci.Device}, product: pci.PciDeviceId, board: pci.PciSubSystemId,
	}
	id.numa, id.pciRoot, id.architecture = g.numa(id.pci), pciRoot("/sys", id.pci), g.architecture()
	return id, errors.Join(check("nvmlDeviceGetUUID", r1), check("nvmlDeviceGetName", r2),
		check("nvmlDeviceGetMinorNumber", r3), check("nvmlDeviceGetPciInfo_v3", r4))
}

// numa returns the host memory node next to the GPU, or -1. (nvmlDeviceGetNumaNodeId is another thing: the
// node that the GPU's own memory is, on machines that have it so.)
func (g goDevice) numa(pci pciAddress) int {
	if g.d.need("nvmlDeviceGetMemoryAffinity") == nil {
		const nodes = 1024
		mask, r := g.dev.GetMemoryAffinity(nodes, nvml.AFFINITY_SCOPE_NODE)
		if r == nvml.SUCCESS {
			for i, word := range mask {
				if word != 0 {
					return i*bits.UintSize + bits.TrailingZeros(word)
				}
			}
		}
	}
	data, err := os.ReadFile("/sys/bus/pci/devices/" + pci.String() + "/numa_node")
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// String is the address as sysfs writes it. A GPU is function 0 of its device.
func (p pciAddress) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.0", p.domain, p.bus, p.device)
}

func (g goDevice) mig() (bool, error) {
	if err := g.d.need("nvmlDeviceGetMigMode"); err != nil {
		return false, err
	}
	current, _, r := g.dev.GetMigMode()
	return current == nvml.DEVICE_MIG_ENABLE, check("nvmlDeviceGetMigMode", r)
}

func (g goDevice) memory() (Memory, error) {
	if g.d.need("nvmlDeviceGetMemoryInfo_v2") == nil {
		m, r := g.dev.GetMemoryInfo_v2()
		err := check("nvmlDeviceGetMemoryInfo_v2", r)
		if err == nil {
			return Memory{Total: sharing.Bytes(m.Total), Reserved: sharing.Bytes(m.Reserved),
				Free: sharing.Bytes(m.Free), Used: sharing.Bytes(m.Used)}, nil
		}
		if !errors.Is(err, sharing.ErrUnsupported) {
			return Memory{}, err
		}
	}
	// The older form counts the driver's own part as used and does not tell it apart.
	m, r := g.dev.GetMemoryInfo()
	return Memory{Total: sharing.Bytes(m.Total), Free: sharing.Bytes(m.Free), Used: sharing.Bytes(m.Used)},
		check("nvmlDeviceGetMemoryInfo", r)
}

func (g goDevice) processes() ([][]resident, error) {
	compute, err := g.computeProcesses()
	if err != nil {
		return nil, err // the list that matters; without it nothing is known
	}
	lists := [][]resident{compute}
	const mpsList = "nvmlDeviceGetMPSComputeRunningProcesses"
	for name, get := range map[string]func() ([]nvml.ProcessInfo, nvml.Return){
		"nvmlDeviceGetGraphicsRunningProcesses": g.dev.GetGraphicsRunningProcesses,
		mpsList:                                 g.dev.GetMPSComputeRunningProcesses,
	} {
		more, err := g.list(name, get)
		switch {
		case err == nil:
			for i := range more {
				more[i].mps = name == mpsList
			}
			lists = append(lists, more)
		case !errors.Is(err, sharing.ErrUnsupported):
			return nil, err
		}
	}
	return lists, nil
}

func (g goDevice) computeProcesses() ([]resident, error) {
	if list, ok := g.d.lists.compute(g.dev); ok {
		return list, nil
	}
	return g.list(computeList, g.dev.GetComputeRunningProcesses)
}

func (g goDevice) list(name string, get func() ([]nvml.ProcessInfo, nvml.Return)) ([]resident, error) {
	if err := g.d.need(name+"_v3", name+"_v2", name); err != nil {
		return nil, err
	}
	infos, r := get()
	if err := check(name, r); err != nil {
		return nil, err
	}
	out := make([]resident, 0, len(infos))
	for _, p := range infos {
		out = append(out, residentOf(p.Pid, p.UsedGpuMemory, p.GpuInstanceId, p.ComputeInstanceId))
	}
	return out, nil
}

// valueNotAvailable is NVML_VALUE_NOT_AVAILABLE as a 64-bit number.
const valueNotAvailable = 1<<64 - 1

func (g goDevice) utilization() (int, error) {
	if err := g.d.need("nvmlDeviceGetUtilizationRates"); err != nil {
		return 0, err
	}
	u, r := g.dev.GetUtilizationRates()
	return int(u.Gpu), check("nvmlDeviceGetUtilizationRates", r)
}

func (g goDevice) recovery() (Recovery, error) {
	const name = "nvmlDeviceGetFieldValues(GPU_RECOVERY_ACTION)"
	if g.d.need("nvmlDeviceGetFieldValues") != nil {
		return 0, absent(name)
	}
	v := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if err := check(name, g.dev.GetFieldValues(v)); err != nil {
		return 0, err
	}
	switch r := nvml.Return(v[0].NvmlReturn); r { //nolint:gosec // the struct holds a return code
	case nvml.SUCCESS:
		return Recovery(binary.NativeEndian.Uint32(v[0].Value[:4])), nil
	case nvml.ERROR_INVALID_ARGUMENT:
		return 0, check(name, nvml.ERROR_NOT_SUPPORTED) // what a driver says that does not know the field
	default:
		return 0, check(name, r)
	}
}

// maxLinks is above the number of NVLinks of any GPU; the driver ends the list before.
const maxLinks = 64

func (g goDevice) links() ([]link, error) {
	if err := errors.Join(g.d.need("nvmlDeviceGetNvLinkState"), g.d.need("nvmlDeviceGetNvLinkRemotePciInfo_v2",
		"nvmlDeviceGetNvLinkRemotePciInfo")); err != nil {
		return nil, err
	}
	tellsKind := g.d.need("nvmlDeviceGetNvLinkRemoteDeviceType") == nil
	var out []link
	for i := range maxLinks {
		state, r := g.dev.GetNvLinkState(i)
		if r == nvml.ERROR_INVALID_ARGUMENT || r == nvml.ERROR_NOT_SUPPORTED {
			break // past the last link, or none
		}
		if err := check("nvmlDeviceGetNvLinkState", r); err != nil {
			return nil, err
		}
		if state != nvml.FEATURE_ENABLED {
			continue
		}
		if tellsKind {
			if kind, r := g.dev.GetNvLinkRemoteDeviceType(i); r == nvml.SUCCESS &&
				kind == nvml.NVLINK_DEVICE_TYPE_SWITCH {
				out = append(out, link{toSwitch: true})
				continue
			}
		}
		if pci, r := g.dev.GetNvLinkRemotePciInfo(i); r == nvml.SUCCESS {
			out = append(out, link{pci: pciAddress{pci.Domain, pci.Bus, pci.Device}})
		}
	}
	return out, nil
}
