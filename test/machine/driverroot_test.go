// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"strings"
	"testing"
)

// oneGPU runs nvidia-smi of the driver root $1 where /dev has one GPU of the simulated node $0, as in a container.
const oneGPU = `mount -t tmpfs dev /dev
for name in nvidiactl nvidia5; do
	touch /dev/$name
	mount --bind "$0/dev/$name" /dev/$name
done
LD_LIBRARY_PATH="$1/usr/lib/x86_64-linux-gnu" "$1/usr/bin/nvidia-smi" -L`

// A container has the GPUs in its /dev, and no more by the libraries of a driver root that it mounts.
func TestDriverRootInContainer(t *testing.T) {
	m := newMachine(t, setup{noAgent: true})
	r := m.inTree("sh", "-ec", oneGPU, m.sim, m.base+"/root")
	if r.code != 0 || strings.Count(r.out, "GPU ") != 1 || !strings.Contains(r.out, m.simUUID(5)) {
		t.Errorf("GPUs in the container: %v, want %s", r, m.simUUID(5))
	}
}
