// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"reflect"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

func TestWanted(t *testing.T) {
	one := []config.MIGCount{{Profile: "1g", Count: 1}}
	g := sharing.GPU{Index: 1, Hardware: sharing.Hardware{Product: 0x233010DE, Board: 0x16C110DE}}
	tests := map[string]struct {
		pool config.Pool
		want Desired
	}{
		"nothing said":    {config.Pool{}, Desired{Leave: true, Auto: true}},
		"as pods request": {config.Pool{AutoMIGMode: config.AutoMIGModeOn}, Desired{Leave: true, Auto: true}},
		"not as demand":   {config.Pool{AutoMIGMode: config.AutoMIGModeOff}, Desired{Leave: true}},
		"next to a layout": {config.Pool{MIGLayouts: []config.MIGLayout{{GPUs: []int{0}, Enabled: true}}},
			Desired{Leave: true, Auto: true}},
		"in a layout":      {config.Pool{MIGLayouts: []config.MIGLayout{{GPUs: []int{1}}}}, Desired{}},
		"a pool of shares": {config.Pool{Mode: config.ModeShared}, Desired{Leave: true}},
		"a pool of wholes": {config.Pool{Mode: config.ModeWhole}, Desired{Leave: true}},
		"a pool of MIG":    {config.Pool{Mode: config.ModeMIG}, Desired{On: true}},
		"all GPUs": {config.Pool{MIGLayouts: []config.MIGLayout{{Enabled: true, Instances: one}}},
			Desired{On: true, Fixed: one}},
		"off in a MIG pool": {config.Pool{Mode: config.ModeMIG, MIGLayouts: []config.MIGLayout{{}}}, Desired{}},
		"none of a profile": {config.Pool{
			MIGLayouts: []config.MIGLayout{{Enabled: true, Instances: []config.MIGCount{{Profile: "1g"}}}}},
			Desired{On: true}},
		"shared instances": {config.Pool{MIGLayouts: []config.MIGLayout{{Enabled: true, Instances: one, Shared: true}}},
			Desired{On: true, Fixed: one, Shared: true}},
		"the last one": {config.Pool{MIGLayouts: []config.MIGLayout{
			{Enabled: true}, {GPUs: []int{0, 1}, Enabled: true, Instances: one}, {GPUs: []int{0}},
		}}, Desired{On: true, Fixed: one}},
		"another GPU": {config.Pool{MIGLayouts: []config.MIGLayout{{GPUs: []int{0}, Enabled: true}}},
			Desired{Leave: true, Auto: true}},
		"another product": {config.Pool{MIGLayouts: []config.MIGLayout{{PCI: []string{"0x20B010DE"}, Enabled: true}}},
			Desired{Leave: true, Auto: true}},
		"its product": {config.Pool{MIGLayouts: []config.MIGLayout{{PCI: []string{"0x20B010DE", "0x233010de"},
			Enabled: true}}}, Desired{On: true}},
		"its board": {config.Pool{MIGLayouts: []config.MIGLayout{{PCI: []string{"0x233010DE:0x16C110DE"},
			Enabled: true}}},
			Desired{On: true}},
		"another board": {config.Pool{MIGLayouts: []config.MIGLayout{{PCI: []string{"0x233010DE:0x16C210DE"},
			Enabled: true}}},
			Desired{Leave: true, Auto: true}},
	}
	for name, tt := range tests {
		if got := Wanted(tt.pool, g); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
