// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package fakekubelet stands in for kubelet's device manager in tests. Over real sockets it does what kubelet 1.37 does
// to a device plugin, at the same moments.
//
// At a start it deletes every socket in its folder. It calls a plugin back while that registers, and refuses a socket
// that it knows already. It drops a plugin whose list stream ends, and promotes the remaining one. It picks any healthy
// free ids, remembers allocations over a restart, and calls PreStartContainer before every start. A List takes the ids
// of pods that it admits meanwhile.
//
// It does not run containers, schedule, or align NUMA nodes; it has no back-off and no grace periods.
package fakekubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kerf-gpu/kerf/sharing"
)

// callBack is how long a plugin may take to answer while it registers.
const callBack = 10 * time.Second

// Registration is one call that succeeded.
type Registration struct {
	Resource, Endpoint string
	At                 time.Time
}

// Kubelet is a device manager on one folder. The zero value is not usable; see New.
type Kubelet struct {
	dir string

	mu      sync.Mutex
	srv     *grpc.Server
	ln      *net.UnixListener
	done    sync.WaitGroup
	plugins map[string]map[string]*plugin
	primary map[string]*plugin
	devices map[string]map[string]*pluginapi.Device
	past    []Registration
	updates map[string]int
	// refuse is what registrations are answered with, nil to accept them.
	refuse error
	// slow, where set, is read from before each list is taken.
	slow chan struct{}

	// held outlives a restart, as kubelet's checkpoint does.
	held map[sharing.ContainerRef]map[string][]string
	// pods are those that it knows; a key has no container. The resources of which a container must have ids when it
	// starts are admitted. The ids that it is about to give are chosen.
	pods     map[sharing.ContainerRef]bool
	admitted map[sharing.ContainerRef]map[string]bool
	chosen   map[string]map[string]bool
	lists    int
	counted  func()
}

// plugin is one connected socket.
type plugin struct {
	resource, socket string
	conn             *grpc.ClientConn
	api              pluginapi.DevicePluginClient
	options          *pluginapi.DevicePluginOptions
	end              context.CancelFunc
}

// New makes a kubelet that is not running.
func New(dir string) *Kubelet {
	return &Kubelet{
		dir: dir, held: map[sharing.ContainerRef]map[string][]string{}, updates: map[string]int{},
		pods: map[sharing.ContainerRef]bool{}, admitted: map[sharing.ContainerRef]map[string]bool{},
		chosen: map[string]map[string]bool{},
	}
}

// Start makes the folder, deletes the sockets in it and listens on kubelet.sock.
func (k *Kubelet) Start() error {
	if err := os.MkdirAll(k.dir, 0o750); err != nil {
		return err
	}
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type() != fs.ModeSocket {
			continue
		}
		if err := os.Remove(filepath.Join(k.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(k.dir, "kubelet.sock"), Net: "unix"})
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plugins = map[string]map[string]*plugin{}
	k.primary = map[string]*plugin{}
	k.devices = map[string]map[string]*pluginapi.Device{}
	k.ln = ln
	k.srv = grpc.NewServer(grpc.WaitForHandlers(true))
	pluginapi.RegisterRegistrationServer(k.srv, &registry{k: k})
	srv := k.srv
	k.done.Go(func() { _ = srv.Serve(ln) })
	return nil
}

// Stop ends it in order: kubelet.sock is gone afterwards. Stop and Kill of one that does not run do nothing.
func (k *Kubelet) Stop() { k.end(true) }

// Kill ends it as a signal would: kubelet.sock stays, and no process listens on it.
func (k *Kubelet) Kill() { k.end(false) }

func (k *Kubelet) end(unlink bool) {
	k.mu.Lock()
	srv := k.srv
	k.srv = nil
	if srv != nil {
		k.ln.SetUnlinkOnClose(unlink)
	}
	for _, sockets := range k.plugins {
		for _, p := range sockets {
			p.end()
		}
	}
	k.mu.Unlock()
	if srv != nil {
		srv.Stop()
	}
	k.done.Wait()
}

// Refuse makes it answer registrations with err, nil to accept them again.
func (k *Kubelet) Refuse(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refuse = err
}

// Slow makes each list wait for one value of c before it is taken; nil ends that for later lists.
func (k *Kubelet) Slow(c chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.slow = c
}

// Drop ends the list streams of a resource, as a broken connection does.
func (k *Kubelet) Drop(resource string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.plugins[resource] {
		p.end()
	}
}

// Registrations are all that succeeded, over all starts, in their order.
func (k *Kubelet) Registrations() []Registration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]Registration(nil), k.past...)
}

type registry struct {
	pluginapi.UnimplementedRegistrationServer

	k *Kubelet
}

// Register calls the plugin back, and watches its list from then on.
func (r *registry) Register(ctx context.Context, req *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	k := r.k
	k.mu.Lock()
	refuse := k.refuse
	k.mu.Unlock()
	if refuse != nil {
		return nil, refuse
	}
	if req.GetVersion() != pluginapi.Version {
		return nil, fmt.Errorf("version %q is not supported", req.GetVersion())
	}
	socket := filepath.Join(k.dir, req.GetEndpoint())
	conn, err := grpc.NewClient("passthrough:///plugin",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(), grpc.WithAuthority("localhost"))
	if err != nil {
		return nil, err
	}
	p := &plugin{resource: req.GetResourceName(), socket: socket, conn: conn,
		api: pluginapi.NewDevicePluginClient(conn)}
	ctx, cancel := context.WithTimeout(ctx, callBack)
	defer cancel()
	p.options, err = p.api.GetDevicePluginOptions(ctx, &pluginapi.Empty{}, grpc.WaitForReady(true))
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := k.connect(p); err != nil { // kubelet watches on when the registration is over
		return nil, errors.Join(err, conn.Close())
	}
	return &pluginapi.Empty{}, nil
}

func (k *Kubelet) connect(p *plugin) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.srv == nil {
		return errors.New("kubelet stops")
	}
	if k.plugins[p.resource][p.socket] != nil {
		return fmt.Errorf("device plugin already connected: %s", p.socket)
	}
	if k.plugins[p.resource] == nil {
		k.plugins[p.resource] = map[string]*plugin{}
	}
	k.plugins[p.resource][p.socket] = p
	k.primary[p.resource] = p
	k.past = append(k.past, Registration{Resource: p.resource, Endpoint: filepath.Base(p.socket), At: time.Now()})
	ctx, cancel := context.WithCancel(context.Background())
	p.end = cancel
	k.done.Go(func() {
		k.watch(ctx, p)
		cancel()
		_ = p.conn.Close()
	})
	return nil
}

// watch takes lists until the stream ends, and then forgets the plugin.
func (k *Kubelet) watch(ctx context.Context, p *plugin) {
	defer k.disconnect(p)
	stream, err := p.api.ListAndWatch(ctx, &pluginapi.Empty{})
	if err != nil {
		return
	}
	for {
		k.mu.Lock()
		slow := k.slow
		k.mu.Unlock()
		if slow != nil {
			select {
			case <-slow:
			case <-ctx.Done():
				return
			}
		}
		resp, err := stream.Recv()
		if err != nil {
			return
		}
		k.mu.Lock()
		all := make(map[string]*pluginapi.Device, len(resp.GetDevices()))
		for _, d := range resp.GetDevices() {
			all[d.GetID()] = d
		}
		k.devices[p.resource] = all
		k.updates[p.resource]++
		k.mu.Unlock()
	}
}

func (k *Kubelet) disconnect(p *plugin) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.plugins[p.resource][p.socket] != p {
		return
	}
	delete(k.plugins[p.resource], p.socket)
	for _, other := range k.plugins[p.resource] {
		k.primary[p.resource] = other
		return
	}
	delete(k.primary, p.resource)
	for id, d := range k.devices[p.resource] {
		k.devices[p.resource][id] = &pluginapi.Device{ID: id, Health: pluginapi.Unhealthy, Topology: d.GetTopology()}
	}
}
