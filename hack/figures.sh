#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# figures.sh   measures what caps and shares of time cost and hold to on this machine, without a GPU, in some ten
# minutes: each in one run with and without. Run it alone; it says what load there was.
set -euo pipefail
cd "$(dirname "$0")/.."

load() { echo "load $(cut -d' ' -f1-3 /proc/loadavg) on $(nproc) cores, $(date -u +%H:%M:%S)"; }
bench() { go test -run '^$' -benchtime "$3" -bench "$1" "$2" | grep '^Benchmark'; }

echo "figures of $(git rev-parse --short HEAD 2>/dev/null || echo an unknown state): $(load)"
echo '--- the library: added to an allocation and its free (aim 1 us), to a launch (aim 300 ns)'
bench '^(BenchmarkAllocateAndFree|BenchmarkLaunch)$' ./internal/libkerf/lib/libtest 3x
echo '--- the library: added to the start of programs, 1, 100 and 300 at once (aim 5 ms each, flat)'
bench '^BenchmarkStart' ./internal/libkerf/lib/libtest 3x
echo "--- the library: 64 programs of 4 threads under one cap: not a byte over, no call rejected while memory is free; $(load)"
go test -count=1 -v -run '^TestManyProcessesUnderOneCap$' ./internal/libkerf/lib/libtest -processes 64 | grep -E '^(---|ok)'
echo '--- the reactive backend: one sample of 8 GPUs with 200 processes of 40 leases'
bench '^BenchmarkGuard$' ./sharing/node 200x
go test -count=1 -v -run '^TestFiguresOfLooks$' ./test/machine -figures | grep -oE '(FIGURE|RESULT) .*|^(--- FAIL|FAIL).*|    .*_test.go.*'
echo "--- the library with an agent: programs that start at once (aim 5 ms added each, flat); $(load)"
go test -count=1 -v -run '^TestFiguresOfStarts$' ./test/machine -figures | grep -oE '(FIGURE|RESULT) .*|^(--- FAIL|FAIL).*|    .*_test.go.*'
echo "--- kerf run, from its start to the end of a program that does nothing; $(load)"
go test -count=1 -v -run '^TestFiguresOfRun$' ./test/machine -figures | grep -oE '(FIGURE|RESULT) .*|^(--- FAIL|FAIL).*|    .*_test.go.*'
echo "--- level reactive: delay and overshoot; $(load)"
go test -count=1 -v -run '^TestFiguresReactive$' ./test/machine -figures | grep -oE '(FIGURE|RESULT) .*|^(--- FAIL|FAIL).*|    .*_test.go.*'
echo "--- 10 to 90 percent of a GPU's time (aim 1 to 9, within a tenth), strict and fair, launches and graphs; $(load)"
go test -count=1 -v -run '^TestFiguresOfTime$' ./test/machine -figures | grep -oE '(FIGURE|RESULT) .*|^(--- FAIL|FAIL).*|    .*_test.go.*'
echo "--- fair: how soon an owner has its time again that others used (aim 200 ms); $(load)"
go test -count=1 -v -run '^TestFiguresOfGivingBack$' ./test/machine -figures | grep -oE '(FIGURE|RESULT) .*|^(--- FAIL|FAIL).*|    .*_test.go.*'
echo "--- a neighbour of 70 percent next to one of 30 percent that does its worst; $(load)"
go test -count=1 -v -run '^TestFiguresOfNeighbours$' ./test/machine -figures | grep -oE '(FIGURE|RESULT) .*|^(--- FAIL|FAIL).*|    .*_test.go.*'
echo "--- kerf-monitor: of a core, a sample each second (aim 1 %) and 20 readers of samples every 100 ms (aim 3 %), and memory (aim 80 MiB, of kerf-agent 60 MiB); $(load)"
go test -count=1 -v -run '^TestFigures(Monitor|AgentMemory)$' ./test/machine -figures | grep -oE '(FIGURE|RESULT) .*|^(--- FAIL|FAIL).*|    .*_test.go.*'
echo "--- programs killed at random moments (make kills does 10^5); $(load)"
hack/kills.sh 3000
echo "done in $SECONDS s: $(load)"
