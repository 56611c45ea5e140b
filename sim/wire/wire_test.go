// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// defines are the numbers of protocol.h by name.
func defines(t *testing.T) map[string]uint64 {
	t.Helper()
	src, err := os.ReadFile("../lib/protocol.h")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	re := regexp.MustCompile(`(?m)^#define\s+GPUSIM_([A-Z0-9_]+)[ \t]+(\S+)`)
	for _, m := range re.FindAllStringSubmatch(string(src), -1) {
		v := m[2]
		if v == "UINT64_MAX" {
			v = "0xFFFFFFFFFFFFFFFF"
		}
		n, err := strconv.ParseUint(v, 0, 64)
		if err != nil {
			t.Fatalf("GPUSIM_%s: %v", m[1], err)
		}
		got[m[1]] = n
	}
	return got
}

func TestNumbersEqualTheHeader(t *testing.T) {
	want := map[string]uint64{
		"VERSION": Version, "MAX_TEXT": MaxText, "MAX_VALS": MaxVals, "MAX_PROCESSES": MaxProcesses,
		"MIG_VALS": MIGVals, "NARGS": NArgs, "UNKNOWN": Unknown,
		"OK": uint64(OK), "INVALID": uint64(Invalid), "NOT_SUPPORTED": uint64(NotSupported),
		"NO_PERMISSION": uint64(NoPermission), "NOT_FOUND": uint64(NotFound), "OUT_OF_MEMORY": uint64(OutOfMemory),
		"LOST": uint64(Lost), "IN_USE": uint64(InUse), "INSUFFICIENT": uint64(Insufficient),
		"TIMEOUT": uint64(Timeout), "UNKNOWN_ERROR": uint64(UnknownError), "INVALID_LIMIT": uint64(InvalidLimit),
		"BAD_VERSION": uint64(BadVersion), "SERVER_GONE": uint64(ServerEnded), "LOCKED": uint64(Locked),
		"CANNOT_OPEN": uint64(CannotOpen), "BAD_ADDRESS": uint64(BadAddress), "FAILED_LAUNCH": uint64(FailedLaunch),
		"NOT_READY": uint64(NotReady), "OP_MPS_STATE": uint64(OpMPSState),
		"OP_MPS_SERVE": uint64(OpMPSServe), "OP_MPS_JOIN": uint64(OpMPSJoin),
		"OP_SYSTEM": uint64(OpSystem), "OP_WAIT_EVENT": uint64(OpWaitEvent), "OP_GPU_INFO": uint64(OpGPUInfo),
		"OP_MEMORY": uint64(OpMemory), "OP_UTILIZATION": uint64(OpUtilization), "OP_PROCESSES": uint64(OpProcesses),
		"OP_TOPOLOGY": uint64(OpTopology), "OP_NVLINK": uint64(OpNVLink), "OP_MIG_MODE": uint64(OpMIGMode),
		"OP_MIG_PROFILE": uint64(OpMIGProfile), "OP_MIG_INSTANCES": uint64(OpMIGInstances),
		"OP_MIG_SET":   uint64(OpMIGSet),
		"OP_GI_CREATE": uint64(OpGICreate), "OP_GI_DESTROY": uint64(OpGIDestroy),
		"OP_CI_CREATE": uint64(OpCICreate), "OP_CI_DESTROY": uint64(OpCIDestroy),
		"OP_SET_LIMIT": uint64(OpSetLimit), "OP_GET_LIMIT": uint64(OpGetLimit), "OP_RECOVERY": uint64(OpRecovery),
		"OP_PROCESS_UTIL": uint64(OpProcessUtil), "OP_TELEMETRY": uint64(OpTelemetry),
		"OP_COMPUTE_MODE": uint64(OpComputeMode), "OP_POWER_LIMIT": uint64(OpPowerLimit),
		"OP_INSTANCE_UTIL": uint64(OpInstanceUtil),
		"LIST_COMPUTE":     uint64(ListCompute), "LIST_GRAPHICS": uint64(ListGraphics), "LIST_MPS": uint64(ListMPS),
		"OP_CTX_CREATE": uint64(OpCtxCreate), "OP_CTX_DESTROY": uint64(OpCtxDestroy), "OP_ALLOC": uint64(OpAlloc),
		"OP_FREE": uint64(OpFree), "OP_LAUNCH": uint64(OpLaunch), "OP_RESIDE": uint64(OpReside),
		"OP_IMPORT": uint64(OpImport), "OP_EXPORT": uint64(OpExport),
		"OP_CLOCK": uint64(OpClock), "OP_COPY": uint64(OpCopy),
		"OP_CHECKPOINT": uint64(OpCheckpoint), "CHECKPOINT_STATE": uint64(CheckpointState),
		"CHECKPOINT_LOCK": uint64(CheckpointLock),
		"CHECKPOINT_SAVE": uint64(CheckpointSave), "CHECKPOINT_RESTORE": uint64(CheckpointRestore),
		"CHECKPOINT_UNLOCK": uint64(CheckpointUnlock),
		"KIND_LINEAR":       uint64(KindLinear), "KIND_ASYNC": uint64(KindAsync), "KIND_VMM": uint64(KindVMM),
		"KIND_MANAGED": uint64(KindManaged),
	}
	if d := cmp.Diff(want, defines(t)); d != "" {
		t.Errorf("package wire and protocol.h differ (-go +header):\n%s", d)
	}
}

func TestRoundTrip(t *testing.T) {
	reqs := []Request{
		{},
		{Op: OpSetLimit, Args: [NArgs]uint64{0, Unknown, 3, 4, 5, 6}, Text: "/sys/fs/cgroup/a"},
		{Op: 77, Text: strings.Repeat("x", MaxText)},
	}
	for _, want := range reqs {
		b, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeRequest(b)
		if err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	resps := []Response{
		{},
		{Status: Lost},
		{Status: -1, Vals: []uint64{1, Unknown}, Text: "a\nb"},
		{Vals: make([]uint64, MaxVals), Text: strings.Repeat("x", MaxText)},
	}
	for _, want := range resps {
		b, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeResponse(b)
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
}

func TestEncodeRefusesTooMuch(t *testing.T) {
	long := strings.Repeat("x", MaxText+1)
	if _, err := (Request{Text: long}).Encode(); !errors.Is(err, ErrPacket) {
		t.Errorf("request with long text: %v", err)
	}
	if _, err := (Response{Text: long}).Encode(); !errors.Is(err, ErrPacket) {
		t.Errorf("response with long text: %v", err)
	}
	if _, err := (Response{Vals: make([]uint64, MaxVals+1)}).Encode(); !errors.Is(err, ErrPacket) {
		t.Errorf("response with many values: %v", err)
	}
}

func TestDecodeRefusesBrokenPackets(t *testing.T) {
	good, err := Request{Op: OpAlloc, Text: "ab"}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	edit := func(i int, v byte) []byte {
		b := append([]byte(nil), good...)
		b[i] = v
		return b
	}
	tests := map[string]struct {
		packet []byte
		want   error
	}{
		"empty":             {nil, ErrPacket},
		"one byte":          {good[:1], ErrPacket},
		"header cut":        {good[:requestHeader-1], ErrPacket},
		"text cut":          {good[:len(good)-1], ErrPacket},
		"text too long":     {append(append([]byte(nil), good...), 'c'), ErrPacket},
		"padding":           {edit(requestHeader-4, 1), ErrPacket},
		"another version":   {edit(0, 9), ErrVersion},
		"version, no more":  {edit(0, 9)[:4], ErrVersion},
		"huge text length":  {edit(requestHeader-5, 0xFF), ErrPacket},
		"text length wraps": {edit(requestHeader-8, 0xFF), ErrPacket},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := DecodeRequest(tt.packet); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestStatusInWords(t *testing.T) {
	seen := map[string]Status{}
	for s := OK; s <= BadVersion+1; s++ {
		if other, ok := seen[s.Error()]; ok {
			t.Errorf("%d and %d both read %q", s, other, s.Error())
		}
		seen[s.Error()] = s
	}
}

func FuzzDecodeRequest(f *testing.F) {
	b, err := Request{Op: OpAlloc, Args: [NArgs]uint64{1, 2}, Text: "ab"}.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{2, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := DecodeRequest(in)
		if err != nil {
			if !errors.Is(err, ErrPacket) && !errors.Is(err, ErrVersion) {
				t.Fatalf("error outside the vocabulary: %v", err)
			}
			return
		}
		out, err := r.Encode()
		if err != nil || !bytes.Equal(out, in) {
			t.Fatalf("decoded %+v encodes to %x, %v; was %x", r, out, err, in)
		}
	})
}

func FuzzDecodeResponse(f *testing.F) {
	b, err := Response{Status: Lost, Vals: []uint64{1, 2}, Text: "ab"}.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := DecodeResponse(in)
		if err != nil {
			return
		}
		out, err := r.Encode()
		if err != nil || !bytes.Equal(out, in) {
			t.Fatalf("decoded %+v encodes to %x, %v; was %x", r, out, err, in)
		}
	})
}
