#!/usr/bin/env bash
# Copyright 2026 The Kerf Authors
# SPDX-License-Identifier: Apache-2.0
#
# userland-image.sh USERLAND DIR
#
# Puts programs of NVIDIA's user space, which hack/userland.sh has unpacked into USERLAND, into the folder DIR of an
# image, with all that they load but the driver's libraries. A program whose package is missing is left out.
set -euo pipefail

userland=$1 dir=$2
root=$userland/root
lib=usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH=$root/$lib:$root/$lib/blas:$root/$lib/lapack

mkdir -p "$dir/$lib" "$dir/usr/bin" "$dir/usr/lib64" "$dir/usr/lib/python3" "$dir/etc" "$dir/root" "$dir/tmp"
chmod 1777 "$dir/tmp"
for name in bin lib lib64; do ln -s "usr/$name" "$dir/$name"; done
echo 'root:x:0:0:root:/root:/bin/sh' >"$dir/etc/passwd"

# add_libraries FILE...: what these programs and libraries load. The driver's libraries come from the CDI spec.
add_libraries() {
	local path
	# ldd names each of several files in a line of its own.
	for path in $(ldd "$@" 2>/dev/null | sed -n 's|^[[:space:]][^/]*\(/[^ ]*\) (0x.*|\1|p' | sort -u); do
		case $path in
		*/libcuda.so* | */libnvidia-ml.so*) ;;
		*/ld-linux*) cp -L "$path" "$dir/usr/lib64/" ;;
		*) cp -L "$path" "$dir/$lib/" ;;
		esac
	done
}

# add FILE...: programs to /usr/bin, with what they load.
add() {
	local file
	for file; do
		[ -e "$file" ] || continue
		cp -L "$file" "$dir/usr/bin/"
		add_libraries "$file"
	done
}

add /bin/sh /usr/bin/timeout "$root/usr/bin/nvtop" "$root/usr/bin/lstopo-no-graphics" \
	"$userland/built/sample-deviceQuery"
# nvtop draws on a terminal.
[ ! -e /lib/terminfo/x/xterm ] || install -D -m 0644 -t "$dir/usr/lib/terminfo/x" /lib/terminfo/x/xterm
if [ -d "$root/$lib/hwloc" ]; then
	cp -r "$root/$lib/hwloc" "$dir/$lib/"
	add_libraries "$root/$lib"/hwloc/*.so
fi

# Python, with the modules of the packages.
add /usr/bin/python3
version=$(/usr/bin/python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
cp -r "/usr/lib/$version" "$dir/usr/lib/"
rm -rf "$dir/usr/lib/$version/test" "$dir/usr/lib/$version"/config-*
cp -r "$root/usr/lib/python3/dist-packages" "$dir/usr/lib/python3/"
# What gpustat imports is in the unpacked packages only if the system lacks it.
for module in six.py psutil blessed wcwidth; do
	[ -e "$dir/usr/lib/python3/dist-packages/$module" ] || [ ! -e "/usr/lib/python3/dist-packages/$module" ] ||
		cp -r "/usr/lib/python3/dist-packages/$module" "$dir/usr/lib/python3/dist-packages/"
done
[ ! -e "$root/usr/bin/gpustat" ] || cp "$root/usr/bin/gpustat" "$dir/usr/bin/"
[ ! -d "$root/usr/share/doc/python-pycuda-doc" ] ||
	cp "$root/usr/share/doc/python-pycuda-doc/examples/dump_properties.py" "$dir/usr/bin/"
while IFS= read -r module; do
	add_libraries "$module"
done < <(find "$dir/usr/lib/python3" "$dir/usr/lib/$version" -name '*.so')
