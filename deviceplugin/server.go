// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kerf-gpu/kerf/internal/serve"
)

// server is one socket of one resource, and what kubelet does on it.
type server struct {
	path string
	// file is the socket as it was made, to tell when it is gone.
	file os.FileInfo
	grpc *grpc.Server
	// streaming is closed when kubelet first watches the list, idle when the last watch ends, and failed when the
	// server stops accepting.
	streaming, idle, failed chan struct{}

	mu      sync.Mutex
	streams int
	done    sync.WaitGroup
}

// maxRequest bounds what kubelet asks at once, in bytes. An id has at most some hundred bytes.
const maxRequest = 4 << 20

// kubeletCalls bounds the calls of kubelet's connection. Kubelet uses one for all pods: each pod of the node may wait
// in PreStartContainer, and Allocate must not wait for them.
const kubeletCalls = 256

// listen opens the socket, which must not exist yet, and answers on it until close.
func listen(ctx context.Context, path string, share *serve.Share, svc service) (*server, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", path, err)
	}
	err = os.Chmod(path, 0o600)
	file, err2 := os.Lstat(path)
	if err := errors.Join(err, err2); err != nil {
		return nil, errors.Join(fmt.Errorf("socket %q: %w", path, err), ln.Close())
	}
	s := &server{
		path: path, file: file,
		grpc: grpc.NewServer(append(serve.GRPC(serve.GRPCRules{
			MaxRequest: maxRequest, Streams: []string{pluginapi.DevicePlugin_ListAndWatch_FullMethodName},
			Calls: kubeletCalls,
		}), grpc.WaitForHandlers(true))...),
		streaming: make(chan struct{}), idle: make(chan struct{}), failed: make(chan struct{}),
	}
	svc.began, svc.ended = s.began, s.ended
	pluginapi.RegisterDevicePluginServer(s.grpc, &svc)
	s.done.Go(func() {
		defer close(s.failed)
		// What ends it other than close shows in failed; there is nothing else to do about it.
		_ = s.grpc.Serve(share.Listen(ln, serve.Rules{}))
	})
	return s, nil
}

// name is the endpoint for kubelet: the socket's name in its folder.
func (s *server) name() string { return filepath.Base(s.path) }

func (s *server) began() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams++; s.streams == 1 && !closed(s.streaming) {
		close(s.streaming)
	}
}

func (s *server) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams--; s.streams == 0 && !closed(s.idle) {
		close(s.idle)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// gone reports whether the socket's file is not Kerf's any more, so kubelet cannot connect.
func (s *server) gone() bool {
	now, err := os.Lstat(s.path)
	return err != nil || !os.SameFile(now, s.file)
}

// close ends all calls, waits for them and removes the socket. A nil server is closed.
func (s *server) close() {
	if s == nil {
		return
	}
	s.grpc.Stop()
	s.done.Wait()
}
