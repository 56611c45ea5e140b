// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// kind is what a method does to a GPU.
type kind int

const (
	reads   kind = iota
	changes      // a setting of the GPU, which a read-only library rejects
	limits       // a cgroup's memory limit, which it allows
	apart        // asks no GPU
)

// deviceMethods are all methods by which a GPU is asked. A new one needs its line here, and if it changes the GPU, a
// method of spy.
func deviceMethods() map[string]kind {
	return map[string]kind{
		"identity": reads, "mig": reads, "memory": reads, "processes": reads, "utilization": reads,
		"processTime": reads, "recovery": reads,
		"links": reads, "computeMode": reads, "powerLimit": reads, "limit": reads, "signs": reads, "power": reads,
		"linksUp": reads,
		"sensors": reads, "computeProcesses": reads, "instances": reads,
		"migMode": reads, "migNeedsReset": reads, "migProfiles": reads, "migInstances": reads, "migDevices": reads,
		"migSlots": reads,

		"setComputeMode": changes, "setPowerLimit": changes, "setMIGMode": changes,
		"createGI": changes, "destroyGI": changes, "createCI": changes, "destroyCI": changes,

		"setLimit": limits,
	}
}

// libraryMethods are all exported methods of a Library. A new one needs its line here.
func libraryMethods() map[string]kind {
	return map[string]kind{
		"Memory": reads, "Processes": reads, "ProcessesIn": reads, "Utilization": reads, "MemoryLimit": reads,
		"Check": reads, "RecoveryAction": reads,
		"ComputeMode": reads, "MIGMode": reads, "MIGNeedsReset": reads, "MIGProcesses": reads, "MIGProfiles": reads,
		"MIGInstances": reads, "MIGDevices": reads,
		"PowerLimit": reads, "ProcessTime": reads, "Signs": reads, "Power": reads, "Telemetry": reads,
		"InstanceMemory": reads, "MIGSlots": reads,
		"GPUs": reads, "Count": reads,

		"SetComputeMode": changes, "SetMIGMode": changes, "CreateGI": changes, "DestroyGI": changes,
		"CreateCI": changes, "DestroyCI": changes, "SetPowerLimit": changes,

		"SetMemoryLimit": limits, "PutMemoryLimit": limits,

		"System": apart, "Path": apart, "HasMemoryLimits": apart, "Close": apart, "WaitEvent": apart,
		"PauseEvents": apart,
	}
}

// spy is a GPU that notes which of its methods change something.
type spy struct {
	*fakeGPU
	mu   sync.Mutex
	made []string
}

func (s *spy) note(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = append(s.made, method)
}

var _ partitioner = (*spy)(nil)

func (s *spy) partitioner() partitioner { return s }

func (s *spy) setComputeMode(sharing.ComputeMode) error            { s.note("setComputeMode"); return nil }
func (s *spy) setPowerLimit(uint32) error                          { s.note("setPowerLimit"); return nil }
func (s *spy) setMIGMode(bool) (Activation, error)                 { s.note("setMIGMode"); return 0, nil }
func (s *spy) createGI(_, _, _ int) (int, error)                   { s.note("createGI"); return 0, nil }
func (s *spy) destroyGI(int) error                                 { s.note("destroyGI"); return nil }
func (s *spy) createCI(int) (int, error)                           { s.note("createCI"); return 0, nil }
func (s *spy) destroyCI(_, _ int) error                            { s.note("destroyCI"); return nil }
func (s *spy) setLimit(string, sharing.Bytes, sharing.Bytes) error { s.note("setLimit"); return nil }

func (s *spy) migMode() (MIGMode, error)            { return MIGMode{}, nil }
func (s *spy) migNeedsReset() (bool, error)         { return false, nil }
func (s *spy) migProfiles() ([]MIGProfile, error)   { return nil, nil }
func (s *spy) migInstances() ([]MIGInstance, error) { return nil, nil }
func (s *spy) migSlots() ([]MIGInstance, error)     { return nil, nil }
func (s *spy) migDevices() ([]MIGDevice, error)     { return nil, nil }

// spyDoor has one GPU.
type spyAdapter struct {
	*fakeAdapter
	gpu *spy
}

func (d *spyAdapter) byIndex(int) (device, error)          { return d.gpu, nil }
func (d *spyAdapter) byUUID(sharing.GPUID) (device, error) { return d.gpu, nil }

func newSpy(readOnly bool) (*Library, *spy) {
	g := &spy{fakeGPU: gpu(0)}
	g.lists = [][]resident{{}}
	return newLibrary(&spyAdapter{&fakeAdapter{gpus: []*fakeGPU{g.fakeGPU}}, g}, Options{ReadOnly: readOnly},
		func() {}), g
}

// call calls a method with a context, the GPU where it takes one, and zero values, and returns its error.
func callMethod(t *testing.T, l *Library, name string) error {
	t.Helper()
	m := reflect.ValueOf(l).MethodByName(name)
	var args []reflect.Value
	for in := range m.Type().Ins() {
		switch in {
		case reflect.TypeFor[context.Context]():
			args = append(args, reflect.ValueOf(t.Context()))
		case reflect.TypeFor[sharing.GPUID]():
			args = append(args, reflect.ValueOf(gpu(0).id.uuid))
		default:
			args = append(args, reflect.Zero(in))
		}
	}
	out := m.Call(args)
	err, _ := reflect.TypeAssert[error](out[len(out)-1])
	return err
}

// A read-only library rejects every change of a GPU, before the driver is asked, and nothing else.
func TestReadOnlyRejectsEveryChange(t *testing.T) {
	all := reflect.TypeFor[*Library]()
	for method := range all.Methods() {
		name := method.Name
		what, known := libraryMethods()[name]
		if !known {
			t.Errorf("Library.%s is not in libraryMethods: does it change a GPU?", name)
		}
		if what == apart {
			continue
		}
		l, g := newSpy(true)
		err := callMethod(t, l, name)
		var rejected *sharing.ReadOnlyError
		if got := errors.As(err, &rejected); got != (what == changes) || got && !errors.Is(err, sharing.ErrDenied) {
			t.Errorf("%s on a read-only library: %v", name, err)
		}
		if want := map[kind][]string{limits: {"setLimit"}}[what]; !slices.Equal(g.made, want) {
			t.Errorf("%s on a read-only library called %q, want %q", name, g.made, want)
		}
	}
}

// The table of what changes a GPU has all that there is, and a library that is not read-only reaches each of it.
func TestEveryChangeIsKnown(t *testing.T) {
	listed := deviceMethods()
	for _, of := range []reflect.Type{reflect.TypeFor[device](), reflect.TypeFor[partitioner](),
		reflect.TypeFor[signer](),
		reflect.TypeFor[senses]()} {
		for method := range of.Methods() {
			if _, known := listed[method.Name]; !known {
				t.Errorf("%s.%s is not in deviceMethods: does it change the GPU?", of, method.Name)
			}
		}
	}
	reached := map[string]bool{}
	for name, what := range libraryMethods() {
		if what == apart {
			continue
		}
		l, g := newSpy(false)
		if err := callMethod(t, l, name); what == changes && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if (len(g.made) > 0) != (what == changes || what == limits) {
			t.Errorf("%s called %q", name, g.made)
		}
		for _, m := range g.made {
			reached[m] = true
		}
	}
	for name, what := range listed {
		if reached[name] != (what == changes || what == limits) {
			t.Errorf("%s was reached: %v; all that was: %q", name, reached[name], slices.Sorted(maps.Keys(reached)))
		}
	}
}
