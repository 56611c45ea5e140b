// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/model"
	"github.com/kerf-gpu/kerf/sim/wire"
)

func ptr[T any](v T) *T { return &v }

func TestParseSettings(t *testing.T) {
	tests := map[string]Set{
		"gpu=0 lost=true":    {GPUs: []int{0}, Change: model.Change{Lost: ptr(true)}},
		"lost=false gpu=all": {All: true, Change: model.Change{Lost: ptr(false)}},
		"gpu=0 xid=48@2":     {GPUs: []int{0}, Change: model.Change{XID: ptr(uint64(48)), XIDInstance: ptr(uint64(2))}},
		"gpu=3,1 xid=79":     {GPUs: []int{3, 1}, Change: model.Change{XID: ptr(uint64(79))}},
		"gpu=0 util=80":      {GPUs: []int{0}, Change: model.Change{Util: ptr(80)}},
		"gpu=0 util=auto":    {GPUs: []int{0}, Change: model.Change{Util: ptr(model.AutoUtil)}},
		"gpu=0 latency=5ms":  {GPUs: []int{0}, Change: model.Change{Latency: ptr(5 * time.Millisecond)}},
		"gpu=0 latency=8s ramp=4s": {GPUs: []int{0}, Change: model.Change{Latency: ptr(8 * time.Second),
			Ramp: 4 * time.Second}},
		"gpu=0 latency=0": {GPUs: []int{0}, Change: model.Change{Latency: ptr(time.Duration(0))}},
		"gpu=0 latency.alloc=5ms error.free=gpu-is-lost error.launch=none": {GPUs: []int{0}, Change: model.Change{
			CallLatency: map[wire.Op]time.Duration{wire.OpAlloc: 5 * time.Millisecond},
			CallStatus:  map[wire.Op]wire.Status{wire.OpFree: wire.Lost, wire.OpLaunch: wire.OK},
		}},
		"gpu=0 ecc.corrected=3 list.12=mps": {GPUs: []int{0}, Change: model.Change{
			ECCCorrected: ptr(uint64(3)), Lists: map[int]wire.List{12: wire.ListMPS},
		}},
		"gpu=0 fault.12=31": {GPUs: []int{0}, Change: model.Change{Faults: map[int]uint64{12: 31}}},
		"gpu=0 remap.pending=true remap.failed=false slowed=heat links.down=2": {GPUs: []int{0}, Change: model.Change{
			RemapPending: ptr(true), RemapFailed: ptr(false), Slowed: ptr(model.SlowedByHeat), LinksDown: ptr(2),
		}},
		"gpu=0 cost.unlisted=8MiB cost.exit=65ms": {GPUs: []int{0}, Change: model.Change{Costs: model.CostChange{
			Unlisted: ptr(8 * sharing.MiB), Exit: ptr(65 * time.Millisecond)}}},
		"gpu=all reboot=true": {All: true, Change: model.Change{Reboot: true}},
		"gpu=all peak=now":    {All: true, Change: model.Change{CountPeak: true}},
		"gpu=0 reset=true":    {GPUs: []int{0}, Change: model.Change{Reset: true}},
		"gpu=0 xid=13 util=0": {GPUs: []int{0}, Change: model.Change{XID: ptr(uint64(13)), Util: ptr(0)}},
	}
	for words, want := range tests {
		got, err := ParseSettings(strings.Fields(words))
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", words, err, d)
		}
	}
}

func TestParseSettingsRefuses(t *testing.T) {
	tests := map[string][]string{ // words to what must be in the error
		"":                             {"gpu is missing"},
		"util=80":                      {"gpu is missing"},
		"gpu=0":                        {"gpu is all that is given"},
		"gpu":                          {"gpu has no ="},
		"gpu= util=1":                  {`gpu does not name`},
		"gpu=-1 util=1":                {`gpu "-1"`},
		"gpu=64 util=1":                {`gpu "64"`},
		"gpu=0 remap.pending=1":        {`remap.pending "1"`},
		"gpu=0 remap.lost=true":        {`remap.lost "true"`},
		"gpu=0 slowed=cold":            {`slowed "cold"`},
		"gpu=0 links.down=-1":          {`links.down "-1"`},
		"gpu=0 links.up=1":             {`links.up "1"`},
		"gpu=0,0 util=1":               {`gpu "0,0"`},
		"gpu=0, util=1":                {`gpu "0,"`},
		"gpu=99999999999999999 util=1": {"does not name"},
		"gpu=0 gpu=1 util=1":           {`gpu "1" is given twice`},
		"gpu=0 lost=yes":               {`lost "yes"`},
		"gpu=0 lost=1":                 {`lost "1"`},
		"gpu=0 reset=false":            {`reset "false"`},
		"gpu=0 reboot=1":               {`reboot "1"`},
		"gpu=0 peak=0":                 {`peak "0"`},
		"gpu=0 xid=0":                  {`xid "0"`},
		"gpu=0 xid=-79":                {`xid "-79"`},
		"gpu=0 xid=48@x":               {"is not an XID"},
		"gpu=0 xid=4294967375":         {"is not an XID"},
		"gpu=0 util=101":               {`util "101"`},
		"gpu=0 util=80%":               {`util "80%"`},
		"gpu=0 cost.unlisted=8XB":      {"cost.unlisted", "8MiB"},
		"gpu=0 cost.stream=2GiB":       {"up to 1GiB"},
		"gpu=0 cost.exit=2m":           {"up to 1m0s"},
		"gpu=0 cost.listed=8MiB":       {"write cost.context"},
		"gpu=0 latency=5":              {`latency "5"`},
		"gpu=0 latency=-5ms":           {`latency "-5ms"`},
		"gpu=0 latency=25h":            {`latency "25h"`},
		"gpu=0 latency=1s ramp=5":      {`ramp "5"`},
		"gpu=0 latency.nothing=5ms": {"alloc, checkpoint, ci-create, ci-destroy, clock, compute-mode",
			"names no call"},
		"gpu=0 latency.alloc=5":         {`latency.alloc "5"`},
		"gpu=0 error.alloc=oom":         {`error.alloc "oom"`, "out-of-memory"},
		"gpu=0 ecc.other=1":             {`ecc.other "1"`},
		"gpu=0 ecc.corrected=-1":        {`ecc.corrected "-1"`},
		"gpu=0 list.0=mps":              {`list.0 "mps"`},
		"gpu=0 list.1=mpsx":             {`list.1 "mpsx"`},
		"gpu=0 colour=red":              {`colour "red"`, "gpu=N|all"},
		"gpu=x util=y xid=z a lost=old": {`gpu "x"`, `util "y"`, `xid "z"`, "a has no =", `lost "old"`},
	}
	for words, want := range tests {
		_, err := ParseSettings(strings.Fields(words))
		if !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%q: %v", words, err)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %q is missing in %v", words, w, err)
			}
		}
	}
}

func TestErrorsKeepTheirKind(t *testing.T) {
	for _, kind := range kinds() {
		got := Refuse(fmt.Errorf("reset gpu 0: %w", kind)).Err()
		if !errors.Is(got, kind) || !strings.HasPrefix(got.Error(), "reset gpu 0: ") {
			t.Errorf("%v became %v", kind, got)
		}
	}
	if got := Refuse(errors.New("odd")).Err(); got == nil || got.Error() != "odd" ||
		errors.Is(got, sharing.ErrInvalid) {
		t.Errorf("an error without a kind became %v", got)
	}
	if err := (Answer{}).Err(); err != nil {
		t.Errorf("an answer without error has %v", err)
	}
}

func FuzzParseSettings(f *testing.F) {
	f.Add("gpu=0 lost=true")
	f.Add("gpu=all,1 xid=79 util=auto latency=1h reset=true")
	f.Fuzz(func(t *testing.T, line string) {
		s, err := ParseSettings(strings.Fields(line))
		if err != nil {
			if !errors.Is(err, sharing.ErrInvalid) {
				t.Fatalf("error outside the vocabulary: %v", err)
			}
			return
		}
		if !s.All && len(s.GPUs) == 0 {
			t.Fatalf("%q names no GPU", line)
		}
	})
}
