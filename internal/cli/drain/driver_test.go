// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
)

// driverNode is a GPUNode whose agent has read the spec of the generation, with the reason of DriverReady.
func driverNode(observed, reason string, grants ...string) string {
	n := strings.Replace(drainedNode("", grants...), `"resourceVersion":"41"`, `"resourceVersion":"41","generation":2`, 1)
	n = strings.Replace(n, `"status":{`, `"status":{"observedGeneration":`+observed+`,`, 1)
	return strings.Replace(n, `"conditions":[`, `"conditions":[{"type":"DriverReady","reason":"`+reason+`"},`, 1)
}

// A drain of the driver evicts the pods of all GPUs, and ends when agent and monitor have released the driver.
func TestDrainDriver(t *testing.T) {
	f := drainingCluster(t, 201, driverNode("1", "DriverAnswers"), driverNode("1", "DriverAnswers"),
		driverNode("2", "DriverAnswers", grantOn("a", "GPU-other")), driverNode("2", "DriverAnswers"),
		driverNode("2", "Released"))
	out, errOut, code := f.Call("drain", "--driver", "n", "--reason", "580 to 590")
	if code != command.ExitOK ||
		out != "NVIDIA driver of n is released: its modules can be unloaded; to use it again: "+
			"kubectl kerf uncordon --driver n\n" {
		t.Fatalf("status %d: %s%s", code, out, errOut)
	}
	for _, want := range []string{"NVIDIA driver of n waits until the agent of n has read the mark", "evicts team/a",
		"waits until kerf-agent and kerf-monitor release it"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("no %q in %s", want, errOut)
		}
	}
	wrote := f.Writes()
	if len(wrote) != 2 || !strings.Contains(wrote[0], `"driverDrain":{"reason":"580 to 590","by":"`) ||
		!strings.Contains(wrote[1], "/pods/a/eviction") {
		t.Errorf("wrote %q", wrote)
	}
	out, errOut, code = f.Call("uncordon", "--driver", "n", "-o", "json")
	want := "{\n  \"node\": \"n\",\n  \"name\": \"n\",\n  \"state\": \"uncordoned\"\n}\n"
	if code != command.ExitOK || out != want {
		t.Errorf("status %d: %s%s", code, out, errOut)
	}
}

// The end of a drain removes the mark. A drain that does not end in time names what it waits for.
func TestDrainDriverEnds(t *testing.T) {
	marked := strings.Replace(driverNode("2", "Released"), `"status"`,
		`"spec":{"driverDrain":{"reason":"r","by":"b","since":""}},"status"`, 1)
	f := drainingCluster(t, 201, marked)
	if out, errOut, code := f.Call("uncordon", "--driver", "n"); code != command.ExitOK ||
		!strings.Contains(out, "NVIDIA driver of n is in use again") {
		t.Errorf("status %d: %s%s", code, out, errOut)
	}
	if wrote := f.Writes(); !strings.Contains(wrote[len(wrote)-1], `"driverDrain":null`) {
		t.Errorf("wrote %q", wrote)
	}
	f = drainingCluster(t, 201, driverNode("2", "DriverAnswers"))
	if _, errOut, code := f.Call("drain", "--driver", "n", "--timeout", "20ms"); code != command.ExitFailure ||
		!strings.Contains(errOut, "after 20ms NVIDIA driver of n waits until kerf-agent") {
		t.Errorf("status %d: %s", code, errOut)
	}
	if _, errOut, code := f.Call("drain", "--driver", "other"); code != command.ExitFailure ||
		!strings.Contains(errOut, "read gpunode other") {
		t.Errorf("status %d: %s", code, errOut)
	}
}
