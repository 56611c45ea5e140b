// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package gpunode

// Spec is what an administrator says about a node's GPUs, and which claims Kerf's controller has assigned to it. No
// agent writes it.
type Spec struct {
	// CordonedGPUs take no new grant. Their running containers are not disturbed.
	CordonedGPUs []Cordon `json:"cordonedGPUs,omitempty"`
	// DriverDrain makes agent and monitor release the NVIDIA driver; nil while they use it.
	DriverDrain *DriverDrain `json:"driverDrain,omitempty"`
	// GrantMemory changes the memory of running containers, within their profiles.
	GrantMemory []GrantMemory `json:"grantMemory,omitempty"`
	// AssignedClaims are the ResourceClaims for which the agent creates MIG instances before kube-scheduler binds their
	// pods. Only the controller of claims writes them.
	AssignedClaims []AssignedClaim `json:"assignedClaims,omitempty"`
}

// AssignedClaim is one allocation of a ResourceClaim on the node. It is there while the allocation is.
type AssignedClaim struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// AllocatedAt is when the scheduler allocated it (RFC 3339), which tells one allocation from the next.
	AllocatedAt string `json:"allocatedAt"`
	// Devices are the names of its devices with binding conditions, sorted.
	Devices []string `json:"devices"`
}

// GrantMemory is the memory that an administrator wants a container of a pod to have. An entry of a pod that is gone
// means nothing.
type GrantMemory struct {
	PodUID    string `json:"podUID"`
	Container string `json:"container"`
	// Namespace and Pod are for people.
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	// MemoryGiB is the total over the GPUs of the grant.
	MemoryGiB int64 `json:"memoryGiB"`
}

// DriverDrain says why the node's NVIDIA driver is drained, who drains it, and since when (RFC 3339).
type DriverDrain struct {
	Reason string `json:"reason"`
	By     string `json:"by"`
	Since  string `json:"since"`
}

// Cordon says why a GPU takes no new grant, who cordoned it, and when (RFC 3339).
type Cordon struct {
	// UUID is the GPU's.
	UUID   string `json:"uuid"`
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	Since  string `json:"since,omitempty"`
}
