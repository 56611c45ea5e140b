// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubelet is the door to kubelet's podresources socket: which container holds which ids of Kerf's
// resources, as kubelet counts them.
//
// It promises that an answer is whole: a call that fails, is cut off, or names something without a name is an
// error, from which nothing follows. It waits a while where kubelet says that it is asked too often.
//
// An entry is no proof that a container runs: kubelet tells of pods that have ended until it has cleaned up
// after them. It does not tell what init containers hold that are not restartable. It knows names of pods,
// not their UIDs. Of a pod that it is admitting it tells what it has given out so far.
package kubelet
