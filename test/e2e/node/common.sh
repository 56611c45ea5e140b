#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# What all parts of node.sh use: words to the user, the lock, waiting. Sourced, not run.

say() { echo "[e2e $(date +%H:%M:%S)] $*" >&2; }

die() {
	say "error: $*"
	exit 1
}

on_error() { # status line command
	echo "[e2e] ${BASH_SOURCE[1]##*/} line $2: \"$3\" failed ($1); logs are in $LOG" >&2
}
trap 'on_error $? $LINENO "$BASH_COMMAND"' ERR

# now_ms prints a clock in milliseconds.
now_ms() { echo $(($(date +%s%N) / 1000000)); }

# lock takes the directory for this command; another one waits. What is started must close descriptor 9.
lock() {
	mkdir -p "$E2E_DIR"
	exec 9>"$E2E_DIR/.lock"
	flock -w 1800 9 || die "another node.sh has held $E2E_DIR/.lock for half an hour"
}

# wait_for SECONDS WHAT LOG CMD...: until CMD works; the end of LOG says why it did not.
wait_for() {
	local end=$((SECONDS + $1)) what=$2 log=$3
	shift 3
	while ! "$@" >/dev/null 2>&1; do
		if ((SECONDS >= end)); then
			[ ! -s "$log" ] || tail -n 5 "$log" >&2
			die "$what does not come; see $log"
		fi
		sleep 0.1
	done
}

# check_number refuses a node that joins no other and is not the first, and one that joins as the first.
check_number() {
	[[ $E2E_NUMBER =~ ^[1-9]$ ]] || die "KERF_E2E_NUMBER is \"$E2E_NUMBER\": make it 1 to 9"
	if [ -z "$E2E_JOIN" ]; then
		[ "$E2E_NUMBER" = 1 ] || die "node $E2E_NUMBER needs a cluster: set KERF_E2E_JOIN to the directory of its first node"
	elif [ "$E2E_NUMBER" = 1 ] || [ "$E2E_JOIN" = "$E2E_DIR" ]; then
		die "a node that joins another needs a KERF_E2E_NUMBER from 2 to 9, and another KERF_E2E_DIR"
	fi
}

# check_runtime rejects what is no container runtime.
check_runtime() {
	case $E2E_RUNTIME in
	containerd | crio) ;;
	*) die "KERF_E2E_RUNTIME is \"$E2E_RUNTIME\": make it containerd or crio" ;;
	esac
}

# network prints the first two octets of the node's /16: that of the node that it joins, the one that is set, that of the
# node's state, or one that this machine has no route to.
network() {
	local n routes
	if [ -n "$E2E_JOIN" ]; then
		cat "$E2E_JOIN/net" 2>/dev/null || die "there is no cluster in $E2E_JOIN: bring its first node up before"
	elif [ -n "${KERF_E2E_NET:-}" ]; then
		echo "$KERF_E2E_NET"
	elif ! cat "$E2E_DIR/net" 2>/dev/null; then
		routes=$(ip -4 route show table all)
		for ((n = 213; n < 250; n++)); do
			if ! grep -qw "10\.$n\.[0-9.]*" <<<"$routes"; then
				echo "10.$n"
				return
			fi
		done
		die "this machine has routes to all of 10.213 to 10.249: set KERF_E2E_NET"
	fi
}

# need COMMAND PACKAGE...: all of them, or what to install.
need() {
	local missing=()
	while (($# > 0)); do
		command -v "$1" >/dev/null || missing+=("$2")
		shift 2
	done
	((${#missing[@]} == 0)) || die "missing programs; install them with: apt-get install ${missing[*]}"
}

print_env() {
	local name
	for name in REPO BIN DEB E2E_DIR E2E_RUNTIME RUN LOG CONF RUNTIME_CLASS NODE_NAME NODE_IP HOST_IP GPUSIM_DIR; do
		printf '%s=%q\n' "$name" "${!name}"
	done
	printf 'KUBECONFIG=%q\n' "$ADMIN"
	printf 'NODE_INIT=%q\n' "$(init_pid || true)"
}
