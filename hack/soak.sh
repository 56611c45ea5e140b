#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# soak.sh STEPS   runs what is too long for 'make test': the property test of ledger and allocator and of
# the simulated driver over STEPS random steps, then the soak of the machine suite.
set -euo pipefail
cd "$(dirname "$0")/.."

steps=$1
lazy='-extldflags=-Wl,-z,lazy'
go test -ldflags "$lazy" -count=1 -timeout 2h -v ./sharing/ledger -steps "$steps"
go test -count=1 -timeout 2h -v -run Naive ./internal/gpusim/model -steps "$steps"
go test -ldflags "$lazy" -race -count=1 -timeout 2h -v ./test/machine/... -soak
