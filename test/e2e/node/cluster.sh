#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Up, down, stop, status. Sourced.

kubectl() { KUBECONFIG=$ADMIN "$BIN/kubectl" "$@"; }

check_machine() {
	[ "$(id -u)" = 0 ] || die "the node needs root"
	case $E2E_DIR in
	/etc/* | /var/* | /opt/* | /run/* | /proc/* | /sys/*)
		die "$E2E_DIR lies where the node has other folders: set KERF_E2E_DIR to a directory elsewhere"
		;;
	esac
	need unshare util-linux nsenter util-linux flock util-linux ip iproute2 openssl openssl tar tar awk mawk
}

# start_containerd returns when containerd answers.
start_containerd() {
	daemon containerd "$BIN/containerd" --config "$CONF/containerd.toml"
	wait_for 60 containerd "$LOG/containerd.log" in_node "$BIN/ctr" --address "$RUNTIME_SOCKET" version
}

start_etcd() {
	daemon etcd "$BIN/etcd" --data-dir /var/lib/etcd/data --unsafe-no-fsync --log-level warn \
		--listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
		--listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
		--initial-cluster default=http://127.0.0.1:2380
}

# workloads prints the flags with which the API server serves PodGroups. Only the default version of Kubernetes has them.
workloads() {
	[ "$K8S_VERSION" = "$K8S_DEFAULT" ] || return 0
	echo --feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true --runtime-config=scheduling.k8s.io/v1beta1=true
}

start_apiserver() {
	# shellcheck disable=SC2046 # the flags are words
	daemon kube-apiserver "$BIN/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 \
		--secure-port=6443 --bind-address=0.0.0.0 --advertise-address="$NODE_IP" --service-cluster-ip-range="$SVC_CIDR" \
		--tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" --client-ca-file="$PKI/ca.crt" \
		--service-account-issuer=https://kubernetes.default.svc \
		--service-account-signing-key-file="$PKI/sa.key" --service-account-key-file="$PKI/sa.key" \
		--kubelet-client-certificate="$PKI/apiserver-kubelet.crt" --kubelet-client-key="$PKI/apiserver-kubelet.key" \
		--kubelet-preferred-address-types=InternalIP \
		--requestheader-client-ca-file="$PKI/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy-client \
		--requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group \
		--requestheader-username-headers=X-Remote-User \
		--proxy-client-cert-file="$PKI/front-proxy-client.crt" --proxy-client-key-file="$PKI/front-proxy-client.key" \
		--authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --allow-privileged=true --profiling=false \
		$(workloads)
}

start_controllers() {
	local gates=()
	[ "$K8S_VERSION" != "$K8S_DEFAULT" ] || gates=(--feature-gates=GenericWorkload=true) # else a PodGroup is never deleted
	daemon kube-scheduler "$BIN/kube-scheduler" --config="$CONF/scheduler.yaml" --bind-address=127.0.0.1 \
		--authentication-kubeconfig="$CONF/scheduler.kubeconfig" --authorization-kubeconfig="$CONF/scheduler.kubeconfig"
	daemon kube-controller-manager "$BIN/kube-controller-manager" --kubeconfig="$CONF/controller-manager.kubeconfig" \
		--authentication-kubeconfig="$CONF/controller-manager.kubeconfig" \
		--authorization-kubeconfig="$CONF/controller-manager.kubeconfig" \
		--service-account-private-key-file="$PKI/sa.key" --root-ca-file="$PKI/ca.crt" \
		--cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key" \
		--use-service-account-credentials --leader-elect=false --bind-address=127.0.0.1 \
		--node-monitor-grace-period=20s --kube-api-qps=200 --kube-api-burst=400 \
		"${gates[@]}"
}

start_node_agents() {
	# shellcheck disable=SC2046 # the flags are words
	daemon kubelet "$BIN/kubelet" --config="$CONF/kubelet.yaml" --kubeconfig="$CONF/kubelet.kubeconfig" \
		--hostname-override="$NODE_NAME" --node-ip="$NODE_IP" --root-dir="$KUBELET_DIR" --cert-dir="$KUBELET_DIR/pki" \
		$(kubelet_flags)
	daemon kube-proxy "$BIN/kube-proxy" --config="$CONF/proxy.yaml"
}

# start_gpus simulates the driver in the node and tells the container runtimes of its GPUs.
start_gpus() {
	daemon gpusim "$REPO/bin/gpusim" daemon --machine "$E2E_MACHINE" --driver "$E2E_DRIVER" --dir "$GPUSIM_DIR" \
		--lib-dir "$REPO/bin/gpusim-lib"
	wait_for 20 "the simulated driver" "$LOG/gpusim.log" in_node "$REPO/bin/gpusim" gpus --dir "$GPUSIM_DIR"
	in_node "$REPO/bin/gpusim" cdi --dir "$GPUSIM_DIR" >"$CONF/nvidia.json"
	# A node system has the libraries of the driver in a folder of the host.
	[ -z "$E2E_SYSTEM" ] || sed -i "s|\"$GPUSIM_DIR/lib/|\"$DRIVER_DIR/|" "$CONF/nvidia.json"
	in_node install -D -m 0644 "$CONF/nvidia.json" "$NVIDIA_SPEC"
}

# node_ready: also that kubelet has written since the node's start; until then one sees the condition of before.
node_ready() {
	[ "$(kubectl get node "$NODE_NAME" -o 'jsonpath={.status.nodeInfo.bootID}')" = "$(in_node cat /proc/sys/kernel/random/boot_id)" ] &&
		kubectl wait --for=condition=Ready "node/$NODE_NAME" --timeout=30s && kubectl get serviceaccount default
}

up() {
	check_machine
	lock
	build
	local began
	began=$(now_ms)
	elapsed() { echo "$(($(now_ms) - began)) ms"; }
	mkdir -p "$RUN" "$LOG" "$NODE"
	[ -n "$E2E_JOIN" ] || echo "$E2E_NET" >"$E2E_DIR/net" # certificates and pods hold its addresses
	configure
	init_pid >/dev/null || start_node
	in_node cp "$CONF/10-ptp.conflist" /etc/cni/net.d/
	"start_$E2E_RUNTIME"
	if [ -z "$E2E_JOIN" ]; then
		start_etcd
		start_apiserver
	fi
	start_gpus
	load_images
	say "$E2E_RUNTIME, simulated GPUs and images after $(elapsed)"
	wait_for 120 kube-apiserver "$LOG/kube-apiserver.log" kubectl get --raw /readyz
	say "kube-apiserver ready after $(elapsed)"
	[ -n "$E2E_JOIN" ] || start_controllers
	start_node_agents
	[ -n "$E2E_JOIN" ] || wait_for 60 "the runtime class" "$LOG/kube-apiserver.log" kubectl apply -f "$CONF/cluster.yaml"
	wait_for 120 "node $NODE_NAME" "$LOG/kubelet.log" node_ready
	wait_for 60 "kube-proxy, whose way to the API server pods take," "$LOG/kube-proxy.log" in_node timeout 1 bash -c "</dev/tcp/$SVC_IP/443"
	say "up after $(elapsed); KUBECONFIG=$ADMIN"
}

stop() {
	lock
	end_node
	rm -rf "$RUN"
}

down() {
	stop
	rm -rf "$NODE" "$LOG" "$PKI" "$CONF" "$E2E_DIR"/img/.[a-z]* "$E2E_DIR/net"
	say "down; kept $BIN, $DEB and $IMG"
}

status() {
	local init name pid rss total=0 all=0 dir file
	if ! init=$(init_pid); then
		echo "node: down"
		exit 3
	fi
	echo "node: up, its init is process $init here; cgroup $ID; API https://$API_IP:6443"
	for name in $(daemon_names); do
		if pid=$(daemon_pid "$name"); then
			rss=$(awk '/VmRSS/ {print int($2 / 1024)}' <(in_node cat "/proc/$pid/status"))
			total=$((total + rss))
			printf '%-26s running, process %s in the node, %4d MiB\n' "$name" "$pid" "$rss"
		else
			printf '%-26s NOT running\n' "$name"
			all=1
		fi
	done
	echo "resident memory of the daemons: $total MiB"
	while read -r dir; do
		for file in "$dir/memory.usage_in_bytes" "$dir/memory.current"; do
			[ ! -f "$file" ] || echo "memory charged to the node's cgroup (page cache too): $(($(cat "$file") >> 20)) MiB"
		done
	done <"$RUN/cgroups"
	kubectl get nodes -o wide || all=1
	exit $all
}
