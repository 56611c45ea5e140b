#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds what the node runs, from pinned Go modules and Debian packages, into $BIN and $DEB. Sourced.
#
# A binary is built again when its key changes: the files of its module, the Go version, how it is built.

PACKAGES=(busybox-static containernetworking-plugins libseccomp-dev iptables libip6tc2 libnftnl11
	libnetfilter-conntrack3 libnfnetlink0 conntrack crun libyajl2)
KUBERNETES=(etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl)
K8S_DEFAULT=1.37.1 CONTAINERD_DEFAULT=2.4.2 RUNC_VERSION=1.5.2 HELM_VERSION=3.22.0
K8S_VERSION=${KERF_E2E_KUBERNETES:-$K8S_DEFAULT} CONTAINERD_VERSION=${KERF_E2E_CONTAINERD:-$CONTAINERD_DEFAULT}
KUEUE_VERSION=0.19.0

# key prints what a binary depends on: WORDS... about how it is built, and the files of directory $1.
key() {
	local dir=$1
	shift
	{
		echo "$@"
		cd "$dir" && find . -type f \( -name '*.go' -o -name 'go.*' -o -name '*.c' \) ! -name '*_test.go' -print0 | sort -z | xargs -0 sha256sum
	} | sha256sum | cut -d' ' -f1
}

# go_build OUTPUT DIR PACKAGE CGO TAGS LDFLAGS [FLAG...]: the flags are for go build.
go_build() {
	local out=$BIN/$1 dir=$2 package=$3 cgo=$4 tags=$5 ldflags=$6 began=$SECONDS k
	k=$(key "$dir" "$(go version)" "$1" "${dir#"$REPO/"}" "${@:3}") # the same in each copy of the source tree
	if [ -x "$out" ] && [ "$(cat "$out.key" 2>/dev/null)" = "$k" ]; then
		return
	fi
	say "building $1"
	mkdir -p "$LOG"
	rm -f "$out.key"
	if ! (cd "$dir" && GOFLAGS='' GOWORK=off CGO_ENABLED=$cgo go build -trimpath -buildvcs=false -tags "$tags" -ldflags "$ldflags" \
		"${@:7}" -o "$out.new" "$package") >"$LOG/build-$1.log" 2>&1; then
		tail -n 20 "$LOG/build-$1.log" >&2
		die "building $1 failed; see $LOG/build-$1.log"
	fi
	mv "$out.new" "$out"
	echo "$k" >"$out.key"
	say "built $1: $((SECONDS - began)) s, $(($(stat -c %s "$out") >> 20)) MiB"
}

# unpack_debs DIR PACKAGE...: the files of Debian packages, below DIR.
unpack_debs() {
	local dir=$1 d log=$LOG/debs.log
	shift
	[ "$(cat "$dir/.packages" 2>/dev/null)" = "$*" ] && return
	say "unpacking Debian packages"
	mkdir -p "$LOG" "$dir.new/.dl"
	if ! (cd "$dir.new/.dl" && { apt-get download "$@" || { apt-get update && apt-get download "$@"; }; }) >"$log" 2>&1; then
		tail -n 5 "$log" >&2
		die "apt-get download failed; see $log"
	fi
	for d in "$dir.new"/.dl/*.deb; do
		dpkg -x "$d" "$dir.new"
	done
	rm -rf "$dir.new/.dl" "$dir"
	mv "$dir.new" "$dir"
	echo "$*" >"$dir/.packages"
}

# wrap_debs makes commands of the unpacked programs: they need their own libraries, which nothing else shall get through
# LD_LIBRARY_PATH. It does so each time, since the commands hold $DEB, and a user may have moved or copied it.
wrap_debs() {
	local name program libs=$DEB/usr/lib/x86_64-linux-gnu
	mkdir -p "$DEB/wrapped"
	for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore conntrack; do
		program=$DEB/usr/sbin/$name
		[ "$name" = conntrack ] || program=$DEB/usr/sbin/${name/tables/tables-nft}
		printf '#!/bin/sh\nLD_LIBRARY_PATH=%q XTABLES_LIBDIR=%q exec %q "$@"\n' "$libs" "$libs/xtables" "$program" | wrapper "$name"
	done
	# Debian's crun rejects the version that containerd writes into a spec, and knows all that is in it.
	# shellcheck disable=SC2016 # the command expands it
	printf '#!/bin/sh\nfor a; do\n[ "$b" != --bundle ] || sed -i %q "$a/config.json"\nb=$a\ndone\nLD_LIBRARY_PATH=%q exec %q "$@"\n' \
		's/"ociVersion":"[0-9.]*"/"ociVersion":"1.0.2"/' "$libs" "$DEB/usr/bin/crun" | wrapper crun
	# What runc's build asks pkg-config for is one library. Go's cache does not know what pkg-config printed, so that a folder
	# in it would also be used after its end, by another tree. build_runc names the folder.
	printf '#!/bin/sh\ncase "$*" in\n*--cflags*) ;;\n*) echo -lseccomp ;;\nesac\n' | wrapper pkg-config
}

# wrapper NAME: a command of standard input, in one step: a node that runs may be about to start it.
wrapper() {
	cat >"$DEB/wrapped/.$1"
	chmod +x "$DEB/wrapped/.$1"
	mv "$DEB/wrapped/.$1" "$DEB/wrapped/$1"
}

# build_kubernetes: the version that KERF_E2E_KUBERNETES names, or the default one. The programs are links to one file, so
# that nodes of two versions do not run at the same time from the same directory.
build_kubernetes() {
	local p name program=kubernetes ldflags="-s -w" flags=()
	if [ "$K8S_VERSION" != "$K8S_DEFAULT" ]; then
		program=kubernetes-$K8S_VERSION flags=("-modfile=versions/$K8S_VERSION.mod")
		[ -e "$HERE/kubernetes/versions/$K8S_VERSION.mod" ] ||
			die "KERF_E2E_KUBERNETES is \"$K8S_VERSION\": make it $K8S_DEFAULT or one of test/e2e/node/kubernetes/versions"
	fi
	for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		ldflags+=" -X $p.gitVersion=v$K8S_VERSION -X $p.gitMajor=1 -X $p.gitMinor=$(cut -d. -f2 <<<"$K8S_VERSION")"
		ldflags+=" -X $p.gitTreeState=archive -X $p.gitCommit=0000000000000000000000000000000000000000"
		ldflags+=" -X $p.buildDate=2026-01-01T00:00:00Z"
	done
	go_build "$program" "$HERE/kubernetes" . 0 "" "$ldflags" "${flags[@]}"
	for name in "${KUBERNETES[@]}"; do
		ln -sf "$program" "$BIN/$name"
	done
}

# build_containerd: the version that KERF_E2E_CONTAINERD names, or the default one, with links as build_kubernetes makes them.
build_containerd() {
	local m=github.com/containerd/containerd/v2 tags="urfave_cli_no_docs osusergo netgo static_build" ldflags flags=() p
	if [ "$CONTAINERD_VERSION" != "$CONTAINERD_DEFAULT" ]; then
		flags=("-modfile=versions/$CONTAINERD_VERSION.mod")
		[ -e "$HERE/containerd/versions/$CONTAINERD_VERSION.mod" ] ||
			die "KERF_E2E_CONTAINERD is \"$CONTAINERD_VERSION\": make it $CONTAINERD_DEFAULT or one of test/e2e/node/containerd/versions"
	fi
	[ "${CONTAINERD_VERSION%%.*}" != 1 ] || m=${m%/v2}
	ldflags="-s -w -X $m/version.Version=v$CONTAINERD_VERSION -X $m/version.Package=$m"
	for p in containerd containerd-shim-runc-v2 ctr; do
		[ $p != containerd-shim-runc-v2 ] || tags+=" no_grpc"
		go_build "$p-$CONTAINERD_VERSION" "$HERE/containerd" $m/cmd/$p 0 "$tags" "$ldflags" "${flags[@]}"
		ln -sf "$p-$CONTAINERD_VERSION" "$BIN/$p"
		tags=${tags% no_grpc}
	done
}

# build_runc: its C part enters namespaces; libseccomp comes from the unpacked package, all linked statically.
build_runc() {
	CGO_CFLAGS="-O2 -I$DEB/usr/include" CGO_LDFLAGS="-L$DEB/usr/lib/x86_64-linux-gnu" PKG_CONFIG=$DEB/wrapped/pkg-config \
		go_build runc "$HERE/runc" github.com/opencontainers/runc 1 "seccomp urfave_cli_no_docs netgo osusergo" \
		"-s -w -X main.version=$RUNC_VERSION -extldflags -static"
}

# build_ours: what this project adds to the node, besides what "make build" put into bin/.
build_ours() {
	go_build nvidia-container-runtime "$HERE/.." ./nvidiaruntime 0 "" "-s -w"
	local k
	k=$(key "$HERE" pause)
	if [ ! -x "$BIN/pause" ] || [ "$(cat "$BIN/pause.key" 2>/dev/null)" != "$k" ]; then
		gcc -Os -s -static -o "$BIN/pause" "$HERE/pause.c"
		echo "$k" >"$BIN/pause.key"
	fi
	local p
	for p in kerf-agent kerf kerf-scheduler gpusim gpuload gpusim-lib/$E2E_DRIVER/libcuda.so.1; do
		[ -e "$REPO/bin/$p" ] || die "there is no bin/$p: run 'make build kerf-scheduler' first"
	done
}

# build_helm: only what installs by the chart requests it.
build_helm() {
	need go golang
	mkdir -p "$BIN"
	exec 8>"$E2E_TOOLS/.build-lock"
	flock 8
	go_build helm "$HERE/helm" helm.sh/helm/v3/cmd/helm 0 "" "-s -w -X helm.sh/helm/v3/internal/version.version=v$HELM_VERSION"
	exec 8>&-
	echo "$BIN/helm"
}

# build_operator NAME: a controller of another project, which only the test of its page requests. Next to the program is
# what its project has people apply, out of the same module. Of a controller that runs as a program of this machine, these are
# the kinds only. openshift has kinds and no program.
build_operator() {
	local name=$1 module package='' flags="-s -w" kinds=()
	case $name in
	kueue) module=sigs.k8s.io/kueue package=/cmd/kueue flags+=" -X sigs.k8s.io/kueue/pkg/version.GitVersion=v$KUEUE_VERSION" ;;
	jobset) module=sigs.k8s.io/jobset ;;
	kuberay) module=github.com/ray-project/kuberay/ray-operator ;;
	karpenter) module=sigs.k8s.io/karpenter package=/kwok kinds=(pkg/apis/crds kwok/apis/crds) ;;
	volcano) module=volcano.sh/volcano package=/cmd/scheduler kinds=(config/crd/volcano/bases config/crd/jobflow/bases) ;;
	openshift) module=github.com/openshift/api kinds=(payload-manifests/crds/0000_03_config-operator_01_securitycontextconstraints.crd.yaml) ;;
	*) die "operator $name: write kueue, jobset, kuberay, karpenter, volcano or openshift" ;;
	esac
	need go golang
	mkdir -p "$BIN"
	exec 8>"$E2E_TOOLS/.build-lock"
	flock 8
	[ "$name" = openshift ] || go_build "$name" "$HERE/$name" "$module$package" 0 "" "$flags"
	[ "$name" != volcano ] || go_build volcano-controllers "$HERE/volcano" $module/cmd/controller-manager 0 "" "$flags"
	[ "$BIN/$name.yaml" -nt "$BIN/$name.key" ] || operator_manifest "$name" "$module" "${kinds[@]}"
	exec 8>&-
	echo "$BIN/$name"
}

# operator_manifest NAME MODULE [KINDS...]: what people apply, or the kinds that these folders and files of the module have.
operator_manifest() {
	local name=$1 module=$2 dir crd
	shift 2
	dir=$(cd "$HERE/$name" && GOFLAGS='' GOWORK=off go mod download && go list -m -f '{{.Dir}}' "$module")
	[ "$name" != volcano ] || install -m 0644 "$dir/installer/helm/chart/volcano/config/volcano-scheduler.conf" "$BIN/volcano.conf"
	if [ $# = 0 ]; then
		"$BIN/kubectl" kustomize "$dir/config/default"
	else
		(cd "$dir" && find "$@" -name '*.yaml' | sort) | while read -r crd; do printf '%s\n' --- && cat "$dir/$crd"; done
	fi >"$BIN/$name.yaml.new"
	mv "$BIN/$name.yaml.new" "$BIN/$name.yaml"
}

build() {
	need go golang gcc gcc apt-get apt dpkg dpkg
	mkdir -p "$BIN"
	exec 8>"$E2E_TOOLS/.build-lock"
	flock 8
	local began=$SECONDS
	unpack_debs "$DEB" "${PACKAGES[@]}"
	wrap_debs
	build_kubernetes
	if [ "$E2E_RUNTIME" = crio ]; then build_crio; else build_containerd; fi
	build_runc
	build_ours
	((SECONDS - began < 3)) || say "built everything in $((SECONDS - began)) s"
	exec 8>&-
}
