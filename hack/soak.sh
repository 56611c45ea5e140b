#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# soak.sh STEPS TIME [SEED]   runs what is too long for 'make test': the property tests of ledger, allocators, cluster state and of
# the simulated driver over STEPS random steps, a tenth as many kills of programs that count their memory, 64 programs
# of four threads under one cap, the soak of the machine suite (with 500 rounds of programs with MIG instances on an A100
# and an H100), and on a real Kubernetes 500 rounds of pods with MIG instances on an A100 and an H100, then random pods,
# kills and restarts for TIME (as Go writes it: 30m; 0 leaves all that is on Kubernetes out). SEED repeats a run; 0, the
# default, takes one from the clock, which "make test" never does.
set -euo pipefail
cd "$(dirname "$0")/.."

steps=$1 time=$2 seed=${3:-0}
go test -count=1 -timeout 2h -v ./sharing/ledger -steps "$steps" -seed "$seed"
go test -count=1 -timeout 2h -v -run AtRandom ./sharing/node -steps "$((steps / 100))" -seed "$seed"
go test -count=1 -timeout 2h -v -run Naive ./sharing/allocator/cluster -steps "$steps"
go test -count=1 -timeout 2h -v -run Twice ./sharing/scheduler -steps "$steps"
go test -count=1 -timeout 2h -v -run Naive ./sim/model -steps "$steps"
go test -count=1 -timeout 2h -v ./mig/exec -soak
hack/kills.sh "$((steps / 10))"
go test -count=1 -timeout 1h -v -run '^TestManyProcessesUnderOneCap$' ./internal/libkerf/lib/libtest -processes 64
go test -race -count=1 -timeout 2h -v ./test/machine/... -soak -seed "$seed"

[ "$time" != 0 ] || exit 0
hack/e2e.sh -run '^TestMIGRounds$' -timeout 6h -mig-rounds=500
hack/e2e.sh -run '^TestSoak$' -timeout 6h -soak="$time" -seed="$seed"
