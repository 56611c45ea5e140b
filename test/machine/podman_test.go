// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"strings"
	"testing"
)

// podmanConfig suits a machine without cgroup controllers and without the right to raise limits. It has runc, whose
// device filter needs no more locked memory, and no limits of processes.
const podmanConfig = `mkdir -p /etc/containers
cat >/etc/containers/storage.conf <<'END'
[storage]
driver="vfs"
runroot="/run/containers"
graphroot="/var/lib/containers"
END
cat >/etc/containers/containers.conf <<'END'
[containers]
pids_limit=0
netns="host"
default_ulimits=["nofile=1024:1024","nproc=1024:1024"]
[engine]
runtime="runc"
cgroup_manager="cgroupfs"
events_logger="file"
END
d=$(mktemp -d)
mkdir -p $d/bin $d/lib64 $d/lib/x86_64-linux-gnu $d/usr/lib/x86_64-linux-gnu $d/etc $d/tmp
cp /bin/dash $d/bin/sh
cp -L /usr/local/bin/gpuload $d/bin/
cp /lib64/ld-linux-x86-64.so.2 $d/lib64/
cp /lib/x86_64-linux-gnu/libc.so.6 $d/lib/x86_64-linux-gnu/
printf '#!/bin/sh\n/bin/gpuload --json --alloc 12GiB --step 256MiB || true\n' >$d/bin/python3
chmod +x $d/bin/python3
tar -c -C $d . | podman import -q - docker.io/library/myjob:1
`

// TestNeighborPodman types the commands of docs/use/podman.md. The program of the image wants 12 GiB.
func TestNeighborPodman(t *testing.T) {
	s := newSite(t)
	s.shell(podmanConfig)
	for _, b := range page(t, "use/podman.md") {
		if b.language != "sh" {
			t.Fatalf("a block of %s", b.language)
		}
		out := s.shell(b.text)
		if strings.Contains(b.text, " run ") {
			lines := strings.Split(strings.TrimSpace(out), "\n")
			got := decode[loaded](t, lines[len(lines)-1])
			wantLoad(t, got, oom, 10*gib-contextH100-256*mib, 10*gib-contextH100)
		}
	}
	s.shell("kerf status --wait grants=0")
}

// TestNeighborPodmanNeedsANewReservation starts a container again: it does not start, because its reservation was used.
func TestNeighborPodmanNeedsANewReservation(t *testing.T) {
	s := newSite(t)
	s.shell(podmanConfig)
	s.shell(page(t, "use/podman.md")[0].text)
	s.shell(`d=$(mktemp -d)
devices=$(kerf oci hook "$d" --memory 10GiB | sed -n 's/^device */--device=/p')
podman create --name train --hooks-dir "$d" $devices docker.io/library/myjob:1 python3 train.py
podman --hooks-dir "$d" start --attach train
kerf status --wait grants=0
echo "$d" >/var/tmp/hooks`)
	if r := s.try(`podman --hooks-dir "$(cat /var/tmp/hooks)" start --attach train`); r.code == 0 {
		t.Errorf("a container started again without a reservation: %v", r)
	}
}
