#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# A Kubernetes cluster of three nodes with simulated GPUs on this machine, for docs/start/quick-start.md and docs/start/tutorial.md, or to try things:
#
#   hack/cluster.sh up [RELEASE]  start it, or what of it does not run; import the images of that folder of 'make release'
#   eval "$(hack/cluster.sh env)" kubectl, helm and kubectl kerf for this shell
#   hack/cluster.sh version TAG   build the agent as that version, and give the nodes images with that tag
#   hack/cluster.sh console       add the web console to the Kerf that helm installed, and serve it on this machine
#   hack/cluster.sh left          what Kerf has left on the nodes and in the cluster: nothing, once it was removed
#   hack/cluster.sh down          end it and delete its state; binaries stay
#
# node-1 has eight H100, node-2 four L40S, node-3 eight H200. It needs root, and 'make build kerf-scheduler' before.
# KERF_WALK_DIR says where it is kept (default: .cache/walk), KERF_E2E_TOOLS whose binaries it uses (default: those of "make e2e"),
# KERF_E2E_NET which network it takes.
set -euo pipefail
cd "$(dirname "$0")/.."

script=$PWD/test/e2e/node/node.sh
dir=${KERF_WALK_DIR:-$PWD/.cache/walk}
tools=${KERF_E2E_TOOLS:-${KERF_E2E_DIR:-$PWD/.cache/e2e}}
machines=(h100x8 l40sx4 h200x8)

# at N CMD...: node.sh for node N.
at() {
	local n=$1 join=()
	shift
	[ "$n" = 1 ] || join=("KERF_E2E_JOIN=$dir/1")
	env "KERF_E2E_DIR=$dir/$n" "KERF_E2E_TOOLS=$tools" "KERF_E2E_NUMBER=$n" "KERF_E2E_MACHINE=${machines[n - 1]}" KERF_E2E_DRIVER=r615 "${join[@]}" "$script" "$@"
}

# each CMD...: on all nodes, at the same time.
each() {
	local n failed=0 pids=()
	for n in 1 2 3; do
		"$@" "$n" &
		pids+=($!)
	done
	for n in "${pids[@]}"; do wait "$n" || failed=1; done
	return $failed
}

up() {
	[ -z "${1:-}" ] || set_release "$1"
	at 1 up
	at 1 helm >/dev/null
	at 2 up &
	local second=$!
	at 3 up
	wait $second
	each tag dev
	[ ! -f "$dir/release" ] || each import
	commands
}

# set_release FOLDER: keep where the files of the release are.
set_release() {
	[ -f "$1/SHA256SUMS" ] || {
		echo "hack/cluster.sh: $1 has no file SHA256SUMS: make the files with 'make release'" >&2
		exit 1
	}
	mkdir -p "$dir"
	realpath "$1" >"$dir/release"
}

# import N: the images of the release.
import() {
	local image
	for image in agent scheduler; do
		at "$1" node ctr -n k8s.io images import "$(archive "$image")" >/dev/null
	done
}

archive() { echo "$(<"$dir/release")"/kerf-"$1"-v*.oci.tar; }

# registry prints the registry of the release, as its archives name it.
registry() { tar -xOf "$(archive agent)" index.json | sed -n 's|.*"org.opencontainers.image.ref.name": *"\(.*\)/agent:.*|\1|p'; }

# tag TAG N: the images as an administrator would have pushed them.
tag() {
	local image
	for image in agent scheduler; do
		at "$2" node ctr -n k8s.io images tag --force "kerf.test/$image:1" "kerf.test/$image:$1" >/dev/null
	done
}

# commands puts together what goes into PATH.
commands() {
	mkdir -p "$dir/path"
	ln -sf "$tools/bin/kubectl" "$dir/path/kubectl"
	ln -sf "$PWD/bin/kerf" "$dir/path/kerf"
	rm -f "$dir/path/kubectl-kerf"
	if [ -f "$dir/release" ]; then
		tar -xzf "$(<"$dir/release")"/kubectl-kerf-v*-linux-amd64.tar.gz -C "$dir/path" kubectl-kerf
	else
		ln -s "$PWD/bin/kerf" "$dir/path/kubectl-kerf"
	fi
	# The simulated driver has its capability files, by which MIG instances are reached, in a separate folder; on a real
	# node they are in /proc and /dev.
	cat >"$dir/path/simulated" <<-'END'
		#!/usr/bin/awk -f
		/^# Source: / {agent = /\/30-agent.yaml$/}
		{print}
		agent && /^        - --run-dir=\/run\/kerf$/ {print "        - --nvidia-caps-root=/run/gpusim"}
		agent && /^        volumeMounts:$/ {print "        - {name: gpusim, mountPath: /run/gpusim, readOnly: true}"}
		agent && /^      volumes:$/ {print "      - {name: gpusim, hostPath: {path: /run/gpusim, type: Directory}}"}
	END
	cat >"$dir/path/helm" <<-END
		#!/bin/sh
		case \$1 in
		install | upgrade) exec '$tools/bin/helm' "\$@" --post-renderer '$dir/path/simulated' ;;
		esac
		exec '$tools/bin/helm' "\$@"
	END
	chmod +x "$dir/path/simulated" "$dir/path/helm"
}

print_env() {
	printf 'export KUBECONFIG=%q PATH=%q:$PATH\n' "$dir/1/conf/admin.kubeconfig" "$dir/path"
	printf 'export HELM_CACHE_HOME=%q HELM_CONFIG_HOME=%q HELM_DATA_HOME=%q\n' "$dir/helm" "$dir/helm" "$dir/helm"
}

# version TAG: what another release would be, here made of the same source.
version() {
	local tag=$1 root=$dir/version program cgo flags
	rm -rf "$root"
	mkdir -p "$root"
	tar -xOf "$dir/1/img/agent.tar" layer.tar | tar -x -C "$root" # what the programs load stays as it is
	for program in kerf-agent kerf-monitor kerf-console kerf-hook kerf; do
		cgo=1
		[ "$program" != kerf-hook ] || cgo=0
		CGO_ENABLED=$cgo CGO_CFLAGS='-O2 -g -Wno-deprecated-declarations' go build -buildvcs=false -tags grpcnotrace -ldflags "-X main.version=$tag" -o "$root/usr/local/bin/$program" "./cmd/$program"
	done
	each tag "$tag"
	each image "$tag"
	[ ! -f "$dir/release" ] || each publish "$(registry)" "$tag"
	rm -rf "$root"
}

# publish REGISTRY TAG N: the images under the registry of the release, where the chart of the release expects them.
publish() {
	local image
	for image in agent scheduler; do
		at "$3" node ctr -n k8s.io images tag --force "kerf.test/$image:$2" "$1/$image:$2" >/dev/null
	done
}

# console runs the console in the cluster until ctrl-C ends the port forward. Its user is an administrator.
console() {
	eval "$(print_env)"
	local chart=deploy/chart
	[ ! -f "$dir/release" ] || chart=$(echo "$(<"$dir/release")"/kerf-[0-9]*.tgz)
	helm upgrade kerf "$chart" --namespace kerf-system --reset-then-reuse-values --set console.enabled=true >/dev/null
	kubectl rollout status -n kerf-system deployment/kerf-console --timeout=2m
	kubectl create serviceaccount console-admin --dry-run=client -o yaml | kubectl apply -f - >/dev/null
	kubectl create clusterrolebinding console-admin --clusterrole=cluster-admin --serviceaccount=default:console-admin \
		--dry-run=client -o yaml | kubectl apply -f - >/dev/null
	printf 'Open http://127.0.0.1:%s and log in with this token:\n%s\n' "${1:-8443}" "$(kubectl create token console-admin)"
	exec kubectl port-forward -n kerf-system service/kerf-console "${1:-8443}:80"
}

image() { at "$2" image "kerf.test/agent:$1" "$dir/version" /usr/local/bin/kerf-agent; }

# found ARGS...: the lines that grep finds. None is an answer, what grep cannot do is none.
found() { grep "$@" || [ $? = 1 ]; }

# on_node N: what is left on node N, seen from inside of it.
on_node() {
	# shellcheck disable=SC2016 # it is the node's shell that expands it
	at "$1" node bash -c '
		set -eo pipefail
		found() { grep "$@" || [ $? = 1 ]; }
		for dir in /opt/kerf /run/kerf /var/lib/kerf; do [ ! -e "$dir" ] || find "$dir" ! -type d; done
		for dir in /etc/cdi /var/lib/kubelet/device-plugins; do [ ! -e "$dir" ] || ls "$dir" | found kerf; done
		found -E " /(opt|run|var/lib)/kerf" /proc/self/mountinfo
		find /sys/fs/cgroup -type d -name "kerf*"'
}

# in_driver N: the limits that the driver of node N holds.
in_driver() { at "$1" node "$PWD/bin/gpusim" limits --dir /run/gpusim -o json | found -v '^\[\]$'; }

labels() { at 1 kubectl get nodes -o yaml | found -E '^ *(kerf\.dev/[a-z.-]*|nvidia\.com/gpu\.[a-z]*): "?[a-zA-Z]'; }

kinds=clusterroles,clusterrolebindings,crds,priorityclasses,validatingadmissionpolicies,validatingadmissionpolicybindings
kinds+=,mutatingadmissionpolicies,mutatingadmissionpolicybindings,leases,configmaps,daemonsets,deployments,rolebindings,networkpolicies
objects() { at 1 kubectl get "$kinds" -A -o name -l app.kubernetes.io/part-of=kerf; }

# look WHERE CMD...: what a command finds there, each line with where. A failed one is no answer: it runs again, since what
# it reads may go meanwhile, and then it is said what failed and why.
look() {
	local where=$1 out
	shift
	for _ in 1 2 3; do
		if out=$("$@" 2>&1); then
			[ -z "$out" ] || sed "s|^|$where: |" <<<"$out"
			return
		fi
		sleep 0.2
	done
	echo "hack/cluster.sh: failed to list what is left $where: $*: ${out:-it failed and said nothing}" >&2
	return 1
}

left() {
	local n failed=0
	for n in 1 2 3; do
		look "on node-$n" on_node "$n" || failed=1
		look "in the driver of node-$n" in_driver "$n" || failed=1
	done
	look "on the nodes' objects" labels || failed=1
	look "in the cluster" objects || failed=1
	return $failed
}

down() {
	local n
	for n in 3 2 1; do
		[ ! -f "$dir/1/net" ] || at "$n" down # else the cluster is down already
	done
	rm -rf "$dir/path" "$dir/helm" "$dir/version" "$dir/release"
}

case ${1:-} in
up) up "${2:-}" ;;
env) print_env ;;
version) version "${2:?which tag?}" ;;
console) console "${2:-}" ;;
left) left ;;
down) down ;;
*)
	sed -n '/^#   hack/s/^# \{0,3\}//p' "$0" >&2
	exit 2
	;;
esac
