#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests of libkerf's and the simulator's C code in builds of ASan with UBSan, and of TSan.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(./internal/libkerf/lib/libtest ./sim/lib/libtest)

# Left out: tests of what a sanitizer's runtime changes in the library (needs, code), and of programs that another runtime,
# another C library, another preloaded library or another name space loads first.
without='TestNeeds|TestPrototypes|TestProgramsOfOtherLoaders|TestProgramsOfSanitizers|TestHowTheDriverIsOpened'
without+='|TestWithAnotherLibrary|TestGpuloadOpensTheDriver'

# TSan sees one process, and none that forks.
threads='TestEveryWayAtOnce|TestFamilies|TestEveryWayToTheDriver|TestTrimsOfPools|TestNoCallIsRejectedWhileBytesMove'
threads+='|TestSharesOfTime|TestEachWayIsThrottled'
threads+='|TestCUDAScenarios|TestDaemonScenarios|TestMPSThreads|TestMPSClient|TestNVMLReads|TestNVMLEvents|TestNVMLInterrupts'
threads+='|TestGpuloadLaunches|TestSmallAllocationsAtOnce'

run() {
	local name=$1 flags=$2
	shift 2
	echo "--- $name"
	ASAN_OPTIONS=detect_leaks=0 KERF_TEST_SANITIZE=$flags go test -count=1 -timeout 9m "$@" "${packages[@]}"
}

# The programs end with memory that CUDA's interface never frees, so leaks are not reported.
run 'ASan, UBSan' '-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer' -skip "^($without)\$"
run TSan '-fsanitize=thread' -run "^($threads)\$"
