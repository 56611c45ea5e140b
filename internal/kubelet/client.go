// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubelet is the adapter to kubelet's podresources socket: which container has which ids of Kerf's resources,
// as kubelet counts them.
//
// It promises that an answer is complete: a call that fails or is interrupted, or an answer without a name, is an
// error. It waits a while if kubelet reports too many requests.
//
// An entry is no proof that a container runs: kubelet tells of pods that have ended until it has cleaned up
// after them. It does not tell what init containers hold that are not restartable. It knows names of pods,
// not their UIDs. Of a pod that it is admitting it tells what it has given out so far.
package kubelet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
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

// Client is a connection to one kubelet. Open creates it. It is safe for concurrent use and outlives restarts of
// kubelet. The caller closes it.
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

// List returns which ids of Kerf's resources each container has. The keys are the container (without PodUID) and the
// full name of the resource. The ids are in order and without repetition. Containers without ids are left out.
//
// It disturbs kubelet, up to 1.37 at least. Kubelet counts the pods, then clears the ids of all others. Those include a
// pod that it has admitted in between (UpdateAllocatedDevices of its device manager). Such a pod never starts. Use Get
// if the pods are known.
//
// It takes 5 s at most. An error means that nothing is known. It wraps sharing.ErrUnavailable if another try may help,
// and sharing.ErrDenied or ErrUnsupported if it does not. It wraps sharing.ErrInvalid for an answer that makes no
// sense.
func (c *Client) List(ctx context.Context) (map[sharing.ContainerRef]map[string][]string, error) {
	var resp *podresources.ListPodResourcesResponse
	err := c.ask(ctx, func(ctx context.Context) (err error) {
		resp, err = c.lister.List(ctx, &podresources.ListPodResourcesRequest{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list pod resources at %q: %w", c.socket, plain(err))
	}
	ids, err := idsOf(resp.GetPodResources())
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

// plain adds the sentinel of package sharing to gRPC's error.
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

// Get returns which ids of Kerf's resources the containers of one pod hold, as List does for all pods. Unlike List it
// only reads: kubelet clears nothing away for it. The pod is the one that has the name now; kubelet does not say its
// UID.
//
// It takes 5 s at most. Its errors are those of List, and sharing.ErrNotFound if kubelet knows no pod of that name. It
// has none, or has not heard of it yet, as in its first moments. It is sharing.ErrUnsupported if kubelet has no such
// call: before 1.27, and if it is off, as by default before 1.34.
func (c *Client) Get(ctx context.Context, namespace, pod string) (map[sharing.ContainerRef]map[string][]string, error) {
	var resp *podresources.GetPodResourcesResponse
	err := c.ask(ctx, func(ctx context.Context) (err error) {
		resp, err = c.lister.Get(ctx, &podresources.GetPodResourcesRequest{PodNamespace: namespace, PodName: pod})
		return err
	})
	fail := func(err error) (map[sharing.ContainerRef]map[string][]string, error) {
		return nil, fmt.Errorf("get the resources of pod %q at %q: %w", namespace+"/"+pod, c.socket, err)
	}
	if err != nil {
		return fail(spoken(err, namespace, pod))
	}
	if p := resp.GetPodResources(); p.GetNamespace() != namespace || p.GetName() != pod {
		return fail(fmt.Errorf("the answer is of %q: %w", p.GetNamespace()+"/"+p.GetName(), sharing.ErrInvalid))
	}
	ids, err := idsOf([]*podresources.PodResources{resp.GetPodResources()})
	if err != nil {
		return fail(err)
	}
	return ids, nil
}

// spoken is plain for errors that kubelet's Get states in words alone. It gives these two errors no code, and the words
// are the same in every version that has the call. Other words are no answer.
func spoken(err error, namespace, pod string) error {
	if s := status.Convert(err); s.Code() == codes.Unknown {
		switch {
		case s.Message() == fmt.Sprintf("pod %s in namespace %s not found", pod, namespace):
			return fmt.Errorf("%w: %w", sharing.ErrNotFound, err)
		case strings.HasSuffix(s.Message(), "Get method disabled"):
			return fmt.Errorf("%w: %w", sharing.ErrUnsupported, err)
		}
	}
	return plain(err)
}

// held are the ids of Kerf's resources per container (without PodUID) and full name of the resource.
type held = map[sharing.ContainerRef]map[string][]string

// idsOf inverts kubelet's answer. An entry without a name means an incomplete answer, which is an error. Kubelet
// gives one entry for each id, or for each group of ids of one NUMA node.
func idsOf(pods []*podresources.PodResources) (held, error) {
	out := make(held)
	for _, pod := range pods {
		if pod.GetName() == "" || pod.GetNamespace() == "" {
			return nil, fmt.Errorf("a pod without a name (%q in namespace %q): %w", pod.GetName(), pod.GetNamespace(),
				sharing.ErrInvalid)
		}
		for _, c := range pod.GetContainers() {
			ref := sharing.ContainerRef{Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: c.GetName()}
			if ref.Container == "" {
				return nil, fmt.Errorf("a container of pod %q without a name: %w", ref.Namespace+"/"+ref.Pod,
					sharing.ErrInvalid)
			}
			for _, d := range c.GetDevices() {
				resource := d.GetResourceName()
				if !strings.HasPrefix(resource, sharing.Domain+"/") {
					continue
				}
				if len(d.GetDeviceIds()) == 0 || slices.Contains(d.GetDeviceIds(), "") {
					return nil, fmt.Errorf("container %q: %s without an id: %w", ref, resource, sharing.ErrInvalid)
				}
				if out[ref] == nil {
					out[ref] = make(map[string][]string)
				}
				out[ref][resource] = append(out[ref][resource], d.GetDeviceIds()...)
			}
		}
	}
	for _, held := range out {
		for resource, ids := range held {
			slices.Sort(ids)
			held[resource] = slices.Compact(ids)
		}
	}
	return out, nil
}

// Others returns the devices that device plugins other than Kerf's hand out on this node. For each full name of a
// resource, it has the plugin's ids, in order. It takes 5 s at most, and does not try again. Its errors are those of
// List.
func (c *Client) Others(ctx context.Context) (map[string][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, listDeadline)
	defer cancel()
	resp, err := c.lister.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list the devices of all plugins at %q: %w", c.socket, plain(err))
	}
	out := map[string][]string{}
	for _, d := range resp.GetDevices() {
		if name := d.GetResourceName(); !strings.HasPrefix(name, sharing.Domain+"/") {
			out[name] = append(out[name], d.GetDeviceIds()...)
		}
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out, nil
}
