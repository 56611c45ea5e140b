#!/bin/sh
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Shows the main job on this machine. The programs are in bin/ (make build made them).
set -eu
cd "$(dirname "$0")/.."

if [ "$(id -u)" != 0 ]; then
	echo "demo: run it as root: the agent makes cgroups, and only root may set the driver's limits" >&2
	exit 1
fi
go run ./test/demo -bin bin "$@"
