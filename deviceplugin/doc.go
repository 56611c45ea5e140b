// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package deviceplugin advertises a node's GPUs to kubelet (device plugin API v1beta1) and tells it, for each
// container that it admits, the CDI names that make the container start only with its cap in force.
//
// It promises:
//   - An id is a unit and tied to no GPU, so any ids that kubelet picks are right. Counts follow the hardware
//     and the configuration alone; nothing is withdrawn because something else was allocated.
//   - When a GPU is lost, first the ids of containers on that GPU turn unhealthy, then free ones, up to what was
//     lost. An id that is held by a container on a sound GPU never does.
//   - Allocate is a function of resource, count and the NUMA nodes of the ids: no disk, driver, API server or
//     lock that something slow holds. The same ids in any order give the same answer.
//   - Kubelet may restart, or our sockets may vanish, at any time: within a second of kubelet listening again
//     each resource is registered anew, on a socket name that was never used before.
//   - Nothing is registered before the first inventory.
//
// It does not say which container gets which GPU: kubelet's API names no container. It does not refuse double
// use either: a retry and a second pod look the same here, and the place for that is the container's hook.
package deviceplugin
