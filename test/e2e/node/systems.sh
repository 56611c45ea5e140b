#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Where a node system has its sockets and folders, and which of them are read-only or noexec. Sourced.
#
# The files of systems/ have the facts, by the name of the chart's preset. They do not take them from the preset, so that a
# node rejects a wrong one. A node with a system has a root folder without this machine's writes, in memory.

# What a file of systems/ can set. These are the values of the usual node.
KUBELET_DIR=/var/lib/kubelet # kubelet's --root-dir
KUBELET_LINK= # a link to it
RUNTIME_SOCKET=/run/containerd/containerd.sock # containerd's --address
[ "$E2E_RUNTIME" != crio ] || RUNTIME_SOCKET=/var/run/crio/crio.sock
RUNTIME_STATE=/run/containerd # containerd's --state
NRI_SOCKET=/var/run/nri/nri.sock # socket of NRI
NVIDIA_SPEC=/etc/cdi/nvidia.json # CDI spec of NVIDIA's toolkit
NVIDIA_RUNTIME=yes # containerd has the handler nvidia
RUNTIME_CLASS=yes # the cluster has the class nvidia
DRIVER_DIR=/usr/lib/x86_64-linux-gnu # the driver's libraries
TOOLKIT_DIR=/etc/nvidia-container-runtime # config.toml of NVIDIA's toolkit; empty: none
OS_IMAGE='' VERSION_SUFFIX='' NODE_LABELS='' # what kubelet reports
READ_ONLY='' WRITABLE='' NO_EXEC='' EXEC='' # folders; the longest that has a path decides

if [ -n "$E2E_SYSTEM" ]; then
	[ -e "$HERE/systems/$E2E_SYSTEM.conf" ] || die "KERF_E2E_SYSTEM is \"$E2E_SYSTEM\": make it one of test/e2e/node/systems"
	# shellcheck source=/dev/null
	source "$HERE/systems/$E2E_SYSTEM.conf"
fi

# separate_root puts the node on an overlay over this machine's root folder, so that it can have folders and flags there.
separate_root() {
	local root=$NODE/root d
	mkdir -p "$root"
	mount -t tmpfs -o mode=755 tmpfs "$root"
	mkdir "$root/upper" "$root/work" "$root/merged"
	mount -t overlay overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" "$root/merged"
	mount --rbind /dev "$root/merged/dev"
	mount --rbind /proc "$root/merged/proc"
	mount --rbind /sys "$root/merged/sys"
	for d in "$REPO" "$E2E_TOOLS" "$FIRST" "$E2E_DIR"; do
		mount --bind "$d" "$root/merged$d"
	done
	cd "$root/merged"
	pivot_root . .
	umount -l .
	cd /
}

# install_system writes the files of the system. Then each folder gets the flags that it has there.
install_system() {
	rm -f /etc/os-release # a link
	echo "PRETTY_NAME=\"$OS_IMAGE\"" >/etc/os-release
	[ -z "$KUBELET_LINK" ] || ln -sT "$KUBELET_DIR" "$KUBELET_LINK"
	mkdir -p "$DRIVER_DIR" "$(dirname "$RUNTIME_SOCKET")" "$RUNTIME_STATE"
	cp "$REPO/bin/gpusim-lib/$E2E_DRIVER"/lib{nvidia-ml,cuda}.so.1 "$DRIVER_DIR"
	if [ -n "$TOOLKIT_DIR" ]; then
		mkdir -p "$TOOLKIT_DIR"
		echo 'accept-nvidia-visible-devices-envvar-when-unprivileged = false' >"$TOOLKIT_DIR/config.toml"
	fi
	protect_folders
}

# longest PATH FOLDER...: the length of the longest folder that is PATH or has it, or -1.
longest() {
	local path=$1 best=-1 d
	shift
	for d; do
		[ "$d" != / ] || d='' # as a prefix of paths
		case $path/ in "$d"/*) ((${#d} <= best)) || best=${#d} ;; esac
	done
	echo "$best"
}

# protect_folders makes each folder a mount with its flags.
protect_folders() {
	local d flags dirs read_only writable no_exec can_exec
	read -ra read_only <<<"$READ_ONLY"
	read -ra writable <<<"$WRITABLE"
	read -ra no_exec <<<"$NO_EXEC"
	read -ra can_exec <<<"$EXEC"
	# Those that are mounts already do not get the flags of the root.
	dirs=(/etc /home /opt /usr /var)
	mapfile -t dirs < <(printf '%s\n' "${dirs[@]}" "${read_only[@]}" "${writable[@]}" "${no_exec[@]}" "${can_exec[@]}" | sed '/^$/d' | sort -u)
	for d in "${dirs[@]}"; do # a folder comes before those in it
		mkdir -p "$d"
		mountpoint -q "$d" || mount --bind "$d" "$d"
	done
	for d in "${dirs[@]}"; do
		flags=bind
		(($(longest "$d" "${read_only[@]}") <= $(longest "$d" "${writable[@]}"))) || flags+=,ro
		(($(longest "$d" "${no_exec[@]}") <= $(longest "$d" "${can_exec[@]}"))) || flags+=,noexec
		[ "$flags" = bind ] || mount -o "remount,$flags" "$d"
	done
}

# kubelet_flags prints the flags by which kubelet reports the system.
kubelet_flags() {
	[ -z "$VERSION_SUFFIX" ] || echo "--version=v$K8S_VERSION$VERSION_SUFFIX"
	[ -z "$NODE_LABELS" ] || echo "--node-labels=$NODE_LABELS"
}
