// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

// The reasons of events.
const (
	// reasonPlaced of a pod: the node and the GPUs that were chosen for it.
	reasonPlaced = "Placed"
	// reasonUnplaceable of a pod: its node has had no room for it for longer than placementTimeout, and it is evicted.
	reasonUnplaceable = "Unplaceable"
	// reasonGangFault of a pod: another pod of its gang was ended for a faulty GPU, and it is ended, too.
	reasonGangFault = "GangFault"
	// reasonPreempted of a pod: it gives way to a more important one, which is named.
	reasonPreempted = "Preempted"
	// reasonConfigRefused of the ConfigMap kerf-config: a document is not taken, what stays in force, and the mistakes.
	reasonConfigRefused = "SharingConfigRefused"
)
