// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kerf-gpu/kerf/sharing"
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
	// createTimeout is for the call that runs the OCI hooks. The hook waits up to 60 s for the agent, and its spec
	// gives it 120 s.
	createTimeout = 150 * time.Second
	// unpackTimeout is for one layer of an image.
	unpackTimeout = 10 * time.Minute
	// maxMessage bounds an answer; a node with hundreds of containers needs some MiB.
	maxMessage = 64 << 20
)

// Client is a connection to the container runtime of one socket. Open creates it. It is safe for concurrent use. The
// caller closes it.
type Client struct {
	socket string
	conn   *grpc.ClientConn
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
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: 2 * time.Second},
			MinConnectTimeout: dialTimeout,
		}),
		grpc.WithChainUnaryInterceptor(bounded),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to container runtime at %q: %w", socket, err)
	}
	return &Client{socket: socket, conn: conn, cri: criv1.NewRuntimeServiceClient(conn), link: l}, nil
}

// Conn is the connection, for package runner.
func (c *Client) Conn() *grpc.ClientConn { return c.conn }

// Close ends the connection and every call on it.
func (c *Client) Close() error { return c.conn.Close() }

// bounded gives every call its deadline, if the caller's is not earlier.
func bounded(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
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

// ErrNoRuntime says that there is no socket, so no container runtime runs there. It is sharing.ErrNotFound.
var ErrNoRuntime = fmt.Errorf("no container runtime: %w", sharing.ErrNotFound)

// Error is a failed call: one sentence for people, and what it means for programs (errors.Is).
type Error struct {
	Text string
	Kind error
}

// Error returns the sentence.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

// Plain turns the error of a call into one that wraps the vocabulary, with the operation in doing. An error of nil
// stays nil, and the caller's own cancellation stays context.Canceled.
func (c *Client) Plain(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(cause, context.Canceled) {
		return fmt.Errorf("%s: %w", doing, cause)
	}
	if _, wire := status.FromError(err); wire {
		err = errgrpc.ToNative(err) // what is native already would lose its kind
	}
	if errdefs.IsUnavailable(err) || errdefs.IsDeadlineExceeded(err) {
		if failed := c.link.state(); failed != nil {
			return c.link.explain(doing, failed)
		}
	}
	return &Error{Text: fmt.Sprintf("%s: %v", doing, err), Kind: kindOf(err)}
}

// kindOf is err's place in the vocabulary.
func kindOf(err error) error {
	for _, k := range []error{
		sharing.ErrNotFound, sharing.ErrConflict, sharing.ErrExhausted, sharing.ErrInvalid,
		sharing.ErrUnsupported, sharing.ErrUnavailable, sharing.ErrDenied,
	} {
		if errors.Is(err, k) {
			return k
		}
	}
	switch {
	case errdefs.IsNotFound(err):
		return sharing.ErrNotFound
	case errdefs.IsAlreadyExists(err), errdefs.IsConflict(err):
		return sharing.ErrConflict
	case errdefs.IsInvalidArgument(err), errdefs.IsOutOfRange(err):
		return sharing.ErrInvalid
	case errdefs.IsNotImplemented(err), errdefs.IsFailedPrecondition(err):
		return sharing.ErrUnsupported
	case errdefs.IsPermissionDenied(err), errdefs.IsUnauthorized(err):
		return sharing.ErrDenied
	case errdefs.IsResourceExhausted(err):
		return sharing.ErrExhausted
	}
	return sharing.ErrUnavailable
}

// explain says why the socket could not be opened.
func (l *link) explain(doing string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &Error{fmt.Sprintf("%s: no container runtime at %q", doing, l.socket), ErrNoRuntime}
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EAGAIN):
		return &Error{fmt.Sprintf("%s: the container runtime at %q does not listen: it is restarting, or was stopped",
			doing, l.socket), sharing.ErrUnavailable}
	case errors.Is(err, fs.ErrPermission):
		return &Error{fmt.Sprintf("%s: no permission for %q: run as root", doing, l.socket), sharing.ErrDenied}
	}
	return &Error{fmt.Sprintf("%s: connect to %q: %v", doing, l.socket, err), sharing.ErrUnavailable}
}
