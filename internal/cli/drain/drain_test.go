// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/test/clitest"
)

// drainedNode is a GPUNode of one GPU with these grants.
func drainedNode(cordoned string, grants ...string) string {
	return fmt.Sprintf(
		`{"metadata":{"name":"n","resourceVersion":"41"},"status":{"conditions":[{"type":"Ready","status":"True"}],"gpus":[{"uuid":"GPU-abc","index":0,"health":"healthy","cordoned":%q}],"grants":[%s]}}`, cordoned, strings.Join(grants, ","))
}

func grantOn(pod, gpu string) string {
	return fmt.Sprintf(
		`{"id":"c-%s","podUID":"u-%s","namespace":"team","pod":%q,"container":"main","shares":[{"gpu":%q,"memoryBytes":1}]}`, pod, pod, pod, gpu)
}

// draining answers the requests for the node one after the other, the last one for ever.
func drainingCluster(t *testing.T, evict int, looks ...string) *clitest.Cluster {
	t.Helper()
	looks = append(looks[:1:1], looks...) // the first is for the mark
	f := clitest.StartCluster(t, Commands)
	f.Lists[command.GPUNodesPath] = []string{drainedNode("", grantOn("a", "GPU-abc"))}
	f.On = func(w http.ResponseWriter, method, path, _ string) bool {
		switch {
		case method == http.MethodPatch && path == command.GPUNodesPath+"/n":
			_, _ = io.WriteString(w, "{}")
		case method == http.MethodGet && path == command.GPUNodesPath+"/n":
			_, _ = io.WriteString(w, looks[0])
			if len(looks) > 1 {
				looks = looks[1:]
			}
		case path == "/api/v1/namespaces/team/pods/a":
			_,
				_ = io.WriteString(w,
				`{"metadata":{"name":"a","namespace":"team","uid":"u-a","ownerReferences":[{"kind":"ReplicaSet","name":"r","controller":true}]}}`)
		case path == "/api/v1/namespaces/team/pods/bare":
			_, _ = io.WriteString(w, `{"metadata":{"name":"bare","namespace":"team","uid":"u-bare"}}`)
		case strings.HasSuffix(path, "/eviction"):
			w.WriteHeader(evict)
			_, _ = io.WriteString(w, `{"message":"a budget"}`)
		default:
			return false
		}
		return true
	}
	return f
}

func TestDrainWaits(t *testing.T) {
	f := drainingCluster(t, 201, drainedNode("", grantOn("a", "GPU-abc")), drainedNode("why", grantOn("a", "GPU-abc"),
		grantOn("b", "GPU-other")), drainedNode("why", grantOn("b", "GPU-other")))
	out, errOut, code := f.Call("cordon", "n/0", "--wait", "--reason", "fan")
	if code != command.ExitOK || !strings.Contains(out, "is drained") ||
		!strings.Contains(out, "kubectl kerf uncordon n/0") {
		t.Fatalf("status %d: %s%s", code, out, errOut)
	}
	for _, want := range []string{"waits until the agent of n has read the mark", "waits for team/a"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("no %q in %s", want, errOut)
		}
	}
	wrote := f.Writes()
	if len(wrote) != 1 || !strings.Contains(wrote[0], `"GPU-abc":{"reason":"fan","by":`) ||
		!strings.Contains(wrote[0], `"cordonedGPUs":[{"uuid":"GPU-abc","reason":"fan","by":`) ||
		!strings.Contains(wrote[0], `"metadata":{"resourceVersion":"41"}`) {
		t.Errorf("wrote %q", wrote)
	}
}

func TestDrainEvicts(t *testing.T) {
	f := drainingCluster(t, 201, drainedNode("why", grantOn("a", "GPU-abc"), grantOn("bare", "GPU-abc")),
		drainedNode("why"))
	out, errOut, code := f.Call("drain", "GPU-abc")
	if code != command.ExitOK || !strings.Contains(errOut, "evicts team/a") ||
		!strings.Contains(errOut, "does not evict team/bare") {
		t.Fatalf("status %d: %s%s", code, out, errOut)
	}
	wrote := f.Writes()
	if len(wrote) != 2 || !strings.Contains(wrote[1], "POST /api/v1/namespaces/team/pods/a/eviction") ||
		!strings.Contains(wrote[1], `"preconditions":{"uid":"u-a"}`) {
		t.Errorf("wrote %q", wrote)
	}
	f = drainingCluster(t, 429, drainedNode("why", grantOn("bare", "GPU-abc")), drainedNode("why"))
	if _, errOut, code = f.Call("drain", "GPU-abc", "--force"); code != command.ExitOK ||
		!strings.Contains(errOut, "cannot evict team/bare yet") {
		t.Errorf("a budget: status %d: %s", code, errOut)
	}
}

func TestDrainEnds(t *testing.T) {
	busy := drainedNode("why", grantOn("a", "GPU-abc"))
	f := drainingCluster(t, 201, busy)
	if _, errOut, code := f.Call("drain", "n/0", "--timeout", "20ms"); code != command.ExitFailure ||
		!strings.Contains(errOut, "after 20ms GPU n/0") || !strings.Contains(errOut, "the mark stays") {
		t.Errorf("status %d: %s", code, errOut)
	}
	if out, _, code := f.Call("cordon", "n/0"); code != command.ExitOK || !strings.Contains(out, "takes no new grant") {
		t.Errorf("status %d: %s", code, out)
	}
	if out, _, code := f.Call("uncordon", "n/0"); code != command.ExitOK || !strings.Contains(out, "takes new grants") {
		t.Errorf("status %d: %s", code, out)
	}
	for state, name := range map[string]string{"cordoned": "cordon", "uncordoned": "uncordon"} {
		want := "{\n  \"gpu\": \"GPU-abc\",\n  \"node\": \"n\",\n  \"name\": \"n/0\",\n  \"state\": \"" + state +
			"\"\n}\n"
		if out, _, code := f.Call(name, "n/0", "-o", "json"); code != command.ExitOK || out != want {
			t.Errorf("%s: status %d: %s", state, code, out)
		}
		if _, errOut, code := f.Call(name, "n/0", "-o", "csv"); code != command.ExitUsage ||
			!strings.Contains(errOut, "is not a form of output") {
			t.Errorf("%s: status %d: %s", name, code, errOut)
		}
	}
	if out, _, code := f.Call("uncordon", "n/0", "-o", "yaml"); code != command.ExitOK ||
		!strings.Contains(out, "state: \"uncordoned\"\n") {
		t.Errorf("status %d: %s", code, out)
	}
	wrote := f.Writes()
	if last := wrote[len(wrote)-1]; !strings.Contains(last, `"spec":{"cordoned":{},"cordonedGPUs":[]}`) {
		t.Errorf("wrote %q", last)
	}
}

func TestDrainRefuses(t *testing.T) {
	f := clitest.StartCluster(t, Commands)
	for name, tt := range map[string]struct {
		args []string
		want string
		code int
	}{
		"no such GPU":   {[]string{"n/7"}, `GPU "n/7": there is none; there are gpu-1/0, gpu-1/1`, command.ExitFailure},
		"the beginning": {[]string{"GPU-gpu-1"}, "2 GPUs begin so", command.ExitFailure},
		"timeout alone": {[]string{"gpu-1/0", "--timeout", "1s"}, "add --wait", command.ExitUsage},
		"in the past":   {[]string{"gpu-1/0", "--wait", "--timeout", "-1s"}, "is below zero", command.ExitUsage},
		"no such flag":  {[]string{"gpu-1/0", "--evict"}, "unknown flag", command.ExitUsage},
		"no right":      {[]string{"gpu-1/0"}, "mark GPU gpu-1/0: change gpunode gpu-1", command.ExitFailure},
	} {
		if _, errOut, code := f.Call(append([]string{"cordon"}, tt.args...)...); code != tt.code ||
			!strings.Contains(errOut, tt.want) {
			t.Errorf("%s: status %d: %s", name, code, errOut)
		}
	}
}

// Uncordon clears the mark of either form, and meets a change by another writer.
func TestUncordonRetries(t *testing.T) {
	f := drainingCluster(t, 201, strings.Replace(drainedNode("why"), `"status"`,
		`"spec":{"cordoned":{"GPU-abc":{"reason":"fan"},"GPU-x":{"reason":"y"}}},"status"`, 1))
	on, tries := f.On, 0
	f.On = func(w http.ResponseWriter, method, path, body string) bool {
		if method == http.MethodPatch {
			if tries++; tries == 1 {
				w.WriteHeader(http.StatusConflict)
				return true
			}
		}
		return on(w, method, path, body)
	}
	if out, errOut, code := f.Call("uncordon", "n/0"); code != command.ExitOK || tries != 2 {
		t.Fatalf("status %d after %d tries: %s%s", code, tries, out, errOut)
	}
	wrote := f.Writes()
	want := `"spec":{"cordoned":{"GPU-abc":null,"GPU-x":{"reason":"y"}},"cordonedGPUs":[{"uuid":"GPU-x","reason":"y"}]}`
	if last := wrote[len(wrote)-1]; !strings.Contains(last, want) {
		t.Errorf("wrote %q", last)
	}
}
