// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// DefaultSocket is where containerd listens, and CRIOSocket where CRI-O does.
const (
	DefaultSocket = "/run/containerd/containerd.sock"
	CRIOSocket    = "/var/run/crio/crio.sock"
)

// The namespaces in which containerd keeps containers: those of Kubernetes, and those of kerf run --image.
const (
	NamespaceKubernetes = "k8s.io"
	NamespaceKerf       = "kerf"
)

const (
	// dialTimeout bounds one connect; on a unix socket only a full backlog makes it wait.
	dialTimeout = 2 * time.Second
	// callTimeout is for calls that the runtime answers from what it knows.
	callTimeout = 10 * time.Second
	// createTimeout is for the call that runs the OCI hooks: kerf-hook waits up to 60 s for the agent, and
	// its spec gives it 120 s.
	createTimeout = 150 * time.Second
	// unpackTimeout is for one layer of an image.
	unpackTimeout = 10 * time.Minute
	// maxMessage bounds an answer; a node with hundreds of containers needs some MiB.
	maxMessage = 64 << 20
)

// Client is a connection to the container runtime of one socket. It is made by Open, is safe for concurrent
// use, and is closed by whoever made it.
type Client struct {
	socket string
	conn   *grpc.ClientConn
	ctr    *containerd.Client
	cri    criv1.RuntimeServiceClient
	link   *link
}

// Open makes a client for the runtime at socket. It does not connect: every call does where it has to, and
// says what is wrong.
func Open(socket string) (*Client, error) {
	l := &link{socket: socket}
	conn, err := grpc.NewClient("passthrough:///container-runtime",
		grpc.WithContextDialer(l.dial),
		// The socket is root's alone; there is nothing to encrypt.
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithAuthority("localhost"),
		grpc.WithConnectParams(grpc.ConnectParams{
			// A restart of the runtime takes about a second: look again often.
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: dialTimeout,
		}),
		grpc.WithChainUnaryInterceptor(bounded),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to container runtime at %q: %w", socket, err)
	}
	ctr, err := containerd.NewWithConn(conn)
	if err != nil {
		_ = conn.Close() // nothing was sent on it
		return nil, fmt.Errorf("connect to container runtime at %q: %w", socket, err)
	}
	return &Client{socket: socket, conn: conn, ctr: ctr, cri: criv1.NewRuntimeServiceClient(conn), link: l}, nil
}

// Close ends the connection and every call on it.
func (c *Client) Close() error { return c.conn.Close() }

// bounded gives every call its deadline, if the caller's is not earlier.
func bounded(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if limit := timeoutOf(method); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// timeoutOf is how long a method may take; 0 is for ever.
func timeoutOf(method string) time.Duration {
	service, call := method[:strings.LastIndexByte(method, '/')], method[strings.LastIndexByte(method, '/')+1:]
	switch {
	case strings.HasSuffix(service, ".Tasks") && call == "Wait":
		return 0 // it lasts as long as the program; its caller's context ends it
	case strings.HasSuffix(service, ".Tasks") && (call == "Create" || call == "Delete"):
		return createTimeout
	case strings.HasSuffix(service, ".Diff"):
		return unpackTimeout
	}
	return callTimeout
}

// link makes the connections and remembers how the last one failed, since gRPC folds that into one code.
type link struct {
	socket string

	mu     sync.Mutex
	failed error // why the last connect failed, nil after one that worked
}

// dial connects to the socket. gRPC passes a placeholder for the address.
func (l *link) dial(ctx context.Context, _ string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "unix", l.socket)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = err
	return conn, err
}

func (l *link) state() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}
