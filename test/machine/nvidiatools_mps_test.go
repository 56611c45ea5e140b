// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// mpsSharing has NVIDIA's MPS daemon divide each GPU into four.
const mpsSharing = `version: v1
sharing:
  mps:
    resources:
    - {name: nvidia.com/gpu, replicas: 4}
`

// mpsWorld runs a program with $0/mps as /mps, where the daemon's image has a volume, and the machine as it is.
const mpsWorld = `new=$0/world && mkdir -p "$new" "$0/mps" && mount -t tmpfs world "$new"
for e in /*; do
	if [ -L "$e" ]; then cp -P "$e" "$new$e"
	elif [ -d "$e" ]; then mkdir "$new$e" && mount --rbind "$e" "$new$e"; fi
done
mkdir "$new/mps" && mount --bind "$0/mps" "$new/mps"
exec chroot "$new" "$@"`

// sharesByMPS has the MPS daemon of NVIDIA's device plugin share the GPUs, and clients find the caps that it sets.
func (m *machine) sharesByMPS(daemon string) error {
	config := filepath.Join(m.work, "mps.yaml")
	if err := os.WriteFile(config, []byte(mpsSharing), 0o600); err != nil {
		return err
	}
	stop := m.signaled(syscall.SIGTERM, "sh", "-ec", mpsWorld, m.work, daemon, "--config-file="+config)
	ready := filepath.Join(m.work, "mps", ".ready")
	if err := within(time.Minute, func() bool { _, err := os.Stat(ready); return err == nil }); err != nil {
		return errors.Join(fmt.Errorf("the daemon is not ready: %w", err), stop())
	}
	err := m.usesMPS()
	if ended := stop(); ended != nil {
		err = errors.Join(err, fmt.Errorf("the daemon at its end: %w", ended))
	}
	if _, left := os.Stat(ready); !errors.Is(left, fs.ErrNotExist) {
		err = errors.Join(err, errors.New("the ended daemon is marked as ready"), left)
	}
	if got := m.computeModes(); got != "Default" {
		err = errors.Join(err, fmt.Errorf("after the daemon, compute modes are %q", got))
	}
	return err
}

// usesMPS tries the daemon's settings as a client.
func (m *machine) usesMPS() (err error) {
	if got := m.computeModes(); got != "Exclusive_Process" {
		err = fmt.Errorf("compute modes are %q", got)
	}
	pipe := filepath.Join(m.work, "mps", "nvidia.com", "gpu", "pipe")
	env := append(slices.Clone(m.env), "CUDA_MPS_PIPE_DIRECTORY="+pipe)
	const ask = "echo get_default_device_pinned_mem_limit 0 | nvidia-cuda-mps-control; " +
		"echo get_default_active_thread_percentage | nvidia-cuda-mps-control"
	r := call(m.t, append(env, "PATH="+filepath.Join(m.sim, "bin")+":"+os.Getenv("PATH")), "/bin/sh", "-c", ask)
	if r.out != "20389M\n25.0\n" {
		err = errors.Join(err, fmt.Errorf("the daemon's settings: %v", r))
	}
	for want, flags := range map[string]string{"": "--alloc 16GiB", "out of memory": "--alloc 20GiB"} {
		argv := load(flags)
		r := call(m.t, env, argv[0], argv[1:]...)
		if got := decode[loaded](m.t, r.out); (want == "") != (got.err() == "") {
			err = errors.Join(err, fmt.Errorf("a client with %s: %v, want %q", flags, r, want))
		}
	}
	return err
}

// computeModes are the different modes of the GPUs.
func (m *machine) computeModes() string {
	r := m.inTree("nvidia-smi", "--query-gpu=compute_mode", "--format=csv,noheader")
	return strings.Join(slices.Compact(strings.Fields(r.out)), " ")
}
