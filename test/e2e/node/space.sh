#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# The node's namespaces: mount, pid, net, uts, ipc, cgroup. Sourced.
#
# The node sees this machine's root folder, or an overlay of it (systems.sh), with /etc, /var and /opt as overlays whose
# writes go to $NODE, a separate /run, and a separate cgroup as root. So the usual paths of kubelet and containerd are the
# node's alone, and they outlive "stop" as a disk outlives a power cut.

# init_pid [RUN] prints the node's init, or that of the node with this folder, as this machine sees it; fails when the node
# is down.
init_pid() {
	local outer start children child
	read -r outer start 2>/dev/null <"${1:-$RUN}/outer" || return 1
	[ "$(start_time "$outer")" = "$start" ] || return 1
	read -ra children 2>/dev/null <"/proc/$outer/task/$outer/children" || true # it ends without a newline
	for child in "${children[@]}"; do
		if awk '/^NSpid:/ {exit !(NF >= 3 && $NF == 1)}' "/proc/$child/status" 2>/dev/null; then
			echo "$child"
			return
		fi
	done
	return 1
}

# start_time tells processes with the same number apart.
start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

in_node() {
	local init
	init=$(init_pid) || die "the node is down: start it with 'node.sh up'"
	nsenter -t "$init" -m -u -i -n -p -C -- "$@"
}

# hierarchies prints "type controllers mountpoint own-path" of each cgroup hierarchy; "-" for none.
hierarchies() {
	local type options mount key own
	awk '{for (i = 7; i <= NF; i++) if ($i == "-") {t = $(i+1); if (t == "cgroup" || t == "cgroup2") print t, $(i+3), $5; break}}' /proc/self/mountinfo |
		while read -r type options mount; do
			key=
			if [ "$type" = cgroup ]; then
				key=$(awk -F: -v o=",$options," '$2 != "" {n = split($2, a, ","); ok = 1
					for (i = 1; i <= n; i++) if (index(o, "," a[i] ",") == 0) ok = 0
					if (ok) {print $2; exit}}' /proc/self/cgroup)
				[ -n "$key" ] || continue
			fi
			own=$(awk -F: -v c="$key" '$2 == c {sub(/^[^:]*:[^:]*:/, ""); print; exit}' /proc/self/cgroup)
			echo "$type ${key:--} $mount ${own%/"$ID"}"
		done
}

# enter_cgroup moves this shell into a child cgroup of where it is, in every hierarchy.
enter_cgroup() {
	local type key mount own dir controller controllers
	while read -r type key mount own; do
		if [ "$type" = cgroup2 ] && [ "$mount" = /sys/fs/cgroup ]; then # below the nearest that hands controllers down
			while [ "$own" != / ] && ! grep -qw memory "$mount$own/cgroup.subtree_control"; do own=$(dirname "$own"); done
			if [ "$own" = / ]; then
				read -ra controllers <"$mount/cgroup.controllers"
				for controller in "${controllers[@]}"; do
					echo "+$controller" >"$mount/cgroup.subtree_control" || true
				done
			fi
		fi
		dir=$mount${own%/}/$ID
		mkdir -p "$dir"
		if [ "$type" = cgroup ] && [ -f "$dir/cpuset.cpus" ]; then
			cat "$mount${own%/}/cpuset.cpus" >"$dir/cpuset.cpus"
			cat "$mount${own%/}/cpuset.mems" >"$dir/cpuset.mems"
		fi
		echo "$dir" >>"$RUN/cgroups"
		echo "$BASHPID" >"$dir/cgroup.procs"
	done <"$RUN/hierarchies"
}

# node_init is PID 1 of the node: it mounts what the node sees, then waits.
node_init() {
	local unified=$1 i controller controllers
	[ -z "$E2E_SYSTEM" ] || separate_root
	mount --make-rslave /
	mount --make-rshared /
	mount -t proc proc /proc
	mount -t sysfs sysfs /sys
	mount_cgroups "$unified"
	mount --make-rshared /
	mount_folders
	private_sysctls
	[ -z "$E2E_SYSTEM" ] || install_system
	# The kernel lets a user namespace mount proc only if there is one without mounts on top.
	mkdir -p "$NODE/proc"
	mount -t proc proc "$NODE/proc"
	hostname "$NODE_NAME"
	echo "nameserver $SVC_IP" >"$NODE/resolv.conf" # no server answers there: nothing in the tests requests a name
	ip link set lo up
	for ((i = 0; i < 200; i++)); do
		ip link show eth0 >/dev/null 2>&1 && break
		sleep 0.05
	done
	if [ "$unified" = yes ]; then # start_node has moved our parent out of the root by now
		read -ra controllers </sys/fs/cgroup/cgroup.controllers
		for controller in "${controllers[@]}"; do
			echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control || true
		done
	fi
	ip addr add "$NODE_IP/24" dev eth0
	ip link set eth0 up
	ip route add default via "$HOST_IP"
	echo 1 >/proc/sys/net/ipv4/ip_forward
	touch "$RUN/node-ready"
	trap 'exit 0' TERM
	while :; do
		sleep 1000000 &
		wait $! || true # it also reaps the orphans of the node
	done
}

mount_cgroups() { # unified: yes or no
	local type key mount own
	if [ "$1" = yes ]; then
		mount -t cgroup2 cgroup2 /sys/fs/cgroup
		mkdir -p /sys/fs/cgroup/init
		echo 1 >/sys/fs/cgroup/init/cgroup.procs
		return
	fi
	mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
	while read -r type key mount own; do
		mkdir -p "$mount"
		case $type,$key in
		cgroup2,*) mount -t cgroup2 cgroup2 "$mount" ;;
		*,name=*) mount -t cgroup -o "none,$key" cgroup "$mount" ;;
		*) mount -t cgroup -o "$key" cgroup "$mount" ;;
		esac
	done <"$RUN/hierarchies"
}

mount_folders() {
	local d
	for d in etc var opt; do
		mkdir -p "$NODE/upper/$d" "$NODE/work/$d"
		mount -t overlay overlay -o "lowerdir=/$d,upperdir=$NODE/upper/$d,workdir=$NODE/work/$d" "/$d"
	done
	mount -t tmpfs -o mode=755 tmpfs /run
	mkdir -p /run/lock /run/netns /run/cdi "$(dirname "$NRI_SOCKET")"
	for d in "$KUBELET_DIR" /var/lib/containerd /var/lib/containers /var/lib/etcd /var/log/pods; do # overlays cannot lie on overlays
		mkdir -p "$d" "$NODE$d"
		mount --bind "$NODE$d" "$d"
	done
	mkdir -p /etc/cdi /etc/cni/net.d /etc/kubernetes/manifests /etc/nri/conf.d /opt/cni/bin /opt/nri/plugins /var/lib/cni
	mount --bind "$DEB/usr/lib/cni" /opt/cni/bin
	mount --make-rshared /
}

# private_sysctls shows kubelet the values that it would set for the whole machine, and a boot id of this start.
private_sysctls() {
	local name value
	mkdir -p "$NODE/sysctl"
	while read -r name value; do
		[ "$(cat "/proc/sys/$name")" = "$value" ] && continue
		echo "$value" >"$NODE/sysctl/${name//\//.}"
		mount --bind "$NODE/sysctl/${name//\//.}" "/proc/sys/$name"
	done <<-END
		vm/overcommit_memory 1
		vm/panic_on_oom 0
		kernel/panic 10
		kernel/panic_on_oops 1
		kernel/keys/root_maxkeys 1000000
		kernel/keys/root_maxbytes 25000000
		kernel/random/boot_id $(cat /proc/sys/kernel/random/uuid)
	END
}

# start_node makes the namespaces and the network link, and returns when the node's init has done its part.
start_node() {
	local outer init i unified=no first
	rm -f "$RUN/node-ready" "$RUN"/*.pid # of a node that has ended without "stop", as with a reboot of this machine
	: >"$RUN/cgroups"
	hierarchies >"$RUN/hierarchies"
	if awk '$1 == "cgroup2" && $3 == "/sys/fs/cgroup" {f = 1} END {exit !f}' "$RUN/hierarchies"; then
		unified=yes
	fi
	(
		exec 9>&-
		enter_cgroup
		export KERF_E2E_DIR=$E2E_DIR KERF_E2E_TOOLS=$E2E_TOOLS KERF_E2E_NET=$E2E_NET KERF_E2E_JOIN=$E2E_JOIN KERF_E2E_NUMBER=$E2E_NUMBER
		export KERF_E2E_RUNTIME=$E2E_RUNTIME KERF_E2E_SYSTEM=$E2E_SYSTEM KERF_E2E_DRIVER=$E2E_DRIVER
		exec setsid unshare --mount --uts --ipc --net --pid --cgroup --fork --kill-child --propagation private -- \
			bash "$SELF" __init $unified </dev/null >"$LOG/node.log" 2>&1
	) &
	outer=$!
	echo "$outer $(start_time "$outer")" >"$RUN/outer"
	for ((i = 0; i < 200; i++)); do
		init=$(init_pid) && [ "$(readlink "/proc/$init/ns/net")" != "$(readlink /proc/self/ns/net)" ] && break
		sleep 0.05
	done
	init=$(init_pid) || die "the node's namespaces do not come up; see $LOG/node.log"
	if [ $unified = yes ]; then # no process may stay in a cgroup that hands controllers down
		first=$(head -n 1 "$RUN/cgroups")
		mkdir -p "$first/outer"
		echo "$outer" >"$first/outer/cgroup.procs"
	fi
	link "$init"
	wait_for 20 "the node's init" "$LOG/node.log" test -f "$RUN/node-ready"
}

# link INIT connects the node with this machine, or one that joins with the cluster's first node.
link() {
	local init=$1 first
	if [ -n "$E2E_JOIN" ]; then
		first=$(init_pid "$E2E_JOIN/run") || die "the node in $E2E_JOIN is down: bring it up before"
		nsenter -t "$first" -n ip link del "$ID" 2>/dev/null || true
		ip link add "$ID" netns "$first" type veth peer name eth0 netns "$init"
		nsenter -t "$first" -n ip addr add "$HOST_IP/24" dev "$ID"
		nsenter -t "$first" -n ip link set "$ID" up
		nsenter -t "$first" -n ip route replace "$POD_CIDR" via "$NODE_IP"
		return
	fi
	ip link del "$ID" 2>/dev/null || true
	if ip -4 -o addr show | grep -qF " $HOST_IP/"; then
		die "$HOST_IP is another link's here: set KERF_E2E_NET, or end the node that has it"
	fi
	ip link add "$ID" type veth peer name eth0 netns "$init"
	ip addr add "$HOST_IP/24" dev "$ID"
	ip link set "$ID" up
	ip route replace "$POD_CIDR" via "$NODE_IP"
	ip route replace "$SVC_CIDR" via "$NODE_IP"
}

# end_node kills the node's init, and with it every process in its pid namespace, and removes what is outside.
end_node() {
	local outer init dir i
	if init=$(init_pid); then
		read -r outer _ <"$RUN/outer"
		kill -KILL "$init" 2>/dev/null || true
		for ((i = 0; i < 400; i++)); do
			[ -d "/proc/$outer" ] || break
			sleep 0.05
		done
	fi
	ip link del "$ID" 2>/dev/null || true # its routes go with it
	[ -f "$RUN/cgroups" ] || return 0
	while read -r dir; do
		for ((i = 0; i < 100; i++)); do
			[ -d "$dir" ] || break
			find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null || true
			sleep 0.02
		done
		[ ! -d "$dir" ] || say "cgroup $dir does not go away"
	done <"$RUN/cgroups"
}
