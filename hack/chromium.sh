#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# chromium.sh DIR   prints the path of a Chromium that runs: one of this machine, or else Debian's. Debian's is downloaded
# with all that it loads and unpacked into DIR. Nothing is installed, and DIR is used again.
set -euo pipefail

dir=$(realpath -m "${1:?which folder?}")
export DEBIAN_FRONTEND=noninteractive
packages=(chromium fonts-dejavu-core fontconfig-config)

# runs BROWSER: a browser can be a stub that only names another package, or miss a library.
runs() { timeout 60 "$1" --version --no-sandbox >/dev/null 2>&1; }

# get downloads the packages and all that they need and this machine lacks. apt-get compares checksums.
get() {
	apt-get -q -o Acquire::Retries=3 -o Debug::NoLocking=1 -o "Dir::Cache::archives=$dir/deb" \
		install --reinstall --download-only --no-install-recommends -y "${packages[@]}"
}

unpack() {
	local deb root=$dir/root
	rm -rf "$root" "$root.new" "$dir/deb"
	mkdir -p "$root.new" "$dir/deb/partial"
	# Package lists that are old name files that the mirror does not have any more.
	get || { apt-get -q update && get; } || return 1
	for deb in "$dir"/deb/*.deb; do
		dpkg -x "$deb" "$root.new"
	done
	rm -rf "$dir/deb"
	mv "$root.new" "$root"
	wrap
}

# wrap writes the command: what is unpacked finds its libraries and fonts by the environment.
wrap() {
	local root=$dir/root libraries=''
	[ ! -d "$root" ] || libraries=$(find "$root" -name 'lib*.so*' -printf '%h\n' | sort -u | paste -sd:)
	cat >"$dir/fonts.conf" <<-END
		<?xml version="1.0"?>
		<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
		<fontconfig><dir>$root/usr/share/fonts</dir><cachedir>$dir/fonts</cachedir></fontconfig>
	END
	cat >"$dir/chromium" <<-END
		#!/bin/sh
		export LD_LIBRARY_PATH='$libraries' FONTCONFIG_FILE='$dir/fonts.conf'
		exec '$root/usr/lib/chromium/chromium' "\$@"
	END
	chmod +x "$dir/chromium"
}

for name in chromium google-chrome; do
	if browser=$(command -v $name) && runs "$browser"; then
		echo "$browser"
		exit
	fi
done
mkdir -p "$dir"
wrap # each time: the folder may have been moved
if ! runs "$dir/chromium"; then
	if ! command -v apt-get >/dev/null; then
		echo "kerf: no Chromium, and no apt-get to download it: install chromium or google-chrome" >&2
		exit 1
	fi
	echo "kerf: downloading Chromium into $dir, once" >&2
	if ! unpack >"$dir/log" 2>&1; then
		tail -n 5 "$dir/log" >&2
		echo "kerf: could not download Chromium: see $dir/log, or install chromium yourself" >&2
		exit 1
	fi
fi
if ! runs "$dir/chromium"; then
	timeout 60 "$dir/chromium" --version --no-sandbox >&2 || true
	echo "kerf: Chromium in $dir does not start: delete this folder and try again, or install chromium yourself" >&2
	exit 1
fi
echo "$dir/chromium"
