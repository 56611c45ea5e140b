// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/kerf-gpu/kerf/sharing"
)

// listing is a library with one GPU and the two lists, which are as long as a file says; 999 is a GPU that is lost.
const listing = `
#include <stdio.h>

typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process;
typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } sample;

static int gpu;

static unsigned long_as_said(void)
{
	unsigned n = 0;
	FILE *f = fopen(FILE_NAME, "r");
	if (f) {
		if (fscanf(f, "%u", &n) != 1)
			n = 0;
		fclose(f);
	}
	return n;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **dev)
{
	*dev = &gpu;
	return uuid[0] == 'G' ? 0 : 2;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *dev, unsigned *count, process *out)
{
	unsigned n = long_as_said(), room = *count;
	if (dev != &gpu)
		return 2;
	if (n == 999)
		return 15;
	*count = n;
	if (n > room)
		return 7;
	for (unsigned i = 0; i < n; i++)
		out[i] = (process){ 100 + i, i << 20, 0xFFFFFFFF, 0xFFFFFFFF };
	return 0;
}

int nvmlDeviceGetProcessUtilization(void *dev, sample *out, unsigned *count, unsigned long long since)
{
	unsigned n = long_as_said(), room = *count;
	if (dev != &gpu)
		return 2;
	if (n == 999)
		return 15;
	*count = n;
	if (n == 0)
		return 6;
	if (n > room)
		return 7;
	for (unsigned i = 0; i < n; i++)
		out[i] = (sample){ 100 + i, since, i % 100, 1, 2, 3 };
	return 0;
}
`

// named is a GPU of which go-nvml tells the name alone.
type named struct{ nvml.Device }

func (named) GetUUID() (string, nvml.Return) { return "GPU-1", nvml.SUCCESS }

// TestListsInOneQuestion has lists that outgrow their buffer, shrink, and fail. After growth or an error, go-nvml has
// to ask again. In all other cases the library is asked once.
func TestListsInOneQuestion(t *testing.T) {
	dir := t.TempDir()
	length, source, library := filepath.Join(dir, "length"), filepath.Join(dir, "listing.c"),
		filepath.Join(dir, "liblisting.so")
	if err := os.WriteFile(source, []byte(listing), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", `-DFILE_NAME="`+length+`"`, "-o", library,
		source).CombinedOutput(); err != nil {
		t.Fatalf("build a library: %v\n%s", err, out)
	}
	lim, err := openHandles(library)
	if err != nil {
		t.Fatal(err)
	}
	defer lim.close()
	l := openLists(lim)
	var before []resident
	for _, s := range []struct {
		long string
		n    int
		ok   bool
		same bool // the slice is the one before
	}{
		{"0", 0, true, false}, {"1", 1, true, false}, {"1", 1, true, true}, {"32", 32, true, false},
		{"33", 0, false, false}, {"33", 33, true, false},
		{"33", 33, true, true}, {"65", 65, true, false}, {"66", 0, false, false}, {"999", 0, false, false},
		{"66", 66, true, false}, {"2", 2, true, false}, {"0", 0, true, false},
	} {
		if err := os.WriteFile(length, []byte(s.long), 0o600); err != nil {
			t.Fatal(err)
		}
		got, ok := l.compute(named{})
		if ok != s.ok || len(got) != s.n {
			t.Errorf("%s processes: %d, %v", s.long, len(got), ok)
		}
		for i, r := range got {
			if r.pid != 100+i || uint64(r.used) != uint64(i)<<20 || !r.known || r.gi != noInstance {
				t.Errorf("process %d of %s is %+v", i, s.long, r)
			}
		}
		if same := len(got) > 0 && len(before) > 0 && &got[0] == &before[0]; same != s.same {
			t.Errorf("%s processes: the slice before: %v", s.long, same)
		}
		before = got
		times, ok := l.processTimes(named{}, 7)
		if ok != s.ok || len(times) != s.n {
			t.Errorf("what %s processes did: %d, %v", s.long, len(times), ok)
		}
		for i, x := range times {
			if x != (sharing.TimeRow{PID: 100 + i, At: time.UnixMicro(7), SM: i % 100, Memory: 1, Encoder: 2,
				Decoder: 3}) {
				t.Errorf("what process %d of %s did is %+v", i, s.long, x)
			}
		}
	}
}

// TestListsOfAnOldLibrary: without the functions go-nvml has to ask.
func TestListsOfAnOldLibrary(t *testing.T) {
	l := &lists{handles: &handles{}, gpus: map[nvml.Device]*listed{}}
	if got, ok := l.compute(named{}); ok || got != nil {
		t.Errorf("processes: %v, %v", got, ok)
	}
	if got, ok := l.processTimes(named{}, 7); ok || got != nil {
		t.Errorf("what they did: %v, %v", got, ok)
	}
}
