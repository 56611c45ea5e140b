#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Daemons inside the node: each has a file with its command, one with its process (as the node numbers it),
# and a log named after it. Sourced.

# daemon_pid prints the process of a daemon; fails when it does not run.
daemon_pid() {
	local pid start
	read -r pid start 2>/dev/null <"$RUN/$1.pid" || return 1
	# A process that has ended and a number that is another's by now are both not it.
	[ "$(in_node sh -c 'grep -qs "^State:.Z" /proc/'"$pid"'/status || sed "s/.*) //" /proc/'"$pid"'/stat 2>/dev/null' | cut -d' ' -f20)" = "$start" ] || return 1
	echo "$pid"
}

# daemon NAME CMD...: start it, unless it runs.
daemon() {
	local name=$1
	shift
	daemon_pid "$name" >/dev/null && return
	printf '%q ' "$@" >"$RUN/$name.cmd"
	# shellcheck disable=SC2016 # the shell inside expands them
	in_node env -u KUBECONFIG PATH="$BIN:$REPO/bin:$DEB/wrapped:$PATH" bash -c '
		name=$1 run=$2 log=$3
		shift 3
		# As systemd has its services: in the root, each thread of a daemon would weigh half as much as all pods
		# together, and the agent, which is a pod, would starve.
		parts="system.slice $name"
		# The simulated driver plays the kernel, whose part of a call waits for no other CPU.
		[ "$name" != gpusim ] || parts=driver
		roots=/sys/fs/cgroup
		[ -f $roots/cgroup.procs ] || roots="$roots/*"
		for root in $roots; do
			dir=$root
			for part in $parts; do
				mkdir -p "$dir/$part"
				if [ -f "$dir/$part/cpuset.cpus" ] && [ -f "$dir/cpuset.sched_load_balance" ]; then # v1: a new one has none
					cat "$dir/cpuset.cpus" >"$dir/$part/cpuset.cpus"
					cat "$dir/cpuset.mems" >"$dir/$part/cpuset.mems"
				fi
				dir=$dir/$part
			done
			if [ "$name" = gpusim ]; then
				[ ! -f "$dir/cpu.shares" ] || echo 262144 >"$dir/cpu.shares" # the most that there is
				[ ! -f "$dir/cpu.weight" ] || echo 10000 >"$dir/cpu.weight"
			fi
			echo $$ >"$dir/cgroup.procs"
		done
		ulimit -n 1048576 2>/dev/null || true
		exec 8>&- 9>&-
		setsid "$@" </dev/null >>"$log/$name.log" 2>&1 &
		pid=$!
		echo "$pid $(sed "s/.*) //" /proc/$pid/stat | cut -d" " -f20)" >"$run/$name.pid"' _ "$name" "$RUN" "$LOG" "$@"
}

# daemon_kill NAME [SIGNAL]: and wait for its end; after ten seconds it is killed.
daemon_kill() {
	local name=$1 signal=${2:-TERM} pid i
	pid=$(daemon_pid "$name") || return 0
	in_node kill -"$signal" "$pid"
	case $signal in STOP | CONT | HUP | USR1 | USR2) return 0 ;; esac
	for ((i = 0; i < 200; i++)); do
		if ! daemon_pid "$name" >/dev/null; then
			rm -f "$RUN/$name.pid"
			return 0
		fi
		sleep 0.05
	done
	in_node kill -KILL "$pid"
	rm -f "$RUN/$name.pid"
}

# daemon_restart NAME: with the command that it was started with.
daemon_restart() {
	local command
	command=$(cat "$RUN/$1.cmd" 2>/dev/null) || die "there is no daemon $1; there are: $(daemon_names)"
	daemon_kill "$1"
	eval "daemon $1 $command"
}

daemon_names() {
	local f
	for f in "$RUN"/*.cmd; do
		[ ! -f "$f" ] || printf '%s ' "$(basename "$f" .cmd)"
	done
}
