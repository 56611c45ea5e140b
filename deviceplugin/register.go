// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// kubeletSocket is the name of kubelet's registration socket in its folder.
	kubeletSocket = "kubelet.sock"
	// registerDeadline is a little more than the 10 s that kubelet gives itself to call back.
	registerDeadline = 12 * time.Second
	// bindTime is how old a socket must be before its silence means that its owner is gone. A program binds a socket a
	// moment before it listens.
	bindTime = 5 * time.Second
	// dialDeadline bounds a connection to a local socket.
	dialDeadline = time.Second
)

// identity tells one kubelet.sock from the next: nil while there is none. The inode alone is given again.
type identity struct {
	file os.FileInfo
}

func identify(path string) identity {
	file, err := os.Lstat(path)
	if err != nil {
		return identity{}
	}
	return identity{file}
}

func (i identity) there() bool { return i.file != nil }

func (i identity) same(o identity) bool {
	if i.file == nil || o.file == nil {
		return i.file == nil && o.file == nil
	}
	return os.SameFile(i.file, o.file) && i.file.ModTime().Equal(o.file.ModTime())
}

// register tells kubelet of the resource's socket. Kubelet calls back before it answers.
func register(ctx context.Context, dir, resource, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, registerDeadline)
	defer cancel()
	path := filepath.Join(dir, kubeletSocket)
	conn, err := grpc.NewClient("passthrough:///kubelet",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: dialDeadline}).DialContext(ctx, "unix", path)
		}),
		// The socket lies in a folder of root's; there is nothing to encrypt.
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithAuthority("localhost"))
	if err != nil {
		return fmt.Errorf("connect to %q: %w", path, err)
	}
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: endpoint, ResourceName: resource, Options: options(),
	})
	if err := errors.Join(err, conn.Close()); err != nil {
		return fmt.Errorf("register %s at %q: %w", resource, path, err)
	}
	return nil
}

// sweep removes the sockets of earlier starts in dir that have no listener. It keeps those in doubt.
func sweep(ctx context.Context, dir string, now time.Time) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %q: %w", dir, err)
	}
	var errs []error
	for _, e := range entries {
		if e.Type() != fs.ModeSocket || !ours(e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < bindTime || !silent(ctx, path) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove stale socket: %w", err))
		}
	}
	return errors.Join(errs...)
}

// socketName is the name of the nth socket of a resource in one start, n from 1.
func socketName(resource, suffix string, n int) string {
	_, short, _ := strings.Cut(resource, "/")
	if n == 1 {
		return "kerf-" + short + "-" + suffix + ".sock"
	}
	return fmt.Sprintf("kerf-%s-%s-%d.sock", short, suffix, n)
}

func ours(name string) bool {
	for _, r := range append(fixed(), sharing.Domain+"/mig") {
		_, short, _ := strings.Cut(r, "/")
		if strings.HasPrefix(name, "kerf-"+short+"-") && strings.HasSuffix(name, ".sock") {
			return true
		}
	}
	return false
}

// silent reports whether a connection to the socket is refused: it exists without a listener.
func silent(ctx context.Context, path string) bool {
	conn, err := (&net.Dialer{Timeout: dialDeadline}).DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
		return false
	}
	// A listener whose queue is full is a time-out. What is left of connect's own errors is the refusal.
	var call *os.SyscallError
	var slow net.Error
	return errors.As(err, &call) && call.Syscall == "connect" && (!errors.As(err, &slow) || !slow.Timeout()) &&
		!errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist)
}
