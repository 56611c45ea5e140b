// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
)

// fakeNamespaces have labels by their names, and count who asks.
type fakeNamespaces struct {
	mu    sync.Mutex
	asked int
	fail  error
}

func (f *fakeNamespaces) NamespaceLabels(_ context.Context, name string) (map[string]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if name == "let-off" {
		return map[string]string{sharing.LabelHostPaths: "true"}, f.fail
	}
	return map[string]string{sharing.LabelHostPaths: "maybe"}, f.fail
}

func hostPathsOf(n Namespaces) HostPaths {
	return HostPaths{
		Guarded: []string{"/run/kerf", "/opt/kerf/", "/etc/cdi", "/var/run/cdi", "/var/lib/kubelet/device-plugins"},
		Allowed: []string{"kerf-system"}, Namespaces: n,
	}
}

func mounting(c *api.Container, from string) *api.Container {
	c.Mounts = []*api.Mount{
		{Source: "proc", Destination: "/proc", Type: "proc"}, {Source: "tmpfs", Destination: "/dev", Type: "tmpfs"},
		{Source: from, Destination: "/mnt/x", Type: "bind", Options: []string{"rbind", "rw"}},
	}
	return c
}

func TestReach(t *testing.T) {
	h := hostPathsOf(nil)
	for from, want := range map[string]bool{
		"/run/kerf": true, "/var/run/kerf/hook.sock": true, "/run//kerf/./x": true, "/run/x/../kerf": true,
		"/run/kerf/": true,
		"/opt/kerf":  true, "/etc/cdi/nvidia.yaml": true, "/run/cdi": true, "/var/run/cdi": true,
		"/var/lib/kubelet/device-plugins/x.sock": true,
		"/dev/nvidia0":                           true, "/dev/nvidiactl": true, "/dev/nvidia-caps/nvidia-cap1": true,
		"/proc/1/root": true, "/proc/self/root/dev": true, "/proc/42": true,
		"/": false, "/run": false, "/etc": false, "/var/lib/kubelet": false, "/var/lib/kubelet/pods/u/volumes/x": false,
		"/opt/kerfuffle": false,
		"/dev":           false, "/dev/null": false, "/proc": false, "/proc/driver/nvidia": false, "/etc/cdix": false,
		"nvidia": false,
	} {
		if got := h.reach(mounting(containerOf("main"), from)); (got != "") != want {
			t.Errorf("%s reaches GPUs past Kerf: %t (%q), want %t", from, got != "", got, want)
		}
	}
}

// TestHostPathsAreRefused goes through the runtime's own code. At admission such a pod only got a warning.
func TestHostPathsAreRefused(t *testing.T) {
	c := newContainerd(t).start()
	names := &fakeNamespaces{}
	plug(t, c.socket(), &fakeNode{}, func(o *Options) { o.HostPaths = hostPathsOf(names) }).serving(t)
	in := func(namespace string) *api.PodSandbox {
		p := podOf("web")
		p.Namespace = namespace
		return p
	}
	create := func(namespace, from string, cdi ...string) error {
		_, err := c.create(in(namespace), mounting(containerOf("main", cdi...), from))
		return err
	}
	if err := create("default", "/data"); err != nil || names.asked != 0 {
		t.Errorf("a folder of unowned: %v, %d questions", err, names.asked)
	}
	if err := create("kerf-system", "/run/kerf"); err != nil || names.asked != 0 {
		t.Errorf("a namespace of the list: %v, %d questions", err, names.asked)
	}
	if err := create("let-off", "/run/kerf"); err != nil {
		t.Errorf("a namespace with the label: %v", err)
	}
	for _, cdi := range [][]string{nil, guarded()} {
		err := create("default", "/run/kerf", cdi...)
		if err == nil || !strings.Contains(err.Error(), `host path "/run/kerf"`) ||
			!strings.Contains(err.Error(), "kerf.dev/allow-host-paths=true") {
			t.Errorf("with CDI names %q: %v", cdi, err)
		}
	}
	names.fail = fmt.Errorf("no API server: %w", sharing.ErrUnavailable)
	if err := create("let-off", "/run/kerf"); err == nil || !strings.Contains(err.Error(), "is not known") {
		t.Errorf("while the API server is away: %v", err)
	}
}

// TestMissed: a container that was created while the plugin was away is reported when the plugin comes, until the
// container ends.
func TestMissed(t *testing.T) {
	c := newContainerd(t)
	box, system := podOf("web"), podOf("plugin")
	system.Namespace = "kerf-system"
	running := func(ctr *api.Container, pod *api.PodSandbox) *api.Container {
		ctr.PodSandboxId, ctr.State, ctr.Pid = pod.Id, api.ContainerState_CONTAINER_RUNNING, 1
		return ctr
	}
	asking := running(containerOf("asks"), box)
	asking.Mounts = []*api.Mount{{Source: "/dev/null", Destination: "/var/run/x/../nvidia-container-devices/0",
		Type: "bind"}}
	stopped := running(mounting(containerOf("stopped"), "/run/kerf"), box)
	stopped.State = api.ContainerState_CONTAINER_STOPPED
	c.pods = []*api.PodSandbox{box, system}
	c.ctrs = []*api.Container{
		running(mounting(containerOf("mounts"), "/run/kerf"), box), asking, stopped,
		running(mounting(containerOf("own"), "/run/kerf"), system), running(mounting(containerOf("data"), "/data"),
			box),
		running(mounting(containerOf("grant", guarded()...), "/run/kerf/client/k-1"), box), // mounted by Kerf
	}
	var mu sync.Mutex
	var reported [][]Missed
	c.start()
	plug(t, c.socket(), &fakeNode{}, func(o *Options) {
		o.HostPaths = hostPathsOf(&fakeNamespaces{})
		o.Missed = func(_ context.Context, all []Missed) {
			mu.Lock()
			defer mu.Unlock()
			reported = append(reported, all)
		}
	}).serving(t)
	last := func() []string {
		mu.Lock()
		defer mu.Unlock()
		var names []string
		if len(reported) > 0 {
			for _, m := range reported[len(reported)-1] {
				names = append(names, m.Ref.Container+": "+m.Reason)
			}
		}
		return names
	}
	eventually.True(t, "two are reported", func() bool { return len(last()) == 2 })
	if all := last(); !strings.HasPrefix(all[0], "asks: ") ||
		!strings.Contains(all[0], "that the container was not given") ||
		!strings.HasPrefix(all[1], "mounts: ") || !strings.Contains(all[1], `host path "/run/kerf"`) {
		t.Errorf("reported %q", all)
	}
	end := func(name string) {
		t.Helper()
		defer c.nri.BlockPluginSync().Unblock() // until then the runtime may not have the plugin yet
		if err := c.nri.RemoveContainer(context.Background(),
			&api.RemoveContainerRequest{Pod: box, Container: containerOf(name)}); err != nil {
			t.Fatal(err)
		}
	}
	end("mounts")
	end("asks")
	eventually.True(t, "they have ended", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(reported) == 3 &&
			len(reported[2]) == 0
	})
}
