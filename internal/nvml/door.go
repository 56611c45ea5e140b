// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

// adapter is what the Library needs of NVML: plain calls that may hang or fail. The real one is goAdapter; tests have
// fakes. Errors are as check makes them.
type adapter interface {
	system() (System, error)
	count() (int, error)
	byIndex(i int) (device, error)
	byUUID(id sharing.GPUID) (device, error)
	newEvents() (eventSet, error)
	hasLimits() bool
	shutdown() error
}

// device is one GPU. Its dynamic type is comparable.
type device interface {
	identity() (identity, error)
	mig() (bool, error)
	memory() (Memory, error)
	// processes returns the driver's lists (compute, graphics, MPS), of which some processes are in several.
	processes() ([][]resident, error)
	utilization() (int, error)
	// processTime returns the rows as the driver has them.
	processTime(since time.Time) ([]sharing.TimeRow, error)
	recovery() (Recovery, error)
	// links returns the active NVLinks.
	links() ([]link, error)
	computeMode() (sharing.ComputeMode, error)
	setComputeMode(mode sharing.ComputeMode) error
	powerLimit() (PowerLimit, error)
	setPowerLimit(milliwatts uint32) error
	// setLimit and limit are for a cgroup's directory; hasLimits says whether the library has them.
	setLimit(dir string, soft, hard sharing.Bytes) error
	limit(dir string) (Limit, error)
}

// eventSet waits for critical faults.
type eventSet interface {
	// register is sharing.ErrUnsupported for a GPU that tells no faults.
	register(device) error
	// wait returns ok false when nothing came within a second or so.
	wait() (ev rawEvent, ok bool, err error)
	free() error
}

type identity struct {
	uuid  sharing.GPUID
	model string
	minor int
	pci   pciAddress
	numa  int // -1: not known
	// pciRoot and architecture are empty if not known.
	pciRoot, architecture string
	// product and board are device and vendor, and those of the board.
	product, board uint32
}

type pciAddress struct{ domain, bus, device uint32 }

// link is the far end of an NVLink: a switch, or the device at pci.
type link struct {
	toSwitch bool
	pci      pciAddress
}

// resident is one entry of a process list. A process has one per MIG instance that it uses.
type resident struct {
	pid    int
	gi, ci uint32
	used   sharing.Bytes
	known  bool
	mps    bool // from the list of MPS clients
}

type rawEvent struct {
	dev    device
	xid    uint64
	gi, ci *uint32
}

// goDoor is NVML through go-nvml and, for long lists, through lists.
type goAdapter struct {
	lib     nvml.Interface
	handles *handles
	lists   *lists
	// found has what need was asked for: a library has the same functions for as long as it is loaded.
	found sync.Map
}

// openDoor initialises the library at path, which preflight has accepted.
func openAdapter(path string) (*goAdapter, error) {
	if err := bind(path); err != nil {
		return nil, err
	}
	h, err := openHandles(path)
	if err != nil {
		return nil, err
	}
	d := &goAdapter{lib: nvml.New(nvml.WithLibraryPath(path)), handles: h, lists: openLists(h)}
	if err := check("nvmlInit_v2", d.lib.Init()); err != nil {
		h.close()
		return nil, err
	}
	return d, nil
}

func (d *goAdapter) shutdown() error {
	err := check("nvmlShutdown", d.lib.Shutdown())
	d.handles.close()
	return err
}

// need tells whether one of the named functions is in the library. It goes before every call of a function
// that is not in the list of required ones.
func (d *goAdapter) need(names ...string) error {
	if slices.ContainsFunc(names, d.has) {
		return nil
	}
	return absent(names[len(names)-1])
}

func (d *goAdapter) has(name string) bool {
	if there, known := d.found.Load(name); known {
		return there == true
	}
	there := d.lib.Extensions().LookupSymbol(name) == nil
	d.found.Store(name, there)
	return there
}

func (d *goAdapter) system() (System, error) {
	driver, r1 := d.lib.SystemGetDriverVersion()
	lib, r2 := d.lib.SystemGetNVMLVersion()
	s := System{DriverVersion: driver, NVMLVersion: lib}
	if d.need("nvmlSystemGetCudaDriverVersion") == nil {
		if v, r := d.lib.SystemGetCudaDriverVersion(); r == nvml.SUCCESS {
			s.CUDAVersion = v
		}
	}
	return s, errors.Join(check("nvmlSystemGetDriverVersion", r1), check("nvmlSystemGetNVMLVersion", r2))
}

func (d *goAdapter) count() (int, error) {
	n, r := d.lib.DeviceGetCount()
	return n, check("nvmlDeviceGetCount_v2", r)
}

func (d *goAdapter) byIndex(i int) (device, error) {
	dev, r := d.lib.DeviceGetHandleByIndex(i)
	if err := check("nvmlDeviceGetHandleByIndex_v2", r); err != nil {
		return nil, err
	}
	return goDevice{d, dev}, nil
}

func (d *goAdapter) byUUID(id sharing.GPUID) (device, error) {
	dev, r := d.lib.DeviceGetHandleByUUID(string(id))
	if err := check("nvmlDeviceGetHandleByUUID", r); err != nil {
		return nil, err
	}
	return goDevice{d, dev}, nil
}

func (d *goAdapter) newEvents() (eventSet, error) {
	if err := errors.Join(d.need("nvmlEventSetCreate"), d.need("nvmlEventSetFree"),
		d.need("nvmlEventSetWait_v2", "nvmlEventSetWait"),
		d.need("nvmlDeviceRegisterEvents"), d.need("nvmlDeviceGetSupportedEventTypes")); err != nil {
		return nil, err
	}
	set, r := d.lib.EventSetCreate()
	if err := check("nvmlEventSetCreate", r); err != nil {
		return nil, err
	}
	return &goEvents{d, set}, nil
}

type goEvents struct {
	d   *goAdapter
	set nvml.EventSet
}

// waitMS is how long one wait stays in the driver: short enough for Close to be quick, long enough to cost
// nothing.
const waitMS = 1000

func (e *goEvents) register(dev device) error {
	g, ok := dev.(goDevice)
	if !ok {
		return absent("nvmlDeviceRegisterEvents")
	}
	types, r := g.dev.GetSupportedEventTypes()
	if err := check("nvmlDeviceGetSupportedEventTypes", r); err != nil {
		return err
	}
	if types&nvml.EventTypeXidCriticalError == 0 {
		return check("nvmlDeviceRegisterEvents", nvml.ERROR_NOT_SUPPORTED)
	}
	return check("nvmlDeviceRegisterEvents", g.dev.RegisterEvents(nvml.EventTypeXidCriticalError, e.set))
}

func (e *goEvents) wait() (rawEvent, bool, error) {
	data, r := e.set.Wait(waitMS)
	if r == nvml.ERROR_TIMEOUT {
		return rawEvent{}, false, nil
	}
	if err := check("nvmlEventSetWait", r); err != nil {
		return rawEvent{}, false, err
	}
	if data.EventType != nvml.EventTypeXidCriticalError {
		return rawEvent{}, false, nil
	}
	instance := func(v uint32) *uint32 {
		if v == noInstance {
			return nil
		}
		return &v
	}
	return rawEvent{
		dev: goDevice{e.d, data.Device}, xid: data.EventData,
		gi: instance(data.GpuInstanceId), ci: instance(data.ComputeInstanceId),
	}, true, nil
}

func (e *goEvents) free() error { return check("nvmlEventSetFree", e.set.Free()) }

// noInstance is NVML's mark for "no MIG instance".
const noInstance = 0xFFFFFFFF
