#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# package.sh PACKAGE COMMAND [ARG ...]   installs a Debian package that a test needs, if COMMAND fails without it.
# COMMAND is what the package makes possible. Exit status 3: this machine cannot install packages.
set -euo pipefail

package=$1
shift

works() { "$@" </dev/null >/dev/null 2>&1; }

if works "$@"; then
	exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
	echo "kerf: $package is missing, and this machine installs packages as root with apt-get only" >&2
	exit 3
fi
exec 9>/tmp/kerf-package.lock # tests run at the same time
flock 9
if works "$@"; then
	exit 0
fi
echo "kerf: installing $package" >&2
export DEBIAN_FRONTEND=noninteractive
install_package() { apt-get install -y -q --no-install-recommends "$package" >&2; }
if ! install_package && ! { apt-get update -q >&2 && install_package; }; then
	echo "kerf: apt-get could not install $package: see its messages above" >&2
	exit 3
fi
if ! works "$@"; then
	echo "kerf: '$*' fails even with $package" >&2
	exit 1
fi
