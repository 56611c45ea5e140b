#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# node.sh - a real Kubernetes on one node, in separate namespaces on this machine: etcd, kube-apiserver,
# kube-controller-manager, kube-scheduler, kube-proxy, kubelet, containerd and runc, built from the Go modules
# in this folder, and simulated GPUs.
#
#   node.sh build              build what is missing or has changed
#   node.sh up                 start the node, or what of it does not run
#   node.sh status             what runs, its memory, the node's condition
#   node.sh stop               end everything at once and keep the state, as a power cut does
#   node.sh down               end everything and delete the node's state; binaries stay
#   node.sh kubectl ARGS...    kubectl as the cluster's administrator
#   node.sh node CMD...        run CMD inside the node
#   node.sh svc NAME CMD...    run CMD as a daemon inside the node
#   node.sh restart NAME       end a daemon and start it again (kubelet, containerd, gpusim, ...)
#   node.sh kill NAME [SIG]    signal a daemon and wait for its end; "up" starts it again
#   node.sh image REF DIR [ENTRYPOINT...]   make an image of DIR and load it; IMAGE_ENV=NAME=VALUE goes into it
#   node.sh images             load the images whose contents have changed
#   node.sh env                print where things are, as shell assignments
#   node.sh helm               build helm, which nothing of the node needs, and print where it is
#   node.sh operator NAME      the same for kueue, jobset, kuberay, karpenter, volcano or openshift; its manifest is next to it
#
# Settings, by environment:
#   KERF_E2E_DIR      where everything is kept (default: .cache/e2e of the source tree)
#   KERF_E2E_TOOLS    the KERF_E2E_DIR of another node, whose binaries this one uses (default: its own)
#   KERF_E2E_NET      first two octets of the /16 that the node takes (default: one that this machine has no way to)
#   KERF_E2E_JOIN     the KERF_E2E_DIR of a node that is up: this one joins its cluster, and has no control plane (default: none)
#   KERF_E2E_NUMBER   which node of that cluster it is, 2 to 9; node N is called node-N (default: 1, which joins no other)
#   KERF_E2E_MACHINE  which machine is simulated (default: h100x8)
#   KERF_E2E_DRIVER   with which driver (default: r615)
#   KERF_E2E_SYSTEM   which node system it has: a name of test/e2e/node/systems (default: none, and no folder is read-only)
#   KERF_E2E_KUBERNETES  which version of Kubernetes (default: 1.37.1; others: test/e2e/node/kubernetes/versions)
#   KERF_E2E_CONTAINERD  which version of containerd (default: 2.4.2; others: test/e2e/node/containerd/versions)
#   KERF_E2E_RUNTIME  containerd, or crio for CRI-O 1.34 (default: containerd)
#
# All nodes that use the binaries of one KERF_E2E_TOOLS run the versions of the last "build" or "up".
#
# It needs root, Go, gcc, openssl, util-linux, iproute2, and apt-get for some Debian packages that it unpacks
# and does not install. It ends only processes that it started: those in the node's pid namespace.
set -Eeuo pipefail

SELF=$(readlink -f "${BASH_SOURCE[0]}")
HERE=$(dirname "$SELF")
REPO=$(cd "$HERE/../../.." && pwd)
E2E_DIR=${KERF_E2E_DIR:-$REPO/.cache/e2e}
E2E_TOOLS=${KERF_E2E_TOOLS:-$E2E_DIR}
E2E_MACHINE=${KERF_E2E_MACHINE:-h100x8}
E2E_DRIVER=${KERF_E2E_DRIVER:-r615}
E2E_JOIN=${KERF_E2E_JOIN:-}
E2E_NUMBER=${KERF_E2E_NUMBER:-1}
E2E_RUNTIME=${KERF_E2E_RUNTIME:-containerd}
E2E_SYSTEM=${KERF_E2E_SYSTEM:-}
NODE_NAME=node-$E2E_NUMBER
FIRST=${E2E_JOIN:-$E2E_DIR} # of the node with the control plane

BIN=$E2E_TOOLS/bin DEB=$E2E_TOOLS/deb IMG=$FIRST/img
RUN=$E2E_DIR/run LOG=$E2E_DIR/log PKI=$E2E_DIR/pki CONF=$E2E_DIR/conf NODE=$E2E_DIR/node
CA=$FIRST/pki ADMIN=$FIRST/conf/admin.kubeconfig
# The name of the cgroup and of the network link: one per directory, so that two nodes do not meet.
ID=ke$(printf %s "$E2E_DIR" | cksum | cut -d' ' -f1 | cut -c1-7)
GPUSIM_DIR=/run/gpusim # in the node

# shellcheck source=test/e2e/node/common.sh
source "$HERE/common.sh"
check_number
check_runtime
E2E_NET=$(network)
# A node that joins is reached through the first one, on a separate link.
API_IP=$E2E_NET.0.2 LINK=$(((E2E_NUMBER - 1) * 10))
HOST_IP=$E2E_NET.$LINK.1 NODE_IP=$E2E_NET.$LINK.2
POD_CIDR=$E2E_NET.$((LINK + 1)).0/24 SVC_CIDR=$E2E_NET.2.0/24 SVC_IP=$E2E_NET.2.1
# shellcheck source=test/e2e/node/build.sh
source "$HERE/build.sh"
# shellcheck source=test/e2e/node/systems.sh
source "$HERE/systems.sh"
# shellcheck source=test/e2e/node/space.sh
source "$HERE/space.sh"
# shellcheck source=test/e2e/node/daemons.sh
source "$HERE/daemons.sh"
# shellcheck source=test/e2e/node/config.sh
source "$HERE/config.sh"
# shellcheck source=test/e2e/node/images.sh
source "$HERE/images.sh"
# shellcheck source=test/e2e/node/crio.sh
source "$HERE/crio.sh"
# shellcheck source=test/e2e/node/cluster.sh
source "$HERE/cluster.sh"

usage() {
	sed -n '/^# node.sh/,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$SELF"
}

# One function, called last: bash has read the whole file before it does anything.
main() {
	local cmd=${1:-help}
	shift || true
	case $cmd in
	build | up | stop | down | status) "$cmd" ;;
	kubectl) kubectl "$@" ;;
	node) in_node env PATH="$BIN:$REPO/bin:$PATH" "$@" ;;
	svc) daemon "$@" ;;
	restart) daemon_restart "$1" ;;
	kill) daemon_kill "$@" ;;
	image) image "$@" ;;
	images) lock && load_images ;;
	env) print_env ;;
	helm) build_helm ;;
	operator) build_operator "${1:-}" ;;
	__init) node_init "$@" ;; # PID 1 of the node
	help | -h | --help) usage ;;
	*)
		usage >&2
		exit 2
		;;
	esac
	exit
}
main "$@"
