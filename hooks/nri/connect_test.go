// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/ttrpc"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
)

func TestSocketComesLater(t *testing.T) {
	c := newContainerd(t)
	b := plug(t, c.socket(), &fakeNode{})
	eventually.True(t, "the missing socket is reported", func() bool {
		return strings.Contains(b.said.last(), "there is no NRI socket at") &&
			strings.Contains(b.said.last(), "turn NRI on")
	})
	c.start()
	b.serving(t)
}

func TestSocketWithoutListener(t *testing.T) {
	c := newContainerd(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.socket(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	b := plug(t, c.socket(), &fakeNode{})
	eventually.True(t, "the dead socket is reported",
		func() bool { return strings.Contains(b.said.last(), "no answer from the NRI socket") })
	if err := os.Remove(c.socket()); err != nil {
		t.Fatal(err)
	}
	c.start()
	b.serving(t)
}

// A runtime that restarts gets the plugin back, and tells it of its containers again.
func TestReconnect(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	c := newContainerd(t).start()
	b := plug(t, c.socket(), &fakeNode{}).serving(t)
	b.know(specOf("train", memory("main", sharing.ContainerApp, "10")))
	for i := range 3 {
		c.stop()
		eventually.True(t, "the lost connection is reported", func() bool { return b.said.last() != "" })
		if !slices.ContainsFunc(b.said.list(),
			func(s string) bool { return strings.Contains(s, "closed the NRI connection") }) {
			t.Errorf("said %q", b.said.list())
		}
		id := fmt.Sprintf("id-%d", i)
		c.pods = []*api.PodSandbox{podOf("train")}
		c.ctrs = []*api.Container{{Id: id, PodSandboxId: "box-train", Name: "main",
			State: api.ContainerState_CONTAINER_RUNNING, Pid: 7}}
		c.start()
		b.serving(t)
		seen := b.node.witnessed()
		want := []sharing.Seen{{ID: id, Ref: sharing.ContainerRef{PodUID: "uid-train", Namespace: "default",
			Pod: "train", Container: "main"}, PID: 7, Running: true}}
		if d := cmp.Diff(want, seen[len(seen)-1]); d != "" {
			t.Error(d)
		}
		if _, err := c.create(podOf("train"), containerOf("main", guarded()...)); err != nil {
			t.Errorf("after the restart: %v", err)
		}
	}
	b.stop()
	c.stop()
	goleak.VerifyNone(t, leaks)
}

// What the runtime has may be more than one message holds.
func TestLargeStateComesInParts(t *testing.T) {
	c := newContainerd(t)
	const n = 700
	filler := strings.Repeat("x", 10_000)
	for i := range n {
		pod := podOf(fmt.Sprintf("p%d", i))
		c.pods = append(c.pods, pod)
		c.ctrs = append(c.ctrs, &api.Container{Id: fmt.Sprintf("c%d", i), PodSandboxId: pod.Id, Name: "main",
			Annotations: map[string]string{"filler": filler}})
	}
	c.start()
	b := plug(t, c.socket(), &fakeNode{}).serving(t)
	// On a machine that is slow enough, the container runtime gives up and starts again: each list must be complete.
	for _, seen := range b.node.witnessed() {
		if len(seen) != n {
			t.Fatalf("a list of %d containers, want %d", len(seen), n)
		}
		for i, s := range seen {
			if s.ID != fmt.Sprintf("c%d", i) || s.Ref.Pod != fmt.Sprintf("p%d", i) {
				t.Fatalf("container %d is %q of %q", i, s.ID, s.Ref.Pod)
			}
		}
	}
}

// The stub drops the first parts of a list when the connection ends, and would pass the last part on alone. To
// the node that would mean that all the other containers are gone.
func TestPartOfAListIsNone(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	node := &fakeNode{}
	r := &run{Options: Options{Log: slog.New(slog.DiscardHandler), Node: node}, jobs: newJobs(context.Background()),
		syncing: make(chan struct{}, 1)}
	defer r.jobs.stop()
	s := &session{run: r, trunk: &watched{Conn: here, gone: make(chan struct{})}}
	s.timeout.Store(int64(time.Minute))
	list := []*api.Container{{Id: "last"}}
	if _, err := (&handlers{s}).Synchronize(context.Background(), nil, list); err != nil {
		t.Fatal(err)
	}
	s.trunk.Close()
	if _, err := (&handlers{s}).Synchronize(context.Background(), nil, list); !errors.Is(err, sharing.ErrUnavailable) {
		t.Errorf("Synchronize() = %v, want ErrUnavailable", err)
	}
	if n := len(node.witnessed()); n != 1 {
		t.Errorf("the node got %d reports, want 1", n)
	}
}

// A node that cannot take in what there is keeps the plugin out of service, and is asked again.
func TestRuntimeSyncFails(t *testing.T) {
	c := newContainerd(t).start()
	refuse := make(chan struct{})
	node := &fakeNode{look: func(context.Context, []sharing.Seen) error {
		select {
		case <-refuse:
			return nil
		default:
			return errors.New("the record is damaged")
		}
	}}
	b := plug(t, c.socket(), node)
	eventually.True(t, "the reason is reported", func() bool {
		return slices.ContainsFunc(b.said.list(),
			func(s string) bool { return strings.Contains(s, "the record is damaged") })
	})
	if slices.Contains(b.said.list(), "") {
		t.Errorf("in service without the runtime's state: %q", b.said.list())
	}
	close(refuse)
	b.serving(t)
}

func TestBlindRuntimes(t *testing.T) {
	for nri, want := range map[string]bool{
		"v0.3.0": true, "v0.9.1-0.20250219030224-e597e7849f24": true, "v0.10.0": false, "v0.12.5": false,
		"v1.0.0":  false,
		"unknown": false, "(devel)": false, "": false, "v": false,
	} {
		if got := blind("cri-o", nri); (got != "") != want || want && !strings.Contains(got, "update to CRI-O 1.34") {
			t.Errorf("CRI-O with NRI %q: %q, want some: %v", nri, got, want)
		}
		if got := blind("containerd", nri); got != "" {
			t.Errorf("containerd with NRI %q, which tells of hooks: %q", nri, got)
		}
	}
}

// half is a runtime that registers a plugin and then, instead of configuring it, does something else.
type half struct{ then func() }

func (h half) RegisterPlugin(context.Context, *api.RegisterPluginRequest) (*api.Empty, error) {
	if h.then != nil {
		h.then()
	}
	return &api.Empty{}, nil
}

func (h half) UpdateContainers(context.Context, *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	return &api.UpdateContainersResponse{}, nil
}

// A runtime that ends, or hangs, in the middle of a registration leaves nothing behind, and the plugin connects
// to the next one. The pauses let the plugin get to different places.
func TestRegistrationBreaksOff(t *testing.T) {
	tests := map[string]struct {
		truncated bool
		pause     time.Duration
	}{
		"the connection ends with the registration":       {true, 0},
		"the connection ends before the configuration":    {true, 100 * time.Millisecond},
		"the plugin is ended while the runtime registers": {false, 0},
		"the plugin is ended while the runtime hangs":     {false, 100 * time.Millisecond},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			leaks := goleak.IgnoreCurrent()
			c := newContainerd(t)
			l, err := net.Listen("unix", c.socket())
			if err != nil {
				t.Fatal(err)
			}
			b := plug(t, c.socket(), &fakeNode{})
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			mux := multiplex.Multiplex(conn, multiplex.WithBlockedRead())
			rl, err := mux.Listen(multiplex.RuntimeServiceConn)
			if err != nil {
				t.Fatal(err)
			}
			server, err := ttrpc.NewServer()
			if err != nil {
				t.Fatal(err)
			}
			registered, served := make(chan struct{}), make(chan struct{})
			api.RegisterRuntimeService(server, half{func() { close(registered) }})
			go func() { defer close(served); _ = server.Serve(context.Background(), rl) }()
			mux.Unblock()
			<-registered
			time.Sleep(tt.pause)
			l.Close()
			if tt.truncated {
				mux.Close()
				c.start()
				b.serving(t)
			}
			b.stop()
			mux.Close()
			server.Close()
			<-served
			c.stop()
			goleak.VerifyNone(t, leaks)
		})
	}
}

func TestSocketOfSomethingElse(t *testing.T) {
	dir, err := os.MkdirTemp("", "nri")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			conn.Close()
		}
	}()
	b := plug(t, filepath.Join(dir, "s"), &fakeNode{})
	eventually.True(t, "the failure is reported",
		func() bool { return strings.Contains(b.said.last(), "did not take the NRI plugin") })
	b.stop()
	l.Close()
	<-accepted
}
