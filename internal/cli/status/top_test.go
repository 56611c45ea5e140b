// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/test/clitest"
)

// oneSample is a monitor that sends one sample and then nothing.
type oneSample struct {
	telemetryapi.UnimplementedTelemetryServer
	sample *telemetryapi.Sample
}

func (o oneSample) Watch(_ *telemetryapi.WatchRequest, out grpc.ServerStreamingServer[telemetryapi.Sample]) error {
	if err := out.Send(o.sample); err != nil {
		return err
	}
	<-out.Context().Done()
	return nil
}

// serveOne starts it, and returns how it is ended.
func serveOne(t *testing.T, dir string) (end func()) {
	t.Helper()
	use := func(grant, pod string, gib float64) *telemetryapi.Usage {
		return &telemetryapi.Usage{Owner: "grant", Grant: grant, GrantId: grant, Namespace: "ml", Pod: pod,
			MemoryBytes: &telemetryapi.Amount{Value: gib * (1 << 30), Attribution: "process"}}
	}
	s := &telemetryapi.Sample{Source: "nvml", DriverVersion: "615", AgentUp: true, Gpus: []*telemetryapi.GPU{
		{Index: 0, Model: "H100", Usages: []*telemetryapi.Usage{use("ml/small/main", "small", 1),
			use("ml/large/main", "large", 5)}},
	}}
	l, err := net.Listen("unix", nodeclient.TelemetryPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	telemetryapi.RegisterTelemetryServer(g, oneSample{sample: s})
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	ended := false
	end = func() {
		if !ended {
			ended = true
			g.Stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(end)
	return end
}

// TestTopsKeys presses keys on a real terminal. However it ends, the terminal is as it was.
func TestTopsKeys(t *testing.T) {
	for name, end := range map[string]struct {
		by func(term *clitest.Terminal, kill func(syscall.Signal), away func())
		ok bool
	}{
		"q": {func(term *clitest.Terminal, _ func(syscall.Signal), _ func()) { term.Press(t, "q") },
			true},
		"ctrl-C": {func(term *clitest.Terminal, _ func(syscall.Signal), _ func()) { term.Press(t, "\x03") },
			true},
		"a signal": {func(_ *clitest.Terminal, kill func(syscall.Signal), _ func()) { kill(syscall.SIGTERM) },
			true},
		"the monitor has": {func(_ *clitest.Terminal, _ func(syscall.Signal), away func()) { away() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			away := serveOne(t, dir)
			term := clitest.OpenTerminal(t, 120, 30)
			before, err := unix.IoctlGetTermios(int(term.Slave.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			c := term.Start(t, "--run-dir", dir, "top")
			at := term.Await(t, 0, "grants by gpu")
			at = term.Await(t, at, "> 0")
			at = term.Await(t, at, "ml/small/main")
			at = term.Await(t, at, "ml/large/main")
			term.Press(t, ">")
			at = term.Await(t, at, "memory") // the rest of the line stays
			term.Press(t, "\x1b[Br\x1a\x1c") // an arrow, and what would stop it
			at = term.Await(t, at, "reversed")
			term.Press(t, "?")
			at = term.Await(t, at, "filter the lines")
			term.Press(t, "xv")
			at = term.Await(t, at, "pods")
			end.by(term, func(s syscall.Signal) { _ = c.Process.Signal(s) }, away)
			term.Await(t, at, "\x1b[?1049l") // the terminal's first screen is back
			if err := c.Wait(); (err == nil) != end.ok {
				t.Errorf("ended with %v", err)
			}
			after, err := unix.IoctlGetTermios(int(term.Slave.Fd()), unix.TCGETS)
			if err != nil || *after != *before {
				t.Errorf("the terminal's settings changed: %v", err)
			}
		})
	}
}
