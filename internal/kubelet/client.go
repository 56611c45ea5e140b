// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// listDeadline bounds one question with all its attempts, where the caller has no nearer deadline.
	listDeadline = 5 * time.Second
	// firstPause doubles up to lastPause between attempts that kubelet puts off. It lets through 100 calls a
	// second of all its clients together.
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
	// maxMessage bounds an answer; a node with 500 pods and 5,000 ids needs less than 1 MiB.
	maxMessage = 64 << 20
)

// SocketPath is where the kubelet of directory dir (usually /var/lib/kubelet) listens.
func SocketPath(dir string) string { return filepath.Join(dir, "pod-resources", "kubelet.sock") }

// Client is a connection to one kubelet. It is made by Open, is safe for concurrent use, and is closed by
// whoever made it. It outlives restarts of kubelet.
type Client struct {
	socket string
	conn   *grpc.ClientConn
	lister podresources.PodResourcesListerClient
}

// Open makes a client for a socket. It does not connect: the first call does, and says what is wrong.
func Open(socket string) (*Client, error) {
	conn, err := grpc.NewClient("passthrough:///kubelet",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}),
		// The socket lies in a folder of root's; there is nothing to encrypt.
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// A kubelet that was away is found again within a second.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 2, Jitter: 0.2, MaxDelay: lastPause},
			MinConnectTimeout: lastPause,
		}),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to %q: %w", socket, err)
	}
	return &Client{socket: socket, conn: conn, lister: podresources.NewPodResourcesListerClient(conn)}, nil
}

// Close ends the connection and every call on it.
func (c *Client) Close() error { return c.conn.Close() }

// List returns which ids of Kerf's resources each container holds: per container (without PodUID) and full
// name of the resource, the ids in order and without repetition. Containers that hold none are left out.
//
// It disturbs kubelet, up to 1.37 at least: kubelet counts the pods, then clears away the ids of all others, and those of a
// pod that it has admitted in between are among them (UpdateAllocatedDevices of its device manager). Such a pod never
// starts. Ask Get where the pods are known.
//
// It takes 5 s at most. An error means that nothing was learned; it wraps sharing.ErrUnavailable where trying
// again may help, sharing.ErrDenied or ErrUnsupported where it does not, and sharing.ErrInvalid for an answer
// that makes no sense.
func (c *Client) List(ctx context.Context) (map[sharing.ContainerRef]map[string][]string, error) {
	var resp *podresources.ListPodResourcesResponse
	err := c.ask(ctx, func(ctx context.Context) (err error) {
		resp, err = c.lister.List(ctx, &podresources.ListPodResourcesRequest{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list pod resources at %q: %w", c.socket, plain(err))
	}
	ids, err := holdings(resp.GetPodResources())
	if err != nil {
		return nil, fmt.Errorf("list pod resources at %q: %w", c.socket, err)
	}
	return ids, nil
}

// ask calls until the answer is not that kubelet is asked too often, in bounded time. The error is gRPC's.
func (c *Client) ask(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, listDeadline)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := call(ctx)
		if status.Code(err) != codes.ResourceExhausted || !rest(ctx, pause) {
			return err
		}
	}
}

// rest waits for half of pause to all of it, so that clients that were put off together do not come back
// together. It reports false when ctx would end before.
func rest(ctx context.Context, pause time.Duration) bool {
	pause -= rand.N(pause / 2) //nolint:gosec // it spreads clients, and keeps no secret
	if end, ok := ctx.Deadline(); ok && time.Until(end) < pause {
		return false
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// plain puts the sentinel of package sharing beside gRPC's error.
func plain(err error) error {
	kind := sharing.ErrUnavailable
	switch status.Code(err) {
	case codes.Unimplemented:
		kind = sharing.ErrUnsupported
	case codes.PermissionDenied, codes.Unauthenticated:
		kind = sharing.ErrDenied
	case codes.Canceled:
		return fmt.Errorf("%w: %w", context.Canceled, err)
	default:
	}
	return fmt.Errorf("%w: %w", kind, err)
}
