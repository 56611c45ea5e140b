// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

var userlandDir = flag.String("userland", "", "run programs of NVIDIA's user space in pods, which hack/userland.sh "+
	"has unpacked into this folder and test/machine has built there")

const userlandImage = "kerf.test/userland:1"

// userlandPrograms are programs that others wrote, in /usr/bin of the image. Each prints the cap of 2 GiB as the size
// of its GPU.
var userlandPrograms = []struct {
	name, file, run string
	sees            *regexp.Regexp
}{
	{"pynvml", "../lib/python3/dist-packages/pynvml.py", `python3 -c '
import pynvml
pynvml.nvmlInit()
print("total", pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).total)'`,
		regexp.MustCompile(`total 2147483648`)},
	{"gpustat", "gpustat", "python3 /usr/bin/gpustat", regexp.MustCompile(`/ +2048 MB`)},
	{"PyCUDA dump_properties", "dump_properties.py", "python3 /usr/bin/dump_properties.py",
		regexp.MustCompile(`Total Memory: 2097152 KB`)},
	{"CUDA sample deviceQuery", "sample-deviceQuery", "sample-deviceQuery",
		regexp.MustCompile(`global memory: +2048 MBytes`)},
	{"lstopo with CUDA and NVML", "lstopo-no-graphics", "lstopo-no-graphics --whole-io -v",
		regexp.MustCompile(`CUDAGlobalMemorySize=2097152`)},
	{"nvtop", "nvtop", `TERM=xterm timeout -s INT 5 python3 -c 'import pty; pty.spawn(["nvtop", "-d", "5"])' || true`,
		regexp.MustCompile(`2\.000?Gi`)},
}

// TestUserlandInPods runs programs that others wrote in pods with a cap of 2 GiB. They are unchanged, and see the cap.
func TestUserlandInPods(t *testing.T) {
	if *userlandDir == "" {
		t.Skip("runs by make userland-pods")
	}
	e := beginWithAgent(t)
	root := e.userlandImage()
	table, ran := "| program | pod |\n|---|---|\n", 0
	for i, p := range userlandPrograms {
		said := "ok"
		_, err := os.Stat(filepath.Join(root, "usr/bin", p.file))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			said = "not available"
		case err != nil:
			t.Fatal(err)
		default:
			ran++
			spec := one(fmt.Sprintf("userland-%d", i), gibs(2), p.run)
			spec.containers[0].image = userlandImage
			if err := e.userlandPod(spec, p.sees); err != nil {
				said = "failed"
				e.Errorf("%s: %v", p.name, err)
			}
		}
		table += fmt.Sprintf("| %s | %s |\n", p.name, said)
	}
	t.Log("\n" + table)
	if ran < 5 {
		e.Errorf("%d programs ran in pods, want 5 at least; see %s/missing", ran, *userlandDir)
	}
}

// userlandImage makes and loads the image, and returns the folder with its files.
func (e *testCase) userlandImage() string {
	e.Helper()
	from, err := filepath.Abs(*userlandDir)
	if err != nil {
		e.Fatal(err)
	}
	root := e.node.env["E2E_DIR"] + "/node/userland"
	e.Cleanup(func() { _ = os.RemoveAll(root) })
	script := filepath.Join(e.node.env["REPO"], "hack/userland-image.sh")
	if out, err := exec.CommandContext(background(), script, from, root).CombinedOutput(); err != nil {
		e.Fatalf("%s: %v: %s", script, err, out)
	}
	e.node.do(e.T, "image", userlandImage, root)
	return root
}

// userlandPod runs one pod to its end.
func (e *testCase) userlandPod(spec podSpec, sees *regexp.Regexp) error {
	e.Helper()
	p := e.create(spec)
	ended := p.until("its end", func(o *corev1.Pod) error {
		if o.Status.Phase != corev1.PodSucceeded && o.Status.Phase != corev1.PodFailed {
			return fmt.Errorf("it is %s", o.Status.Phase)
		}
		return nil
	})
	output := p.logs("main")
	p.delete()
	switch {
	case ended.Status.Phase != corev1.PodSucceeded:
		return fmt.Errorf("the pod failed: %s", strings.TrimSpace(output))
	case !sees.MatchString(output):
		return fmt.Errorf("the output lacks %q: %s", sees, strings.TrimSpace(output))
	}
	return nil
}
