// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package nri gives a pod's containers their pieces of GPUs while the container runtime makes them. It is a
// plugin of NRI, the interface in which containerd and CRI-O tell of every pod and container that they make.
//
// When a pod's sandbox is made, the plugin has the node hold the pod's claims. When a container is made, it
// reads the amounts from the CDI names that kubelet passed, asks the node which GPUs answer them, and adds
// these GPUs, the grant and its environment to the container. Every other container gets
// NVIDIA_VISIBLE_DEVICES=void, so that no image sees a GPU because it says so. When it connects, it tells the
// node what containers there are.
//
// Promises:
//   - Amounts come from CDI names alone. What a tenant can write (environment, annotations, labels) counts at
//     most as advice on which GPU, and is overridden where it has a name of Kerf's.
//   - Every request is answered within three quarters of the time that the runtime gives. What takes longer is
//     refused, so that kubelet tries again, and goes on meanwhile; the next try finds it done.
//   - A connection that ends is made again, until Run's context ends. Run joins all that it started.
//
// Before the program of a container with a grant runs, StartContainer has the limits of the driver read back: other
// hooks of the container may have changed them.
//
// It does not promise that a container is held to its cap: the runtime goes on without a plugin that is slow
// or gone. The guard, an OCI hook that kubelet's CDI names bring, refuses the start of a container whose
// creation this plugin did not see. Nor does it decide who gets which GPU: that is the node's business.
//
// The adjustments go through two pieces of foreign code, and their form heeds both:
//   - The runtime applies a removal and an addition of the same annotation in the order of a map. So the grant
//     is added and never removed first.
//   - Of an environment variable that stands twice in a container, once from the image and once from the pod,
//     the runtime replaces the first and then lets the second win. So a container without a grant whose second
//     NVIDIA_VISIBLE_DEVICES would show GPUs is refused. One with a grant has the CDI device of its GPU, which
//     sets the variable once more, after all others.
package nri
