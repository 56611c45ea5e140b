// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"path/filepath"
	"slices"
)

// driverFolders have the driver's user-side libraries and nothing else. Sources:
//   - /usr/local/nvidia/lib64: Google's device plugin mounts the driver there in containers, and NVIDIA's images have
//     the folder in LD_LIBRARY_PATH (GoogleCloudPlatform/container-engine-accelerators, cmd/nvidia_gpu).
//   - /home/kubernetes/bin/nvidia/lib64: where GKE installs the driver on a node (the same repository,
//     nvidia-driver-installer).
//   - /var/lib/nvidia/lib64: where Container-Optimized OS installs it on a VM (cos-extensions install gpu).
//   - /usr/lib/wsl/lib: where Windows shows its driver to WSL 2 (NVIDIA, CUDA on WSL User Guide).
func driverFolders() []string {
	return []string{"/usr/local/nvidia/lib64", "/home/kubernetes/bin/nvidia/lib64", "/var/lib/nvidia/lib64",
		"/usr/lib/wsl/lib"}
}

// systemFolders are where distributions put all of their libraries. The driver container of NVIDIA's GPU operator has
// a separate system below /run/nvidia/driver.
func systemFolders() []string {
	distributions := []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"}
	folders := slices.Clone(distributions)
	for _, dir := range distributions {
		folders = append(folders, filepath.Join("/run/nvidia/driver", dir))
	}
	return folders
}

// DriverFolders returns the folders that a program of the driver may have in LD_LIBRARY_PATH. First are the absolute
// folders of ldLibraryPath (the value of that variable, which the caller has read), then those with the driver's files
// alone. A folder with a whole system's libraries is not among them, because a program would load its C library from
// there.
func DriverFolders(ldLibraryPath string) []string {
	folders := slices.DeleteFunc(filepath.SplitList(ldLibraryPath),
		func(dir string) bool { return !filepath.IsAbs(dir) })
	return append(folders, driverFolders()...)
}

// DefaultLibraryPaths returns the files to try after LibraryName. There is one for each of DriverFolders, then one for
// each folder in which distributions and the driver container have their libraries. The same folders have libcuda.so.1.
func DefaultLibraryPaths(ldLibraryPath string) []string {
	var paths []string
	for _, dir := range append(DriverFolders(ldLibraryPath), systemFolders()...) {
		paths = append(paths, filepath.Join(dir, LibraryName))
	}
	return paths
}
