// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

// Labels that people and the chart set. Those that the chart's policies alone read are here for the reference.
const (
	// LabelNode, with the value true, has a node get an agent. An administrator sets it.
	LabelNode = Domain + "/node"
	// LabelTranslate, of a namespace and with the value true, has what its pods ask for in the words of other tools said in those of Kerf.
	LabelTranslate = Domain + "/translate"
	// LabelScheduler, of a namespace and with the value own, keeps schedulerName of its pods as they are.
	LabelScheduler = Domain + "/scheduler"
	// LabelHostPaths, of a namespace and with the value allowed, lets its pods mount what reaches GPUs past Kerf.
	LabelHostPaths = Domain + "/host-paths"
	// LabelPrivileged, of a namespace and with the value allowed, lets its pods with a GPU have privileged containers.
	LabelPrivileged = Domain + "/privileged-pods"
	// LabelDaemonSet tells the pods of one entry of the chart's pools from those of another. The chart sets it.
	LabelDaemonSet = Domain + "/daemonset"
)

// Labels that an agent gives its node with --node-labels.
const (
	// LabelModel is the product's name with - for spaces, or mixed where the GPUs differ.
	LabelModel = Domain + "/gpu.model"
	// LabelMemory is the GiB of the smallest GPU.
	LabelMemory = Domain + "/gpu.memory"
	// LabelDriver is the driver's version.
	LabelDriver = Domain + "/driver"
	// LabelLevel is the strongest enforcement level that a piece of every GPU can have.
	LabelLevel = Domain + "/level"
	// LabelMIGCapable is true where a GPU can be cut into MIG instances.
	LabelMIGCapable = Domain + "/mig.capable"
)
