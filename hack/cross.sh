#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# cross.sh DIR   unpacks into DIR what builds and runs programs for arm64 on amd64, and installs nothing:
#
#   DIR/bin/aarch64-linux-gnu-gcc   Debian's C compiler for arm64
#   DIR/bin/qemu-aarch64            Debian's emulator, with the C library for arm64
#   DIR/libc                        the C library of Debian's arm64, for the agent's image
#
# cross.txt has the packages with versions and SHA-256. If Debian no longer has a version, write the new one there.
set -euo pipefail
list=$(cd "$(dirname "$0")" && pwd)/cross.txt
dir=$(mkdir -p "$1" && cd "$1" && pwd)

die() {
	printf 'cross: %s\n' "$@" >&2
	exit 1
}

if [ -e "$dir/complete" ] && cmp -s "$list" "$dir/complete"; then
	exit 0
fi
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ "$(uname -m)" = x86_64 ] || die "the packages are for amd64: build there"
command -v apt-get >/dev/null && [ -e "$keys" ] || die "apt-get and $keys are missing: use Debian 12"
echo "cross: unpacking Debian's compiler for arm64 into $dir, once" >&2
rm -rf "${dir:?}"/*

# configure ARCH: apt with separate lists of that architecture.
configure() {
	local apt=$dir/apt-$1
	mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/deb"
	: >"$apt/status"
	echo "deb [arch=$1 signed-by=$keys] http://deb.debian.org/debian bookworm main" >"$apt/sources.list"
	cat >"$apt/apt.conf" <<CONF
APT::Architecture "$1";
APT::Architectures "$1";
APT::Sandbox::User "root";
Dir::State "$apt";
Dir::State::Lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
CONF
	export APT_CONFIG=$apt/apt.conf
	apt-get update -q
}

# get ARCH: download the packages of that architecture and compare them with the list.
get() {
	local arch package version sum file
	configure "$1" || return 1
	while read -r arch package version sum; do
		[ "$arch" = "$1" ] || continue
		(cd "$dir/apt-$1/deb" && apt-get download -q "$package=$version") || return 1
		file=$(echo "$dir/apt-$1/deb/${package}"_*.deb)
		echo "$sum  $file" | sha256sum --check --quiet - || return 1
	done <"$list"
}

{ get amd64 && get arm64; } >"$dir/log" 2>&1 || die "a package could not be downloaded; see $dir/log"
for archive in "$dir"/apt-amd64/deb/*.deb; do
	dpkg-deb -x "$archive" "$dir/root"
done
dpkg-deb -x "$dir"/apt-arm64/deb/libc6_*.deb "$dir/arm64"
ln -s arm64/lib/aarch64-linux-gnu "$dir/libc"
rm -rf "$dir"/apt-*

target=usr/aarch64-linux-gnu
sed -i "s#/$target/lib/##g" "$dir/root/$target/lib/libc.so" # the linker then looks for these files where it finds this one
mkdir "$dir/bin"
# No path of this machine gets into what is built.
cat >"$dir/bin/aarch64-linux-gnu-gcc" <<'WRAPPER'
#!/bin/sh
root=$(cd "$(dirname "$0")/../root" && pwd) || exit
export LD_LIBRARY_PATH="$root/usr/lib/x86_64-linux-gnu"
exec "$root/usr/bin/aarch64-linux-gnu-gcc-12" "-ffile-prefix-map=$root=" "-B$root/usr/bin/aarch64-linux-gnu-" \
	"-B$root/usr/aarch64-linux-gnu/lib/" "-L$root/usr/aarch64-linux-gnu/lib" \
	-isystem "$root/usr/aarch64-linux-gnu/include" "$@"
WRAPPER
cat >"$dir/bin/qemu-aarch64" <<'WRAPPER'
#!/bin/sh
root=$(cd "$(dirname "$0")/../root" && pwd) || exit
exec "$root/usr/bin/qemu-aarch64-static" -L "$root/usr/aarch64-linux-gnu" "$@"
WRAPPER
chmod +x "$dir"/bin/*
cp "$list" "$dir/complete"
