// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package containerd is the one door to the container runtime.
//
// It asks the runtime what it is and can do (Report, which Verdict judges for Kubernetes), what containers
// it has (Containers) and what becomes of them (Events), as a second witness beside NRI, and it runs a
// container from an image (Create) for kerf run --image.
//
// It promises that every call ends: each has a deadline, and streams end with their context. A runtime that
// is not there is no error of Open: it may come and go, and every call says for itself whether it could be
// reached. Errors wrap the vocabulary of package sharing.
//
// It speaks to containerd from 1.7 on. CRI-O is recognised, and is asked what it can be asked; it has no
// events and no images for kerf run. What could not be told is said to be unknown and never guessed.
package containerd
