#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Images without a registry: archives as "docker save" writes them, loaded into the container runtime. Sourced.
#
# None is tagged "latest", which would make kubelet look for a registry.

PAUSE_REF=kerf.test/pause:1
BUSYBOX_REF=kerf.test/busybox:1
AGENT_REF=kerf.test/agent:1
SCHEDULER_REF=kerf.test/scheduler:1
GPULOAD_REF=kerf.test/gpuload:1
GREEDY_REF=kerf.test/greedy:1 # gpuload with the environment of NVIDIA's own images

# make_archive REF DIR OUT ENTRYPOINT...: an image of one layer that holds DIR. IMAGE_ENV is a variable that its
# containers get.
make_archive() {
	local ref=$1 dir=$2 out=$3 t id entrypoint="" word
	shift 3
	t=$(mktemp -d "$IMG/.tmp.XXXXXX")
	tar -C "$dir" --owner=0 --group=0 --numeric-owner --mtime=@0 --sort=name -cf "$t/layer.tar" .
	id=$(sha256sum "$t/layer.tar" | cut -d' ' -f1)
	for word; do entrypoint+="${entrypoint:+,}\"$word\""; done
	printf '{"architecture":"amd64","os":"linux","config":{"Entrypoint":[%s],"Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"%s]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
		"$entrypoint" "${IMAGE_ENV:+,\"$IMAGE_ENV\"}" "$id" >"$t/config.json"
	printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$ref" >"$t/manifest.json"
	tar -C "$t" -cf "$out.new" manifest.json config.json layer.tar
	mv "$out.new" "$out"
	rm -rf "$t"
}

# copy_with_libs DIR PROGRAM...: programs to DIR/usr/local/bin, as the agent's Dockerfile does, and what they load.
copy_with_libs() {
	local dir=$1 program lib
	shift
	mkdir -p "$dir/usr/local/bin" "$dir/lib64" "$dir/lib/x86_64-linux-gnu" "$dir/usr/lib/x86_64-linux-gnu"
	for program; do
		cp "$program" "$dir/usr/local/bin/"
		for lib in $(ldd "$program" 2>/dev/null | grep -o '/[^ ]*' || true); do # nothing for a static one
			mkdir -p "$dir$(dirname "$lib")"
			cp -L "$lib" "$dir$lib"
		done
	done
}

base_files() { # DIR
	mkdir -p "$1/etc" "$1/tmp" "$1/root"
	chmod 1777 "$1/tmp"
	echo 'root:x:0:0:root:/root:/bin/sh' >"$1/etc/passwd"
	echo 'root:x:0:' >"$1/etc/group"
}

add_busybox() { # DIR
	local applet
	mkdir -p "$1/bin"
	cp "$DEB/bin/busybox" "$1/bin/busybox"
	for applet in $("$DEB/bin/busybox" --list); do
		[ "$applet" = busybox ] || ln -s busybox "$1/bin/$applet"
	done
}

# content_key FILE...: changes when a file does.
content_key() { sha256sum "$HERE/images.sh" "$@" | cut -d' ' -f1 | sha256sum | cut -d' ' -f1; }

# archive NAME REF FILL ENTRYPOINT FILE...: $IMG/NAME.tar, built again when a FILE has changed; FILL DIR FILE...
# puts together what it holds.
archive() {
	local name=$1 ref=$2 fill=$3 entrypoint=$4 k dir began
	shift 4
	k=$(content_key "$@")
	[ "$(cat "$IMG/$name.key" 2>/dev/null)" = "$k" ] && return
	began=$(now_ms)
	mkdir -p "$IMG"
	dir=$(mktemp -d "$IMG/.dir.XXXXXX")
	chmod 755 "$dir"
	"$fill" "$dir" "$@"
	# shellcheck disable=SC2086 # none or one word
	make_archive "$ref" "$dir" "$IMG/$name.tar" $entrypoint
	rm -rf "$dir"
	echo "$k" >"$IMG/$name.key"
	say "made image $ref in $(($(now_ms) - began)) ms"
}

fill_pause() { cp "$2" "$1/pause"; }

fill_busybox() {
	base_files "$1"
	add_busybox "$1"
}

fill_programs() {
	local dir=$1
	shift
	base_files "$dir"
	copy_with_libs "$dir" "$@"
}

fill_gpuload() {
	local dir=$1
	shift
	base_files "$dir"
	add_busybox "$dir"
	copy_with_libs "$dir" "$1"
}

# agent_programs prints what the agent's image holds.
agent_programs() {
	local p
	for p in kerf-agent kerf kerf-console kerf-hook libkerf.so kerf-monitor; do
		[ ! -x "$REPO/bin/$p" ] || echo "$REPO/bin/$p"
	done
}

# load NAME REF: unless the node has this very one.
load() {
	mkdir -p "$NODE/images"
	cmp -s "$IMG/$1.key" "$NODE/images/$1.key" && return
	import "$IMG/$1.tar"
	cp "$IMG/$1.key" "$NODE/images/$1.key"
}

containerd_import() { in_node "$BIN/ctr" --address "$RUNTIME_SOCKET" -n k8s.io images import --local "$1"; } # FILE

import() { # FILE
	if ! "${E2E_RUNTIME}_import" "$1" >"$LOG/import.log" 2>&1; then
		tail -n 5 "$LOG/import.log" >&2
		die "loading $1 failed; see $LOG/import.log"
	fi
}

# load_images makes and loads the images whose contents have changed.
load_images() {
	mkdir -p "$IMG"
	local programs=()
	mapfile -t programs < <(agent_programs)
	archive pause $PAUSE_REF fill_pause /pause "$BIN/pause"
	archive busybox $BUSYBOX_REF fill_busybox "" "$DEB/bin/busybox"
	archive gpuload $GPULOAD_REF fill_gpuload "" "$REPO/bin/gpuload" "$DEB/bin/busybox"
	IMAGE_ENV=NVIDIA_VISIBLE_DEVICES=all \
		archive greedy $GREEDY_REF fill_gpuload "" "$REPO/bin/gpuload" "$DEB/bin/busybox"
	archive agent $AGENT_REF fill_programs /usr/local/bin/kerf-agent "${programs[@]}"
	archive scheduler $SCHEDULER_REF fill_programs /usr/local/bin/kerf-scheduler "$REPO/bin/kerf-scheduler"
	local name
	for name in pause busybox gpuload greedy agent scheduler; do load $name; done
}

# image REF DIR ENTRYPOINT...: make and load one.
image() {
	local ref=$1 dir=$2 out
	shift 2
	mkdir -p "$IMG"
	out=$(mktemp "$IMG/.one.XXXXXX")
	make_archive "$ref" "$dir" "$out" "$@"
	import "$out"
	rm -f "$out"
}
