// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// gate is kubelet's way to the API server. While it is shut, kubelet gets no answer there, as on a node whose network
// comes up last.
type gate struct {
	listener net.Listener
	to       string
	mu       sync.Mutex
	open     bool
	passing  sync.WaitGroup
}

// shut puts a gate into kubelet's way until the test ends. It counts from kubelet's next start on.
func (e *testCase) shut() *gate {
	e.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(e.node.env["HOST_IP"], "0"))
	if err != nil {
		e.Fatal(err)
	}
	g := &gate{listener: l, to: net.JoinHostPort(e.node.env["NODE_IP"], "6443")}
	g.passing.Go(g.serve)
	config := filepath.Join(e.node.env["CONF"], "kubelet.kubeconfig")
	shipped, err := os.ReadFile(config)
	if err != nil {
		e.Fatal(err)
	}
	// The certificate is the API server's: the address that is asked for it stays.
	changed := strings.Replace(string(shipped), `server: "https://`+g.to+`"`,
		fmt.Sprintf(`server: "https://%s", tls-server-name: %q`, l.Addr(), e.node.env["NODE_IP"]), 1)
	if changed == string(shipped) {
		e.Fatalf("%s does not name %s", config, g.to)
	}
	use := func(text string) {
		e.Helper()
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			e.Fatal(err)
		}
	}
	use(changed)
	e.Cleanup(func() {
		use(string(shipped))
		e.node.restart(e.T, "kubelet")
		_ = l.Close()
		g.passing.Wait()
	})
	return g
}

func (g *gate) serve() {
	for {
		conn, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.mu.Lock()
		open := g.open
		g.mu.Unlock()
		if !open {
			_ = conn.Close()
			continue
		}
		g.passing.Go(func() { g.pass(conn) })
	}
}

// pass carries bytes both ways until one side ends.
func (g *gate) pass(conn net.Conn) {
	defer conn.Close()
	server, err := net.Dial("tcp", g.to)
	if err != nil {
		return
	}
	defer server.Close()
	g.passing.Go(func() {
		_, _ = io.Copy(server, conn)
		_ = server.Close()
	})
	_, _ = io.Copy(conn, server)
}

func (g *gate) letPass() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = true
}

// kubeletOffers returns nil once kubelet has ids of the resource that it could give.
func (e *testCase) kubeletOffers(resource string) error {
	conn, err := grpc.NewClient("unix://"+e.node.path("/var/lib/kubelet/pod-resources/kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(background(), commandTime)
	defer cancel()
	answer, err := podresources.NewPodResourcesListerClient(conn).GetAllocatableResources(ctx,
		&podresources.AllocatableResourcesRequest{})
	if err != nil {
		return err
	}
	for _, d := range answer.GetDevices() {
		if d.GetResourceName() == resource && len(d.GetDeviceIds()) > 0 {
			return nil
		}
	}
	return fmt.Errorf("kubelet has no %s yet", resource)
}

// powerCut switches the node off and on again without a shutdown. It returns once the simulated driver is there, long
// before any container is. The returned function has the outcome of the start.
func (e *testCase) powerCut() <-chan result {
	e.Helper()
	e.node.do(e.T, "stop")
	up := make(chan result, 1)
	go func() { up <- command(e.node.script, "up") }()
	eventually(e, "the simulated driver on the node that starts", func() error {
		if err := e.node.refresh(); err != nil {
			return err
		}
		if e.node.env["NODE_INIT"] == "" {
			return fmt.Errorf("it has no init yet")
		}
		return e.node.in(e.node.program("gpusim"), "gpus", "--dir", e.node.env["GPUSIM_DIR"]).err
	})
	return up
}

// Pods survive a power loss if the agent is a service of the node and registers with kubelet early, before kubelet gets
// its pods from the API server. Kubelet then finds the earlier ids among the healthy ones, and starts the containers
// again. Each has the cap that it had.
func TestPodsOutliveReboot(t *testing.T) {
	e := beginWithAgent(t)
	e.agentOnNode(e.readRules())
	const run = "exec gpuload --json --alloc 9GiB --hold 1h"
	restarted := map[corev1.RestartPolicy]*pod{}
	for policy, name := range map[corev1.RestartPolicy]string{corev1.RestartPolicyAlways: "always",
		corev1.RestartPolicyOnFailure: "on-failure"} {
		spec := one(name, gibs(10), run)
		spec.restart = policy
		restarted[policy] = e.create(spec)
	}
	never := e.create(one("never", gibs(10), run))
	before := map[string]string{}
	for _, p := range restarted {
		p.running()
		before[p.name] = p.id("main")
	}
	never.running()

	way := e.shut()
	up := e.powerCut()
	e.startAgentOnNode()
	eventually(e, "the agent's ids in kubelet", func() error { return e.kubeletOffers("kerf.dev/gpu-memory-gib") })
	way.letPass()
	if r := <-up; r.err != nil {
		t.Fatalf("node.sh up: %v", r)
	}
	e.waitForAgentOnNode()
	for _, p := range restarted {
		o := p.anotherInstance(before[p.name])
		if n := o.Status.ContainerStatuses[0].RestartCount; n != 1 {
			t.Errorf("%s was started again %d times, want once", p.name, n)
		}
		if l := p.loads("main", 1)[0]; l.Error != nil || l.Allocated != 9*gib || l.Total == nil || *l.Total != 10*gib {
			t.Errorf("%s after the reboot: %v", p.name, l)
		}
		e.wantHeld(p, "main", share(10*gib, 0))
	}
	never.phase(corev1.PodFailed)
	if err := e.uncappedError(); err != nil {
		t.Error(err)
	}
	never.released()
}
