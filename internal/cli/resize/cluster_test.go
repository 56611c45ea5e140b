// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/test/clitest"
)

// resized is a GPUNode whose grant has so much memory.
func resized(bytes string) string {
	return `{"metadata":{"name":"n","resourceVersion":"41"},"spec":{"grantMemory":[{"podUID":"old","container":"main",` +
		`"memoryGiB":5}]},"status":{"conditions":[{"type":"Ready","status":"True"}],"grants":[{"id":"k-1",` +
		`"podUID":"u","namespace":"team","pod":"train","container":"main","shares":[{"gpu":"GPU-1","memoryBytes":` +
		bytes + `}]}]}}`
}

// The command writes the entry of the container alone, and returns when the agent has changed the cap.
func TestResizeInCluster(t *testing.T) {
	const gib10, gib12 = "10737418240", "12884901888"
	looks := []string{resized(gib10), resized(gib10), resized(gib12)} // for the change, and for the wait
	f := clitest.StartCluster(t, Commands)
	f.Lists[command.GPUNodesPath] = []string{resized(gib10)}
	f.On = func(w http.ResponseWriter, method, path, _ string) bool {
		switch {
		case path != command.GPUNodesPath+"/n":
			return false
		case method == http.MethodPatch:
			_, _ = io.WriteString(w, "{}")
		default:
			_, _ = io.WriteString(w, looks[0])
			looks = looks[min(1, len(looks)-1):]
		}
		return true
	}
	out, errOut, code := f.Call("resize", "team/train/main", "--memory", "12GiB")
	if code != command.ExitOK || out != "team/train/main: 12GiB, was 10GiB\n" {
		t.Fatalf("status %d: %s%s", code, out, errOut)
	}
	want := `"grantMemory":[{"podUID":"u","container":"main","namespace":"team","pod":"train","memoryGiB":12}]`
	if wrote := f.Writes(); len(wrote) != 1 || !strings.Contains(wrote[0], want) {
		t.Errorf("wrote %q", wrote)
	}
	for name, tt := range map[string]struct {
		args []string
		want string
		code int
	}{
		"unknown": {[]string{"team/other/main", "--memory", "12GiB"}, "no node reports a grant", command.ExitFailure},
		"MiB":     {[]string{"k-1", "--memory", "100MiB"}, "is no whole number of GiB", command.ExitUsage},
		"not given": {[]string{"k-1", "--memory", "20GiB", "--timeout", "20ms"}, "GPUMemoryResizeFailed",
			command.ExitFailure},
	} {
		if _, errOut, code := f.Call(append([]string{"resize"}, tt.args...)...); code != tt.code ||
			!strings.Contains(errOut, tt.want) {
			t.Errorf("%s: status %d: %s", name, code, errOut)
		}
	}
}
