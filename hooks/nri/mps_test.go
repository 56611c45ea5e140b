// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

const daemonDir = "/run/kerf/mps/GPU/d/v"

// byMPS is what a container gets that MPS holds.
func byMPS() sharing.Injection {
	in := injection()
	in.Env = map[string]string{"CUDA_MPS_PIPE_DIRECTORY": daemonDir + "/pipe",
		"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M"}
	in.Mounts = []sharing.Mount{{Source: daemonDir + "/pipe", Target: daemonDir + "/pipe", ReadOnly: true},
		{Source: daemonDir + "/shm", Target: "/dev/shm"}}
	return in
}

// The daemon's /dev/shm replaces the one that the runtime gives to all containers of a pod. It does not replace a
// volume there, or the node's own, without an error.
func TestSharedMemoryOfAnMPSDaemon(t *testing.T) {
	const box = "0123456789abcdef"
	for source, refused := range map[string]bool{
		"/run/containerd/io.containerd.grpc.v1.cri/sandboxes/" + box + "/shm":     false,
		"/var/run/containers/storage/overlay-containers/" + box + "/userdata/shm": false,
		"/var/lib/kubelet/pods/1-2-3/volumes/kubernetes.io~empty-dir/shm":         true,
		"/dev/shm":          true, // hostIPC
		"/" + box + "x/shm": true,
		"/somewhere/" + box: true,
	} {
		c := containerOf("main")
		c.PodSandboxId = box
		c.Env = []string{"CUDA_MPS_PIPE_DIRECTORY=/tmp/mine", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=7=1G"}
		c.Mounts = []*api.Mount{{Source: "/x", Destination: "/dev"}, {Source: source, Destination: "/dev/shm"}}
		a, err := adjustGuarded(c, byMPS())
		if errors.Is(err, sharing.ErrInvalid) != refused || err != nil && !strings.Contains(err.Error(), "/dev/shm") {
			t.Errorf("%s: %v", source, err)
		}
		if err != nil {
			continue
		}
		var got []string
		for _, m := range a.GetMounts() {
			got = append(got, m.GetSource()+" "+m.GetDestination()+" "+strings.Join(m.GetOptions(), ","))
		}
		want := []string{daemonDir + "/pipe " + daemonDir + "/pipe bind,nosuid,nodev,ro",
			daemonDir + "/shm /dev/shm bind,nosuid,nodev,rw"}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		for key, value := range byMPS().Env {
			if !slices.ContainsFunc(a.GetEnv(), func(e *api.KeyValue) bool {
				return e.GetKey() == key &&
					e.GetValue() == value
			}) {
				t.Errorf("%s is not set: %v", key, a.GetEnv())
			}
		}
		if _, err := adjustGuarded(c, injection()); err != nil {
			t.Errorf("%s without MPS: %v", source, err)
		}
	}
	for _, at := range []string{daemonDir, daemonDir + "/pipe/control", "/dev/shm/x"} {
		c := containerOf("main")
		c.Mounts = []*api.Mount{{Source: "/x", Destination: at}}
		if _, err := adjustGuarded(c, byMPS()); errors.Is(err, sharing.ErrInvalid) != (at != daemonDir) {
			t.Errorf("at %s: %v", at, err)
		}
	}
	c := containerOf("main") // of a runtime that does not tell
	c.Mounts = []*api.Mount{{Source: "/run/x/shm", Destination: "/dev/shm"}}
	if _, err := adjustGuarded(c, byMPS()); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("without a sandbox's id: %v", err)
	}
}
