// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
)

// machineFile is a machine file as written. Pointers tell "not given" from zero.
type machineFile struct {
	Name        string              `yaml:"name"`
	Description string              `yaml:"description"`
	Memacct     string              `yaml:"memacct"`
	NVSwitch    bool                `yaml:"nvswitch"`
	Models      map[string]modelDoc `yaml:"models"`
	GPUs        []gpuDoc            `yaml:"gpus"`
}

type gpuDoc struct {
	Model string  `yaml:"model"`
	PCI   string  `yaml:"pci"`
	NUMA  *int    `yaml:"numa"`
	MIG   *migDoc `yaml:"mig"`
}

type migDoc struct {
	Instances []instanceDoc `yaml:"instances"`
}

type instanceDoc struct {
	Profile string `yaml:"profile"`
	Start   int    `yaml:"start"`
}

type modelDoc struct {
	Name              string       `yaml:"name"`
	Architecture      string       `yaml:"architecture"`
	Brand             string       `yaml:"brand"`
	ComputeCapability string       `yaml:"compute_capability"`
	MemoryMiB         int          `yaml:"memory_mib"`
	ReservedMiB       int          `yaml:"reserved_mib"`
	SystemMemory      bool         `yaml:"system_memory"`
	ContextMiB        int          `yaml:"context_mib"`
	BAR1MiB           int          `yaml:"bar1_mib"`
	SMs               int          `yaml:"sms"`
	MaxThreadsPerSM   int          `yaml:"max_threads_per_sm"`
	PowerLimitW       int          `yaml:"power_limit_w"`
	SMClockMHz        int          `yaml:"sm_clock_mhz"`
	MemoryClockMHz    int          `yaml:"memory_clock_mhz"`
	PCIDeviceID       uint32       `yaml:"pci_device_id"`
	PCISubsystemID    uint32       `yaml:"pci_subsystem_id"`
	NVLinks           int          `yaml:"nvlinks"`
	Costs             costsDoc     `yaml:"costs"`
	MIG               *modelMIGDoc `yaml:"mig"`
}

type costsDoc struct {
	ContextMS   int `yaml:"context_ms"`
	ListMS      int `yaml:"list_ms"`
	ExitMS      int `yaml:"exit_ms"`
	StreamKiB   int `yaml:"stream_kib"`
	UnlistedKiB int `yaml:"unlisted_kib"`
	SliceUS     int `yaml:"slice_us"`
	SwitchUS    int `yaml:"switch_us"`
	PreemptUS   int `yaml:"preempt_us"`
}

type modelMIGDoc struct {
	MaxDevices    int          `yaml:"max_devices"`
	ComputeSlices int          `yaml:"compute_slices"`
	MemorySlices  int          `yaml:"memory_slices"`
	Profiles      []profileDoc `yaml:"profiles"`
}

type profileDoc struct {
	Name        string `yaml:"name"`
	Index       int    `yaml:"index"`
	ID          int    `yaml:"id"`
	Slices      int    `yaml:"slices"`
	MemoryMiB   int    `yaml:"memory_mib"`
	SMs         int    `yaml:"sms"`
	Size        int    `yaml:"size"`
	Starts      []int  `yaml:"starts"`
	Max         int    `yaml:"max"`
	CopyEngines int    `yaml:"copy_engines"`
	Decoders    int    `yaml:"decoders"`
	Encoders    int    `yaml:"encoders"`
	JPEGs       int    `yaml:"jpegs"`
	OFAs        int    `yaml:"ofas"`
}

// decode reads one YAML document strictly: unknown and duplicate keys, wrong types and a second document are
// errors, and all of them are reported.
func decode(name string, data []byte) (machineFile, []error) {
	var doc machineFile
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	err := dec.Decode(&doc)
	var te *yaml.TypeError
	switch {
	case errors.Is(err, io.EOF):
		return doc, []error{fmt.Errorf("%s: is empty: %w", name, sharing.ErrInvalid)}
	case errors.As(err, &te):
		var errs []error
		for _, m := range te.Errors {
			errs = append(errs, fmt.Errorf("%s: %s: %w", name, m, sharing.ErrInvalid))
		}
		return doc, errs
	case err != nil:
		return doc, []error{fmt.Errorf("%s: %w (%w)", name, err, sharing.ErrInvalid)}
	}
	if err := dec.Decode(&machineFile{}); !errors.Is(err, io.EOF) {
		return doc, []error{fmt.Errorf("%s: has more than one document: %w", name, sharing.ErrInvalid)}
	}
	return doc, nil
}

// Parse reads a machine file. builtin is a machine file whose models it may name in addition to its own; name stands
// for the file in errors. All errors are joined into one, which is sharing.ErrInvalid.
func Parse(name string, data, builtin []byte) (Machine, error) {
	base, errs := decode("built-in models", builtin)
	doc, more := decode(name, data)
	if errs = append(errs, more...); len(errs) > 0 {
		return Machine{}, errors.Join(errs...)
	}
	c := checker{models: map[string]Model{}}
	for _, set := range []map[string]modelDoc{base.Models, doc.Models} {
		c.addModels(set)
	}
	m := c.machine(doc)
	if len(c.errs) > 0 {
		return Machine{}, fmt.Errorf("%s: %w", name, errors.Join(c.errs...))
	}
	return m, nil
}
