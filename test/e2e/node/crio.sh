#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# CRI-O in the place of containerd: its programs, its configuration and its images. Sourced.

CRIO_VERSION=1.34.0
# conmon starts each container for CRI-O.
CRIO_PACKAGES=(conmon libglib2.0-0 libpcre2-8-0)
CRIO_DEB=$E2E_TOOLS/deb-crio
CRIO_STORAGE=(--root /var/lib/containers/storage --runroot /run/containers/storage --storage-driver overlay)

# build_crio: CRI-O without the parts that need C libraries (seccomp, btrfs, gpgme), and pinns, its only C program.
build_crio() {
	local m=github.com/cri-o/cri-o tags="containers_image_openpgp containers_image_ostree_stub exclude_graphdriver_btrfs netgo osusergo" p dir
	unpack_debs "$CRIO_DEB" "${CRIO_PACKAGES[@]}"
	for p in crio copyimg; do
		dir=cmd
		[ $p = crio ] || dir=test
		go_build $p "$HERE/crio" $m/$dir/$p 0 "$tags" "-s -w"
	done
	if [ ! "$BIN/pinns" -nt "$BIN/crio.key" ]; then
		dir=$(cd "$HERE/crio" && GOFLAGS='' GOWORK=off go list -m -f '{{.Dir}}' $m)/pinns/src
		gcc -O2 -s -static -std=c99 -D_GNU_SOURCE -DVERSION="\"$CRIO_VERSION\"" -o "$BIN/pinns.new" "$dir"/*.c
		mv "$BIN/pinns.new" "$BIN/pinns"
	fi
	printf '#!/bin/sh\nLD_LIBRARY_PATH=%q exec %q "$@"\n' "$CRIO_DEB/usr/lib/x86_64-linux-gnu:$CRIO_DEB/lib/x86_64-linux-gnu" \
		"$CRIO_DEB/usr/bin/conmon" | wrapper conmon
}

# crio_runtime NAME BINARY: one entry of CRI-O's runtimes. CRI-O writes limits of huge pages also where their controller is on
# cgroup v2 and the others are not, and an oom_score_adj that runc may not set (see keep_oom). It has no setting for either,
# so a command before the runtime changes the spec.
crio_runtime() {
	local change='s/"hugepageLimits": *\[[^]]*\]/"hugepageLimits": []/'
	[ "$(keep_oom)" = false ] || change+="; s/\"oomScoreAdj\": *-*[0-9]*/\"oomScoreAdj\": $(cat /proc/self/oom_score_adj)/"
	# shellcheck disable=SC2016 # the command expands it
	printf '#!/bin/sh\nfor a; do\n[ "$b" != --bundle ] || sed -zi %q "$a/config.json"\nb=$a\ndone\nexec %q "$@"\n' \
		"$change" "$2" | wrapper "crio-$1"
	cat <<-END
		[crio.runtime.runtimes.$1]
		  runtime_path = "$DEB/wrapped/crio-$1"
		  runtime_root = "/run/$1"
		  monitor_path = "$DEB/wrapped/conmon"
		  monitor_cgroup = "pod"
	END
}

crio_config() {
	echo '{"default": [{"type": "insecureAcceptAnything"}]}' >"$CONF/policy.json"
	{
		cat <<-END
			[crio]
			  root = "/var/lib/containers/storage"
			  runroot = "/run/containers/storage"
			  storage_driver = "overlay"
			  log_dir = "/var/log/crio/pods"
			  version_file = "/run/crio/version"
			  clean_shutdown_file = ""
			[crio.api]
			  listen = "$RUNTIME_SOCKET"
			[crio.image]
			  pause_image = "$PAUSE_REF"
			  pause_command = "/pause"
			  signature_policy = "$CONF/policy.json"
			[crio.network]
			  network_dir = "/etc/cni/net.d"
			  plugin_dirs = ["/opt/cni/bin"]
			[crio.nri]
			  enable_nri = true
			  nri_listen = "/var/run/nri/nri.sock"
			[crio.runtime]
			  default_runtime = "runc"
			  cgroup_manager = "cgroupfs"
			  conmon_cgroup = "pod"
			  pinns_path = "$BIN/pinns"
			  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
			  apparmor_profile = "unconfined"
			  container_exits_dir = "/run/crio/exits"
			  container_attach_socket_dir = "/run/crio"
		END
		crio_runtime runc "$BIN/runc"
		crio_runtime crun "$DEB/wrapped/crun"
		# Obeys NVIDIA_VISIBLE_DEVICES, as NVIDIA's own runtime does.
		crio_runtime nvidia "$BIN/nvidia-container-runtime"
	} >"$CONF/crio.conf"
}

# start_crio returns when CRI-O answers.
start_crio() {
	daemon crio "$BIN/crio" --config "$CONF/crio.conf" --config-dir ""
	wait_for 60 CRI-O "$LOG/crio.log" in_node "$BIN/crio" --config "$CONF/crio.conf" --config-dir "" status \
		--socket "$RUNTIME_SOCKET" info
}

# crio_import FILE: the image of an archive, under its name.
crio_import() {
	local ref
	ref=$(tar -xOf "$1" manifest.json | sed 's/.*"RepoTags":\["\([^"]*\)"\].*/\1/')
	in_node "$BIN/copyimg" "${CRIO_STORAGE[@]}" --signature-policy "$CONF/policy.json" --image-name "$ref" \
		--import-from "docker-archive:$1"
}
