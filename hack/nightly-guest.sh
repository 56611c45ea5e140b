#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Boots a virtual machine with Debian's kernel and systemd, and runs test/guest in it. Arguments go to "go test".
# It needs no root and no KVM: QEMU emulates the processor. Debian packages are unpacked into .cache/guest, and none is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$PWD/.cache/guest
emulator=(qemu-system-x86 cpio)
system=(systemd-sysv util-linux coreutils dash runc)
kernel=linux-image-cloud-amd64
packages="1 ${emulator[*]} ${system[*]} $kernel" # increase the number if unpacking changes

die() {
	echo "guest: $*" >&2
	exit 1
}
[ "$(uname -m)" = x86_64 ] || die "the guest is an x86-64 machine: run it on one"
for command in apt-get apt-cache dpkg; do
	command -v "$command" >/dev/null || die "there is no $command: run it on Debian or a system made from it"
done

# closure NAME PACKAGE...: downloads the packages with all that they depend on, as if nothing were installed.
closure() {
	local archives=$dir/deb/$1
	shift
	mkdir -p "$archives/partial"
	: >"$dir/status"
	apt-get install -q -y --download-only -o APT::Install-Recommends=false -o Debug::NoLocking=1 \
		-o Dir::State::status="$dir/status" -o Dir::Cache::archives="$archives" "$@"
}

download() {
	local image
	rm -rf "$dir/deb"
	closure emulator "${emulator[@]}" || return
	closure system "${system[@]}" || return
	image=$(apt-cache depends "$kernel" | awk '$1 == "Depends:" && $2 ~ /^linux-image-/ {print $2}')
	mkdir -p "$dir/deb/kernel"
	(cd "$dir/deb/kernel" && apt-get download -q "$image")
}

# unpack NAME: the files of the packages that "closure NAME" downloaded, below $dir/NAME.
unpack() {
	local d
	rm -rf "${dir:?}/$1"
	for d in "$dir/deb/$1"/*.deb; do
		dpkg -x "$d" "$dir/$1"
	done
}

# unpacked PROGRAM: a command that starts a program of the emulator's packages with their own libraries.
unpacked() {
	local root=$dir/emulator libs=lib/x86_64-linux-gnu
	printf '#!/bin/sh\nQEMU_MODULE_DIR=%q exec %q --library-path %q %q "$@"\n' "$root/usr/$libs/qemu" \
		"$root/$libs/ld-linux-x86-64.so.2" "$root/$libs:$root/usr/$libs" "$root/$1" >"$dir/$(basename "$1")"
	chmod +x "$dir/$(basename "$1")"
}

# archive DIRECTORY: its files as an archive that the kernel unpacks at its start. All belong to root.
archive() { (cd "$1" && find . -print0 | "$dir/cpio" -0 -o -H newc -R 0:0 --quiet); }

# base_system: the packages' files with what their installation scripts would add.
base_system() {
	local root=$dir/system d
	for d in bin sbin lib lib64; do
		if [ -d "$root/$d" ]; then
			mkdir -p "$root/usr/$d"
			cp -a "$root/$d/." "$root/usr/$d/"
			rm -rf "${root:?}/$d"
		fi
		ln -s "usr/$d" "$root/$d"
	done
	rm -rf "$root"/usr/share/{locale,doc,man,info,i18n} "$root"/usr/lib/x86_64-linux-gnu/gconv
	mkdir -p "$root"/{proc,sys,dev,run,tmp,root}
	ln -s usr/lib/systemd/systemd "$root/init"
	ln -sf dash "$root/usr/bin/sh"
	echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
	echo 'root:x:0:' >"$root/etc/group"
	echo guest >"$root/etc/hostname"
	: >"$root/etc/machine-id"
}

prepare() {
	[ "$(cat "$dir/packages" 2>/dev/null)" = "$packages" ] && return
	mkdir -p "$dir"
	echo 'guest: downloading and unpacking Debian packages, once' >&2
	rm -f "$dir/packages"
	# Only root can refresh the lists of packages.
	if ! { download || { apt-get update -q && download; }; } >"$dir/download.log" 2>&1; then
		tail -n 5 "$dir/download.log" >&2
		die "apt-get could not download the packages; see $dir/download.log"
	fi
	unpack emulator
	unpack system
	unpack kernel
	unpacked bin/cpio
	unpacked usr/bin/qemu-system-x86_64
	base_system
	archive "$dir/system" >"$dir/system.cpio"
	cp "$dir"/kernel/boot/vmlinuz-* "$dir/vmlinuz"
	rm -rf "$dir/deb" "$dir/kernel"
	echo "$packages" >"$dir/packages"
}

# kerf_files: Kerf, the simulated driver, the units, and a root directory for a container.
kerf_files() {
	local root=$dir/kerf libs=lib/x86_64-linux-gnu own program
	rm -rf "$root"
	mkdir -p "$root"/{opt/kerf/bin,opt/bundle/rootfs,opt/guest,usr/lib/systemd/system}
	for program in kerf-agent kerf kerf-hook libkerf.so gpusim gpuload gpusim-lib; do
		[ -e "bin/$program" ] || die "there is no bin/$program: run 'make build' first"
		cp -r "bin/$program" "$root/opt/kerf/bin/"
	done
	cp deploy/service/kerf-agent.service "$root/usr/lib/systemd/system/"
	cp -r test/guest/units/. "$root/usr/lib/systemd/system/"
	CGO_ENABLED=0 go test -c -o "$root/opt/guest/guest.test" ./test/guest

	own=$root/opt/bundle/rootfs
	mkdir -p "$own"/{bin,lib64,$libs,usr/$libs,proc,sys,dev}
	cp bin/gpuload "$dir/system/bin/dd" "$own/bin/"
	cp "$dir/system/$libs/ld-linux-x86-64.so.2" "$own/lib64/"
	cp "$dir/system/$libs/libc.so.6" "$own/$libs/"
	archive "$root" >"$dir/kerf.cpio"
	rm -rf "$root"
}

mkdir -p .cache
exec 9>.cache/guest.lock
flock 9
prepare
kerf_files
cat "$dir/system.cpio" "$dir/kerf.cpio" >"$dir/initrd"
go test -count=1 -v -timeout 30m -run '^TestGuest$' ./test/guest -guest "$dir" "$@"
