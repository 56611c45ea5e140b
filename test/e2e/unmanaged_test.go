// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// intrude starts a program on the node that uses a GPU past Kerf, and returns its process as the node numbers it,
// and how to end it.
func (e *testCase) intrude(gpu int, alloc string) (pid int, end func()) {
	e.Helper()
	const name = "unmanaged"
	run := fmt.Sprintf(`eval "$(gpusim env --dir %s)"; exec gpuload --gpu %d --alloc %s --hold 10m`,
		e.node.env["GPUSIM_DIR"], gpu, alloc)
	e.node.do(e.T, "svc", name, "/bin/sh", "-c", run)
	ended := false
	end = func() {
		if !ended {
			ended = true
			e.node.do(e.T, "kill", name)
			_ = os.Remove(filepath.Join(e.node.env["RUN"], name+".cmd")) // it is no daemon of the node's
		}
	}
	e.Cleanup(end)
	uuid := e.node.gpus(e.T)[gpu].UUID
	eventually(e, "the unmanaged process on the GPU", func() error {
		for _, s := range e.node.processes(e.T) {
			if s.GPU == uuid && !strings.Contains(s.Cgroup, "kubepods") {
				pid = s.PID
				return nil
			}
		}
		return fmt.Errorf("the driver knows %+v", e.node.processes(e.T))
	})
	return pid, end
}

// warned waits until the agent warns, or does no more, of a process on a GPU.
func (e *testCase) warned(gpu, pid int, want bool) {
	e.Helper()
	eventually(e, fmt.Sprintf("warning of process %d: %t", pid, want), func() error {
		warnings := e.picture().Warnings
		found := false
		for _, w := range warnings {
			found = found || strings.HasPrefix(w, fmt.Sprintf("GPU %d is used by processes without a grant on it",
				gpu)) && strings.Contains(w, fmt.Sprint(pid))
		}
		if found != want {
			return fmt.Errorf("it warns of %q", warnings)
		}
		return nil
	})
}

// toldOnce waits for the node's event of a process that has no grant; there is one.
func (e *testCase) toldOnce(pid int) {
	e.Helper()
	eventually(e, "event of the unmanaged process", func() error {
		list, err := e.client.CoreV1().Events(metav1.NamespaceDefault).List(background(), metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Node,reason=UnmanagedGPUProcess",
		})
		if err != nil {
			return err
		}
		times := int32(0)
		for _, ev := range list.Items {
			if strings.Contains(ev.Message, fmt.Sprintf("%d (gpuload)", pid)) {
				times += ev.Count
			}
		}
		if times > 1 {
			return final("the process is reported of %d times", times)
		}
		if times == 0 {
			return fmt.Errorf("none of %d events is of the process", len(list.Items))
		}
		return nil
	})
}

// Kerf reports a program that a user started on a GPU without a grant: on a GPU without grants, on a shared GPU, and on
// a whole GPU. Kerf then does not say that the whole GPU's grant is alone there.
func TestStranger(t *testing.T) {
	e := beginWithAgent(t)
	uuid := e.node.gpus(t)[3].UUID
	pid, end := e.intrude(3, "5GiB")
	e.warned(3, pid, true)
	e.toldOnce(pid)
	used := func() uint64 {
		for _, g := range e.picture().GPUs {
			if g.UUID == uuid {
				return g.Used
			}
		}
		return 0
	}
	if n := used(); n < 5*gib {
		t.Errorf("the agent shows %d bytes in use", n)
	}
	shared := e.create(e.pinned("shared", 3, 2, hold))
	shared.running()
	e.wantHeld(shared, "main", share(2*gib, 0))
	e.warned(3, pid, true)
	shared.delete()
	shared.released()

	spec := one("whole", wholeGPUs(1), "exec gpuload --json --alloc 1GiB --hold 1h")
	spec.annotations = map[string]string{"kerf.dev/gpu-uuid": uuid}
	whole := e.create(spec)
	whole.running()
	whole.loads("main", 1)
	e.warned(3, pid, true)
	eventually(e, "the truth about the whole GPU", func() error {
		g := e.grantUsed(whole, "main")
		if g.Level != "none" || !strings.Contains(g.LevelReason, fmt.Sprint(pid)) {
			return fmt.Errorf("the agent shows %+v", g)
		}
		return nil
	})
	end()
	e.warned(3, pid, false)
	eventually(e, "the whole GPU for its holder alone", func() error {
		if g := e.grantUsed(whole, "main"); g.Level != "exclusive" {
			return fmt.Errorf("the agent shows %+v", g)
		}
		return nil
	})
}
