// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	dra "k8s.io/kubelet/pkg/apis/dra/v1"
)

const (
	draDriver = "gpu.nvidia.com"
	draNode   = "simulated"
	draClaim  = types.UID("6d9a2a0e-0000-4000-8000-0000000000ff")
)

// draPlugin is NVIDIA's DRA driver while it runs, with the API server and the kubelet that it sees.
type draPlugin struct {
	m       *machine
	api     *resourceServer
	dir     string
	kubelet *grpc.ClientConn
	end     func()
}

// startDRA starts the driver, with feature gates, in a separate folder.
func (m *machine) startDRA(plugin, name, gates string) (*draPlugin, error) {
	p := &draPlugin{m: m, api: newResourceServer(m.t), dir: filepath.Join(m.work, name)}
	for _, dir := range []string{"r", "p"} {
		if err := os.MkdirAll(filepath.Join(p.dir, dir), 0o755); err != nil {
			return nil, err
		}
	}
	config := filepath.Join(p.dir, "kubeconfig")
	if err := p.api.kubeconfig(config); err != nil {
		return nil, err
	}
	p.end = m.background(m.t.Context(), plugin, "--kubeconfig="+config, "--node-name="+draNode, "--image-name=none",
		"--container-driver-root=/", "--nvidia-driver-root=/",
		"--nvidia-cdi-hook-path="+toolkit(m.t, "nvidia-cdi-hook"),
		"--cdi-root="+filepath.Join(p.dir, "cdi"), "--feature-gates="+gates,
		"--kubelet-registrar-directory-path="+filepath.Join(p.dir, "r"),
		"--kubelet-plugins-directory-path="+filepath.Join(p.dir, "p"))
	var err error
	p.kubelet, err = grpc.NewClient("unix:"+filepath.Join(p.dir, "p", draDriver, "dra.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	return p, err
}

func (p *draPlugin) stop() {
	_ = p.kubelet.Close() // nothing waits for an answer
	p.end()
}

// until waits for devices in the API server.
func (p *draPlugin) until(what string, holds func(map[string]resourcev1.Device) bool) error {
	if err := within(time.Minute, func() bool { return holds(p.api.devices()) }); err != nil {
		return fmt.Errorf("%s: %w; devices: %v; refused: %s", what, err, p.api.devices(), p.api.said())
	}
	return nil
}

// prepare has the driver prepare a claim to which the device is allocated, and returns the text of its CDI spec.
func (p *draPlugin) prepare(device string) (string, error) {
	p.api.allocate("claim", draClaim, draDriver, draNode, device)
	ctx, cancel := context.WithTimeout(p.m.t.Context(), time.Minute)
	defer cancel()
	answer, err := dra.NewDRAPluginClient(p.kubelet).NodePrepareResources(ctx,
		&dra.NodePrepareResourcesRequest{Claims: p.claims()}, grpc.WaitForReady(true))
	if err != nil {
		return "", fmt.Errorf("prepare: %w", err)
	}
	got := answer.GetClaims()[string(draClaim)]
	want := fmt.Sprintf("k8s.%s/claim=%s-%s", draDriver, draClaim, device)
	if d := got.GetDevices(); len(d) != 1 || !slices.Equal(d[0].GetCdiDeviceIds(), []string{want}) {
		return "", fmt.Errorf("prepared %v, want %s", got, want)
	}
	specs, err := filepath.Glob(filepath.Join(p.dir, "cdi", "*.yaml"))
	if err != nil || len(specs) != 1 {
		return "", fmt.Errorf("cdi specs %q, want one (%w)", specs, err)
	}
	text, err := os.ReadFile(specs[0])
	return string(text), err
}

// unprepare has the driver take the claim back.
func (p *draPlugin) unprepare() error {
	ctx, cancel := context.WithTimeout(p.m.t.Context(), time.Minute)
	defer cancel()
	answer, err := dra.NewDRAPluginClient(p.kubelet).NodeUnprepareResources(ctx,
		&dra.NodeUnprepareResourcesRequest{Claims: p.claims()})
	if said := answer.GetClaims()[string(draClaim)].GetError(); err != nil || said != "" {
		return fmt.Errorf("unprepare: %q (%w)", said, err)
	}
	if specs, _ := filepath.Glob(filepath.Join(p.dir, "cdi", "*")); len(specs) > 0 {
		return fmt.Errorf("unprepare leaves %q", specs)
	}
	return nil
}

func (p *draPlugin) claims() []*dra.Claim {
	return []*dra.Claim{{Namespace: "default", Name: "claim", Uid: string(draClaim)}}
}

// publishes has NVIDIA's DRA driver publish the GPUs, give one to a claim, and taint one after an XID. Then the driver
// publishes and makes MIG instances.
func (m *machine) publishes(plugin string) error {
	return errors.Join(m.publishesGPUs(plugin), m.publishesInstances(plugin))
}

func (m *machine) publishesGPUs(plugin string) error {
	p, err := m.startDRA(plugin, "gpus", "NVMLDeviceHealthCheck=true")
	if err != nil {
		return err
	}
	defer p.stop()
	if err := p.until("eight GPUs", func(d map[string]resourcev1.Device) bool { return len(d) == 8 }); err != nil {
		return err
	}
	gpu := p.api.devices()["gpu-3"]
	memory := gpu.Capacity["memory"].Value
	if got := memory.Value(); got != int64(81559*mib) {
		err = fmt.Errorf("gpu-3 has %d bytes", got)
	}
	for name, want := range map[resourcev1.QualifiedName]string{"uuid": m.simUUID(3), "type": "gpu",
		"productName": "NVIDIA H100 80GB HBM3", "architecture": "Hopper"} {
		if got := gpu.Attributes[name].StringValue; got == nil || *got != want {
			err = errors.Join(err, fmt.Errorf("%s of gpu-3: %v, want %q", name, got, want))
		}
	}
	spec, prepareErr := p.prepare("gpu-3")
	for _, want := range []string{"path: /dev/nvidia3\n", "path: /dev/nvidiactl\n", "libcuda.so." + simVersion} {
		if !strings.Contains(spec, want) {
			err = errors.Join(err, fmt.Errorf("the spec lacks %q:\n%s", want, spec))
		}
	}
	if strings.Contains(spec, "/dev/nvidia4") {
		err = errors.Join(err, fmt.Errorf("the spec has a GPU that is not the claim's:\n%s", spec))
	}
	if err := errors.Join(err, prepareErr); err != nil {
		return err
	}
	if err := p.unprepare(); err != nil {
		return err
	}
	m.set("gpu=6", "xid=48")
	return p.until("a taint after an XID", func(d map[string]resourcev1.Device) bool {
		return len(d["gpu-6"].Taints) == 1 && len(d["gpu-3"].Taints) == 0
	})
}

// publishesInstances has the driver make the MIG instance of a claim, and destroy it.
func (m *machine) publishesInstances(plugin string) error {
	const instance = "gpu-2-mig-1g10gb-19-3"
	p, err := m.startDRA(plugin, "mig", "DynamicMIG=true")
	if err != nil {
		return err
	}
	defer p.stop()
	if err := p.until("possible instances", func(d map[string]resourcev1.Device) bool {
		_, found := d[instance]
		return found && p.api.counterSets() == 8
	}); err != nil {
		return err
	}
	spec, err := p.prepare(instance)
	if err != nil {
		return err
	}
	if !strings.Contains(spec, "path: /dev/nvidia2\n") ||
		strings.Count(spec, "path: /dev/nvidia-caps/nvidia-cap") != 2 {
		err = fmt.Errorf("the spec lacks the instance's devices:\n%s", spec)
	}
	if r := m.inTree("nvidia-smi", "-L"); strings.Count(r.out, "MIG 1g.10gb") != 1 {
		err = errors.Join(err, fmt.Errorf("after prepare: %v", r))
	}
	err = errors.Join(err, p.unprepare())
	if r := m.inTree("nvidia-smi", "-L"); strings.Contains(r.out, "MIG") {
		err = errors.Join(err, fmt.Errorf("after unprepare: %v", r))
	}
	return err
}
