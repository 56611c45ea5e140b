#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Makes a machine of its namespaces, with a simulated driver and the programs below NEIGHBORS at the usual places, and keeps
# it until standard input ends. NEIGHBORS, SITE (an empty folder), BIN, MACHINE and DRIVER are variables.
set -euo pipefail

mount --make-rprivate /
mount -t tmpfs site "$SITE"
for name in usr etc var opt; do
	lower=/$name
	[ ! -d "$NEIGHBORS/$name" ] || lower=$NEIGHBORS/$name:$lower
	mkdir -p "$SITE/$name" "$SITE/work/$name"
	mount -t overlay site -o "lowerdir=$lower,upperdir=$SITE/$name,workdir=$SITE/work/$name" "/$name"
done
mount -t tmpfs run /run
for program in slurmctld slurmd slurmstepd; do
	ln -sf "$program-wlm" "/usr/sbin/$program" # as Debian's alternatives are
done
ln -sf "$BIN"/{kerf,kerf-agent,gpuload} /usr/local/bin/

# Programs resolve the name of the machine at an address that is not of the loopback interface.
ip link set lo up
ip link add name eth0 type veth peer name eth1
ip address add 192.0.2.1/24 dev eth0
ip link set eth1 up
ip link set eth0 up
hostname gpu1
echo '192.0.2.1 gpu1' >>/etc/hosts

# The cgroup of this shell is the root of the site.
mount -t cgroup2 cgroup2 /sys/fs/cgroup

"$BIN/gpusim" start --machine "$MACHINE" --driver "$DRIVER" --dir "$SITE/driver" --no-costs >&2
mkdir -p /etc/cdi
"$BIN/gpusim" cdi --dir "$SITE/driver" >/etc/cdi/nvidia.json
# The tree of a driver has another /proc on a kernel without modules. It shows no new processes, so it goes away again.
# shellcheck disable=SC2016 # the inner shell expands them
exec "$BIN/gpusim" root "$SITE/tree" --dir "$SITE/driver" -- bash -euo pipefail -c '
	[ "$(stat -f -c %T /proc)" = proc ] || umount -l /proc
	echo ready
	while read -r _; do :; done'
