#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# need.sh [c++]   makes sure that Go and a C compiler are here, and with c++ a C++ compiler. Go must be as new as go.mod says: that is only checked.
# The C compiler and libc's headers are installed when this runs as root on a system with apt-get.
set -euo pipefail
cd "$(dirname "$0")/.."

cc=${CC:-cc}
want=$(awk '$1 == "go" {print $2}' go.mod)

complain() {
	printf 'kerf: %s\n' "$@" >&2
	exit 1
}

if ! command -v go >/dev/null; then
	complain "Go is missing: install Go $want or newer (https://go.dev/dl) and put its bin folder on PATH"
fi
# go itself compares its version with go.mod, and gets a newer toolchain where GOTOOLCHAIN allows that.
if ! said=$(go list -m 2>&1); then
	complain "$said" "if this Go is too old: install Go $want or newer (https://go.dev/dl), or set GOTOOLCHAIN=auto"
fi

# A compiler without headers or libraries is as good as none, so it is tried, not looked up.
compiles() {
	command -v "$cc" >/dev/null || return 1
	printf '#include <stdio.h>\n#include <pthread.h>\nint main(void) { return puts("") < 0; }\n' |
		"$cc" -x c -o /dev/null - 2>/dev/null
}

# A module that Vale uses has C++ sources.
if [ "${1:-}" = c++ ] && ! command -v c++ >/dev/null; then
	if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
		complain "no C++ compiler (c++): install g++ (Debian: apt-get install g++; Fedora: dnf install gcc-c++)"
	fi
	echo "kerf: installing g++" >&2
	export DEBIAN_FRONTEND=noninteractive
	install_cxx() {
		apt-get install -y -q --no-install-recommends g++ >&2
	}
	install_cxx || { apt-get update -q >&2 && install_cxx; } || complain "apt-get could not install g++: see its messages above"
fi

if compiles; then
	exit 0
fi
if [ "$cc" != cc ] && [ "$cc" != gcc ]; then
	complain "CC=$cc does not compile a small C program: set CC to a C compiler that does"
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
	complain "no working C compiler ($cc): install gcc and libc's headers (Debian: apt-get install gcc libc6-dev; Fedora: dnf install gcc glibc-devel)"
fi
echo "kerf: installing gcc and libc6-dev" >&2
export DEBIAN_FRONTEND=noninteractive
install_packages() {
	apt-get install -y -q --no-install-recommends gcc libc6-dev >&2
}
install_packages || { apt-get update -q >&2 && install_packages; } ||
	complain "apt-get could not install gcc and libc6-dev: see its messages above"
compiles || complain "$cc does not compile a small C program even now: set CC to a C compiler that does"
