#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Certificates and configuration files of the node's programs. Sourced. Made once per "up" after a "down".

# certificate NAME COMMON-NAME ORGANISATION EXTENSIONS [AUTHORITY]
certificate() {
	local ca=$CA/${5:-ca}
	openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$PKI/$1.key" -subj "/O=$3/CN=$2" \
		-out "$PKI/$1.csr" 2>>"$LOG/openssl.log"
	openssl x509 -req -in "$PKI/$1.csr" -CA "$ca.crt" -CAkey "$ca.key" -CAcreateserial -days 3650 -out "$PKI/$1.crt" \
		-extfile <(printf '%s\n' "basicConstraints=CA:FALSE" "$4") 2>>"$LOG/openssl.log"
}

authority() { # NAME COMMON-NAME
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$PKI/$1.key" -subj "/CN=$2" -days 3650 \
		-out "$PKI/$1.crt" -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature 2>>"$LOG/openssl.log"
}

kubeconfig() { # NAME
	cat >"$CONF/$1.kubeconfig" <<-END
		apiVersion: v1
		kind: Config
		clusters: [{name: c, cluster: {server: "https://$API_IP:6443", certificate-authority-data: $(base64 -w0 "$CA/ca.crt")}}]
		users: [{name: u, user: {client-certificate-data: $(base64 -w0 "$PKI/$1.crt"), client-key-data: $(base64 -w0 "$PKI/$1.key")}}]
		contexts: [{name: c, context: {cluster: c, user: u}}]
		current-context: c
	END
}

certificates() {
	local client="extendedKeyUsage=clientAuth" u
	if [ -n "$E2E_JOIN" ]; then
		certificate proxy system:kube-proxy system:node-proxier "$client"
		certificate kubelet "system:node:$NODE_NAME" system:nodes "$client"
		for u in proxy kubelet; do kubeconfig $u; done
		return
	fi
	authority ca cluster-ca
	authority front-proxy-ca front-proxy-ca
	openssl genrsa -out "$PKI/sa.key" 2048 2>>"$LOG/openssl.log"
	certificate apiserver kube-apiserver k8s "extendedKeyUsage=serverAuth
subjectAltName=IP:$NODE_IP,IP:127.0.0.1,IP:$SVC_IP,DNS:localhost,DNS:$NODE_NAME,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
	certificate apiserver-kubelet kube-apiserver-kubelet-client system:masters "$client"
	certificate front-proxy-client front-proxy-client k8s "$client" front-proxy-ca
	certificate admin kubernetes-admin system:masters "$client"
	certificate controller-manager system:kube-controller-manager system:kube-controller-manager "$client"
	certificate scheduler system:kube-scheduler system:kube-scheduler "$client"
	certificate proxy system:kube-proxy system:node-proxier "$client"
	certificate kubelet "system:node:$NODE_NAME" system:nodes "$client"
	for u in admin controller-manager scheduler proxy kubelet; do kubeconfig $u; done
}

kubelet_config() {
	cat >"$CONF/kubelet.yaml" <<-END
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		address: 0.0.0.0
		authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $CA/ca.crt}}
		authorization: {mode: Webhook}
		cgroupDriver: cgroupfs
		failCgroupV1: false
		failSwapOn: false
		containerRuntimeEndpoint: unix://$RUNTIME_SOCKET
		resolvConf: $NODE/resolv.conf
		clusterDomain: cluster.local
		clusterDNS: [$E2E_NET.2.10]
		staticPodPath: /etc/kubernetes/manifests
		volumePluginDir: $KUBELET_DIR/volume-plugins
		makeIPTablesUtilChains: false
		localStorageCapacityIsolation: true
		imageGCHighThresholdPercent: 100
		imageGCLowThresholdPercent: 99
		imageMinimumGCAge: 8760h
		evictionHard: {memory.available: 50Mi, nodefs.available: "0%", imagefs.available: "0%", nodefs.inodesFree: "0%"}
		serializeImagePulls: false
		registryPullQPS: 0
		eventRecordQPS: 0
		kubeAPIQPS: 100
		kubeAPIBurst: 200
		nodeStatusUpdateFrequency: 1s
		syncFrequency: 10s
		maxPods: 150
		runtimeRequestTimeout: 30s
	END
}

# keep_oom prints whether runc is to leave oom_score_adj alone, which it may not lower without CAP_SYS_RESOURCE, which some hosts drop.
keep_oom() {
	if (($((16#$(awk '/CapEff/ {print $2}' /proc/self/status))) >> 24 & 1)); then echo false; else echo true; fi
}

# runtimes CRI: containerd's table of runtimes, below the plugin CRI.
runtimes() {
	cat <<-END
		  [plugins."$1".containerd]
		    default_runtime_name = "runc"
		    [plugins."$1".containerd.runtimes.runc]
		      runtime_type = "io.containerd.runc.v2"
		      [plugins."$1".containerd.runtimes.runc.options]
		        BinaryName = "$BIN/runc"
		        SystemdCgroup = false
		    [plugins."$1".containerd.runtimes.crun]
		      runtime_type = "io.containerd.runc.v2"
		      [plugins."$1".containerd.runtimes.crun.options]
		        BinaryName = "$DEB/wrapped/crun"
		        SystemdCgroup = false
	END
	[ "$NVIDIA_RUNTIME" = yes ] || return 0
	cat <<-END
		    # Obeys NVIDIA_VISIBLE_DEVICES, as NVIDIA's own runtime does.
		    [plugins."$1".containerd.runtimes.nvidia]
		      runtime_type = "io.containerd.runc.v2"
		      [plugins."$1".containerd.runtimes.nvidia.options]
		        BinaryName = "$BIN/nvidia-container-runtime"
		        SystemdCgroup = false
	END
}

# containerd_config: $BIN may hold another containerd than the one that is built here. That of 1.7 knows no version 3 of this
# file, and has CDI off.
containerd_config() {
	local cri=io.containerd.cri.v1.runtime version=3 cni='bin_dirs = ["/opt/cni/bin"]'
	if "$BIN/containerd" --version | grep -q ' v1\.7\.'; then
		cri=io.containerd.grpc.v1.cri version=2 cni='bin_dir = "/opt/cni/bin"'
	fi
	{
		cat <<-END
			version = $version
			root = "/var/lib/containerd"
			state = "$RUNTIME_STATE"
			[grpc]
			  address = "$RUNTIME_SOCKET"
		END
		if [ $version = 3 ]; then
			cat <<-END
				[plugins."io.containerd.cri.v1.images"]
				  snapshotter = "overlayfs"
				  [plugins."io.containerd.cri.v1.images".pinned_images]
				    sandbox = "$PAUSE_REF"
				[plugins."$cri"]
			END
		else
			cat <<-END
				[plugins."$cri"]
				  sandbox_image = "$PAUSE_REF"
				  enable_cdi = true
			END
		fi
		cat <<-END
			  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
			  restrict_oom_score_adj = $(keep_oom)
			  [plugins."$cri".cni]
			    $cni
			    conf_dir = "/etc/cni/net.d"
		END
		runtimes $cri
		cat <<-END
			[plugins."io.containerd.nri.v1.nri"]
			  disable = false
			  socket_path = "$NRI_SOCKET"
			  [plugins."io.containerd.nri.v1.nri".default_validator]
			    enable = true
		END
	} >"$CONF/containerd.toml"
}

small_configs() {
	cat >"$CONF/proxy.yaml" <<-END
		apiVersion: kubeproxy.config.k8s.io/v1alpha1
		kind: KubeProxyConfiguration
		mode: iptables
		clientConnection: {kubeconfig: $CONF/proxy.kubeconfig}
		clusterCIDR: $POD_CIDR
		hostnameOverride: $NODE_NAME
		conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
	END
	cat >"$CONF/scheduler.yaml" <<-END
		apiVersion: kubescheduler.config.k8s.io/v1
		kind: KubeSchedulerConfiguration
		clientConnection: {kubeconfig: $CONF/scheduler.kubeconfig, qps: 1000, burst: 2000}
		leaderElection: {leaderElect: false}
	END
	cat >"$CONF/10-ptp.conflist" <<-END
		{"cniVersion": "1.0.0", "name": "node", "plugins": [
		  {"type": "ptp", "mtu": 1500, "ipam": {"type": "host-local", "ranges": [[{"subnet": "$POD_CIDR"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
		  {"type": "portmap", "capabilities": {"portMappings": true}}]}
	END
	cat >"$CONF/cluster.yaml" <<-END
		apiVersion: node.k8s.io/v1
		kind: RuntimeClass
		metadata: {name: nvidia}
		handler: nvidia
		---
		apiVersion: node.k8s.io/v1
		kind: RuntimeClass
		metadata: {name: crun}
		handler: crun
	END
}

# configure writes the certificates once and the rest at every start, so that a change of this file takes effect.
configure() {
	mkdir -p "$CONF" "$NODE"
	if [ ! -f "$PKI/.done" ]; then
		mkdir -p "$PKI"
		certificates
		touch "$PKI/.done"
	fi
	kubelet_config
	if [ "$E2E_RUNTIME" = crio ]; then crio_config; else containerd_config; fi
	small_configs
}
