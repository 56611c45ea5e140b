// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// nvidiaPage is the page whose commands the tests of NVIDIA's programs type.
	nvidiaPage = "docs/use/nvidia.md"
	// driverRoot is where NVIDIA's GPU Operator has the files of a driver on a node.
	driverRoot = "/run/nvidia/driver"
	// nvidiaLabel lets pods of NVIDIA's charts run on a node.
	nvidiaLabel = "nvidia.com/gpu.present"
)

// aLibrary is the path of a library in the output of ldd.
var aLibrary = regexp.MustCompile(`/\S+`)

// makeDriverRoot has the simulator write the files that a driver installs to a folder of the node, until the test ends.
func (e *testCase) makeDriverRoot() {
	e.Helper()
	e.Cleanup(func() {
		if r := e.node.in("rm", "-rf", filepath.Dir(driverRoot)); r.err != nil {
			e.Error(r)
		}
	})
	if r := e.node.in(e.node.program("gpusim"), "root", driverRoot, "--dir", e.node.env["GPUSIM_DIR"]); r.err != nil {
		e.Fatal(r)
	}
}

// nvidiaProgram is a program of NVIDIA that the Makefile builds from a pinned module.
func (e *testCase) nvidiaProgram(name string) string {
	e.Helper()
	path := filepath.Join(e.node.env["REPO"], ".cache/bin", name)
	if _, err := os.Stat(path); err != nil {
		e.Fatalf("%s is missing: run 'make nvidia-tools' (%v)", path, err)
	}
	return path
}

// moduleDir is the folder of the source of a module that one of the modules in tools needs.
func (e *testCase) moduleDir(tool, module string) string {
	e.Helper()
	ctx, cancel := context.WithTimeout(background(), 5*time.Minute) // the first time, it downloads the module
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	cmd.Dir = filepath.Join(e.node.env["REPO"], "tools", tool)
	out, err := cmd.Output()
	if err != nil {
		e.Fatalf("download %s: %v", module, err)
	}
	return decode[struct{ Dir string }](e.T, string(out)).Dir
}

// nvidiaImage loads an image of programs, with the libraries that they need, into the node. Each is at /usr/bin. An
// image of NVIDIA's requests all GPUs from NVIDIA's container runtime, and so does this.
func (e *testCase) nvidiaImage(ref string, programs ...string) {
	e.Helper()
	root := filepath.Join(e.node.env["E2E_DIR"], "node", "nvidia-image")
	e.Cleanup(func() { _ = os.RemoveAll(root) })
	for _, program := range programs {
		place := filepath.Join(root, "usr/bin", filepath.Base(program))
		steps := [][]string{{"install", "-D", "-m", "0755", program, place}}
		// A script has no libraries.
		libraries, _ := exec.Command("ldd", program).Output()
		if all := aLibrary.FindAllString(string(libraries), -1); len(all) > 0 {
			steps = append(steps, append([]string{"cp", "-L", "--parents", "-t", root}, all...))
		}
		for _, step := range steps {
			if r := command(step[0], step[1:]...); r.err != nil {
				e.Fatalf("%q: %v", step, r)
			}
		}
	}
	e.Setenv("IMAGE_ENV", "NVIDIA_VISIBLE_DEVICES=all")
	e.node.do(e.T, "image", ref, root)
}

// withNVIDIAChart installs a release by a block of the page until the test ends. A folder takes the place of the
// chart's address, and the values are added. All pods of the test end before the release is removed, because kubelet
// needs a DRA driver to end a pod with a claim.
func (e *testCase) withNVIDIAChart(block int, release, address, chart string, values ...string) {
	e.Helper()
	if r := command(e.node.script, "helm"); r.err != nil {
		e.Fatal(r)
	}
	e.Cleanup(func() {
		for _, p := range e.pods {
			p.startDeletion()
		}
		for _, p := range e.pods {
			if err := poll("end of "+p.name, p.goneError); err != nil {
				e.Error(err)
			}
		}
		e.kubectl("", "label", "node", e.node.env["NODE_NAME"], nvidiaLabel+"-")
		e.typePage("helm uninstall " + release + " --namespace kube-system --wait --timeout 2m\n")
	})
	text := strings.TrimSpace(e.pageBlock(nvidiaPage, block))
	if !strings.Contains(text, address) || !strings.Contains(text, "nvidiaDriverRoot=/,") {
		e.Fatalf("block %d of %s lacks %q or the root of the driver:\n%s", block, nvidiaPage, address, text)
	}
	text = strings.NewReplacer(address, chart, "nvidiaDriverRoot=/,", "nvidiaDriverRoot="+driverRoot+",").Replace(text)
	e.typePage(text + " --set " + strings.Join(values, ",") + "\n")
}

// reachesDriver lets a container that NVIDIA gives a GPU reach the simulated driver. The GPU's device file has a number
// for which this machine has no kernel module, and the sockets stand for that module.
func reachesDriver(s podSpec) podSpec {
	edit := s.edit
	s.edit = func(p *corev1.Pod) {
		if edit != nil {
			edit(p)
		}
		const sockets = "/run/gpusim/dev"
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "driver",
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: sockets}}})
		for i := range p.Spec.Containers {
			c := &p.Spec.Containers[i]
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "driver", MountPath: sockets})
		}
	}
	return s
}

// nvidiaPods waits until the DaemonSets are ready, and returns "NAME ID" of their containers, sorted. A container that
// was started again has another ID.
func (e *testCase) nvidiaPods(daemonSets ...string) string {
	e.Helper()
	for _, name := range daemonSets {
		name = "daemonset/" + name
		if r := e.kubectl("", "rollout", "status", "-n", "kube-system", name, "--timeout=120s"); r.err != nil {
			e.Fatalf("%v\n%s", r, e.kubectl("", "logs", "-n", "kube-system", name, "--all-containers", "--tail=30").out)
		}
	}
	r := e.kubectl("", "get", "pods", "-n", "kube-system", "--sort-by=.metadata.name", "-o",
		`jsonpath={range .items[*].status.containerStatuses[*]}{.name} {.containerID}{"\n"}{end}`)
	if r.err != nil {
		e.Fatal(r)
	}
	return r.out
}

// takesNoneOf says that no grant is on one of the GPUs.
func (e *testCase) takesNoneOf(gpus ...simGPU) {
	e.Helper()
	for _, g := range e.picture().Grants {
		for _, s := range g.Shares {
			for _, gpu := range gpus {
				if s.GPU == gpu.UUID {
					e.Errorf("grant %s is on GPU %d: %s", g.ID, gpu.Index, fmt.Sprintf("%+v", g))
				}
			}
		}
	}
}
