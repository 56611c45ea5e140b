#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds what the images hold twice and compares: from two copies of the tree that lie elsewhere, each with nothing
# compiled before, and with another time zone, language, umask and folder for temporary files.
#
#   hack/reproducible.sh [agent] [scheduler]     one image's programs, or both
#
# What it does not see: another compiler or C library, and another processor. The images' bases bring the same ones when
# they are named by digest (deploy/image).
set -euo pipefail
cd "$(dirname "$0")/.."

images=("$@")
[ ${#images[@]} -gt 0 ] || images=(agent scheduler)
targets=()
for image in "${images[@]}"; do
	case $image in
	agent | scheduler) targets+=("release-$image") ;;
	*)
		echo "reproducible: there is no image \"$image\": name agent or scheduler" >&2
		exit 2
		;;
	esac
done

# Go's module cache is the user's: what is in it is checked against go.sum.
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT

# build NAME VARIABLE=VALUE...: into $work/NAME/out, from a copy of the tree in a folder of that name.
build() {
	local name=$1 tree=$work/$1/tree
	shift
	mkdir -p "$tree" "$work/$name/tmp"
	git ls-files -z | tar --null --files-from=- --ignore-failed-read -cf - | tar -C "$tree" -xf -
	echo "reproducible: building ${targets[*]} in $tree"
	env -C "$tree" GOCACHE="$work/$name/cache" TMPDIR="$work/$name/tmp" "$@" \
		make -s "${targets[@]}" RELEASE="$work/$name/out" VERSION=reproducible >"$work/$name/said" 2>&1 || {
		cat "$work/$name/said" >&2
		exit 1
	}
	rm -rf "$work/$name/cache"
}

# sums NAME: of all that was built, without what is between.
sums() { (cd "$work/$1/out" && find . -maxdepth 1 -type f | sort | xargs sha256sum); }

(umask 022 && build here TZ=UTC LC_ALL=C)
(umask 077 && build somewhere-else-with-a-longer-name TZ=Pacific/Auckland LC_ALL=C.UTF-8)
sums here >"$work/first"
sums somewhere-else-with-a-longer-name >"$work/second"
cat "$work/first"
if ! diff "$work/first" "$work/second" >"$work/differs"; then
	echo "reproducible: these came out otherwise the second time:" >&2
	sed -n 's/^> //p' "$work/differs" >&2
	exit 1
fi
if [ ! -s "$work/first" ]; then
	echo "reproducible: nothing was built" >&2
	exit 1
fi
echo "reproducible: the same $(wc -l <"$work/first") files twice"
