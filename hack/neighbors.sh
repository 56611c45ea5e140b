#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Unpacks Podman and Slurm from Debian 12 into .cache/neighbors/root, and installs nothing. The list has every library
# that a small Debian 12 lacks. Exit status 3: this machine cannot download them.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$PWD/.cache/neighbors
packages=(
	podman conmon crun runc golang-github-containers-image golang-github-containers-common
	containernetworking-plugins iptables libip4tc2 libip6tc2 libxtables12 libnfnetlink0 libnetfilter-conntrack3 libnftnl11 libmnl0
	libyajl2 libgpgme11 libassuan0 libsubid4 libseccomp2 libdevmapper1.02.1
	slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge
	libmunge2 libhwloc15 liblua5.1-0 libdbus-1-3 libjson-c5 libyaml-0-2
)
stamp="1 ${packages[*]}" # increase the number if unpacking changes
if [ "$(cat "$dir/stamp" 2>/dev/null)" = "$stamp" ]; then
	exit 0
fi
keys=/usr/share/keyrings/debian-archive-keyring.gpg
for need in "$(command -v apt-get)" "$(command -v dpkg-deb)" "$keys"; do
	[ -e "$need" ] || {
		echo "neighbors: apt-get, dpkg-deb or $keys is missing: run it on Debian 12" >&2
		exit 3
	}
done
rm -rf "$dir"
mkdir -p "$dir/root" "$dir/lists/partial" "$dir/archives"
echo "deb [arch=amd64 signed-by=$keys] http://deb.debian.org/debian bookworm main" >"$dir/sources.list"
touch "$dir/status"
cat >"$dir/apt.conf" <<CONF
Dir::State "$dir";
Dir::State::Lists "$dir/lists";
Dir::State::status "$dir/status";
Dir::Cache "$dir";
Dir::Etc::SourceList "$dir/sources.list";
Dir::Etc::SourceParts "/dev/null";
APT::Sandbox::User "root";
CONF
export APT_CONFIG=$dir/apt.conf
echo "neighbors: downloading Podman and Slurm, once" >&2
if ! { apt-get update -q && cd "$dir/archives" && apt-get download -q "${packages[@]}"; } >"$dir/log" 2>&1; then
	echo "neighbors: download failed: see $dir/log" >&2
	exit 3
fi
for archive in "$dir"/archives/*.deb; do
	dpkg-deb --fsys-tarfile "$archive" | tar -x -C "$dir/root" --no-same-owner
	dpkg-deb --show --showformat '${Package} ${Version}\n' "$archive" >>"$dir/packages"
done
rm -rf "$dir"/{archives,lists,status,apt.conf,sources.list,pkgcache.bin,srcpkgcache.bin}
printf '%s' "$stamp" >"$dir/stamp"
