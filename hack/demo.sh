#!/bin/sh
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Shows the main job on this machine. The programs are in bin/ (make build made them). Without an NVIDIA driver, simulated nodes
# stand in, one after the other: one whose driver limits memory itself (r615), and one on which libkerf does (r580).
# DRIVER=r580 names one of them.
set -eu
cd "$(dirname "$0")/.."

if [ "$(id -u)" != 0 ]; then
	echo "demo: run it as root: the agent makes cgroups, and only root may set the driver's limits" >&2
	exit 1
fi
if [ -z "${DRIVER:-}" ] && [ -e /dev/nvidiactl ]; then
	go run ./test/demo -bin bin -driver '' "$@"
	exit
fi
for driver in ${DRIVER:-r615 r580}; do
	go run ./test/demo -bin bin -driver "$driver" "$@"
done
