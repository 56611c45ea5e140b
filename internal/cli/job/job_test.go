// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/test/clitest"
)

// jobCluster runs a Job: its pod shows the given containers' states one after the other, the last one for ever.
func jobCluster(t *testing.T, states ...string) *clitest.Cluster {
	t.Helper()
	f := clitest.StartCluster(t, Commands)
	f.On = func(w http.ResponseWriter, method, path, _ string) bool {
		jobs := "/apis/batch/v1/namespaces/team/jobs"
		switch {
		case method == http.MethodPost && path == jobs:
			_, _ = io.WriteString(w, `{"metadata":{"name":"kerf-run-x"}}`)
		case method == http.MethodDelete && path == jobs+"/kerf-run-x":
			_, _ = io.WriteString(w, `{}`)
		case path == "/api/v1/namespaces/team/pods":
			_,
				_ = fmt.Fprintf(w,
				`{"items":[{"metadata":{"name":"p","namespace":"team","uid":"u"},"spec":{"nodeName":"gpu-1"},"status":{"containerStatuses":[{"name":"main","state":%s}]}}]}`, states[0])
			if len(states) > 1 {
				states = states[1:]
			}
		case path == "/api/v1/namespaces/team/pods/p/log":
			_, _ = io.WriteString(w, "hello\n")
		default:
			return false
		}
		return true
	}
	return f
}

func TestRunInACluster(t *testing.T) {
	const done = `{"terminated":{"exitCode":%d,"reason":%q,"startedAt":"2026-01-01T00:00:00Z"}}`
	f := jobCluster(t, `{"waiting":{"reason":"ContainerCreating"}}`, `{"running":{}}`,
		fmt.Sprintf(done, 0, "Completed"))
	out, errOut, code := f.Call("run", "--image", "cuda:12", "--memory", "10000MiB", "--gpus", "2", "--gpu-model",
		"*H100*", "-e", "A=b", "--", "python", "x.py")
	if code != command.ExitOK || out != "hello\n" || !strings.Contains(errOut, "rounded up to 5GiB") {
		t.Fatalf("status %d: %s%s", code, out, errOut)
	}
	wrote := f.Writes()
	if len(wrote) != 2 || !strings.HasPrefix(wrote[1], "DELETE /apis/batch/v1/namespaces/team/jobs/kerf-run-x") {
		t.Fatalf("wrote %q", wrote)
	}
	var j batchv1.Job
	_, body, _ := strings.Cut(wrote[0], "jobs ")
	if err := json.Unmarshal([]byte(body), &j); err != nil {
		t.Fatal(err)
	}
	pod := j.Spec.Template
	limits := pod.Spec.Containers[0].Resources.Limits
	if q := limits["kerf.dev/gpu-memory-gib"]; q.Value() != 10 || pod.Annotations["kerf.dev/gpu-count"] != "2" ||
		pod.Annotations["kerf.dev/gpu-model"] != "*H100*" || pod.Spec.SchedulerName != "kerf-scheduler" ||
		*j.Spec.BackoffLimit != 0 {
		t.Errorf("job %s", body)
	}
	f = jobCluster(t, fmt.Sprintf(done, 7, "Error"))
	if out, errOut, code := f.Call("run", "--image", "i", "--gpus", "1", "--keep", "--", "false"); code != 7 ||
		out != "hello\n" || !strings.Contains(errOut, "kubectl delete job kerf-run-x -n team") || len(f.Writes()) != 1 {
		t.Errorf("status %d: %s%s %q", code, out, errOut, f.Writes())
	}
	if out, _, code := f.Call("run", "--image", "i", "--gpus", "1", "--detach"); code != command.ExitOK ||
		out != "job.batch/kerf-run-x\n" {
		t.Errorf("status %d: %s", code, out)
	}
}

func TestRunInAClusterRefuses(t *testing.T) {
	f := clitest.StartCluster(t, Commands)
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no image":          {[]string{"--memory", "1GiB", "--", "a"}, "in a cluster a command runs in a container"},
		"nothing requested": {[]string{"--image", "i", "--", "a"}, "requests nothing"},
		"a size of MIG":     {[]string{"--image", "i", "--mig", ">= 16GiB", "--", "a"}, "cannot be requested by a pod"},
		"no right":          {[]string{"--image", "i", "--gpus", "1", "--", "a"}, "create the Job in namespace team"},
	} {
		if _, errOut, code := f.Call(append([]string{"run"}, tt.args...)...); code != ExitRefused ||
			!strings.Contains(errOut, tt.want) {
			t.Errorf("%s: status %d: %s", name, code, errOut)
		}
	}
}

func TestImageEnvironment(t *testing.T) {
	o := Options{Env: []string{"A=1", "HOME", "UNSET", "B="}}
	got := o.Environment([]string{"HOME=/root", "HOMER=x", "A=2"})
	if diff := cmp.Diff([]string{"A=1", "HOME=/root", "B="}, got); diff != "" {
		t.Error(diff)
	}
}
