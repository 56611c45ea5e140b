// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package gpunode has the types of the cluster-scoped custom resource GPUNode (kerf.dev/v1alpha1). There is one for
// each node, with the name of the node. An administrator writes its spec, the agent its status. The schema is
// deploy/manifests/05-crd-gpunodes.yaml.
//
// Amounts of memory are in bytes. Fields without a value are absent. The status has what is granted, not what is
// measured: metrics have the usage.
package gpunode

// Where the object is found.
const (
	// Group is the API group.
	Group = "kerf.dev"
	// Version is the API version.
	Version = "v1alpha1"
	// Kind is the kind of the object.
	Kind = "GPUNode"
	// Resource is its plural, as paths have it.
	Resource = "gpunodes"
)

// Object is a GPUNode as clients read it. UnmarshalJSON also reads the form of agents before GPUNode's rename.
type Object struct {
	Metadata Metadata
	Spec     Spec
	Status   Status
}

// Metadata is what clients read of an object's metadata.
type Metadata struct {
	Name            string `json:"name"`
	ResourceVersion string `json:"resourceVersion"`
	Generation      int64  `json:"generation"`
}

// Values of GPU.Mode: the GPU gives shares only, is given whole only, or gives MIG instances only. ModeExcluded: Kerf
// leaves it alone. ModeDRA: pods get it by ResourceClaim only.
const (
	ModeShared   = "shared"
	ModeWhole    = "whole"
	ModeMIG      = "mig"
	ModeExcluded = "excluded"
	ModeDRA      = "dra"
)

// Values of Grant.State.
const (
	// StateReserved: resources are reserved, no container or process uses them.
	StateReserved = "Reserved"
	// StateActive: a container or process uses the grant under its cap.
	StateActive = "Active"
	// StateReleasing: Kerf waits until no process uses the grant.
	StateReleasing = "Releasing"
)

// Status is what an agent reports about its node.
type Status struct {
	// ObservedGeneration is the metadata.generation of the spec that the agent has applied.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Ready, DriverReady and ConfigApplied.
	Conditions []Condition `json:"conditions,omitempty"`
	// AgentVersion and DriverVersion are as the programs report them. DriverVersion is absent while no driver answers.
	AgentVersion  string `json:"agentVersion,omitempty"`
	DriverVersion string `json:"driverVersion,omitempty"`
	// Pool is the node's pool in the applied config.
	Pool string `json:"pool,omitempty"`
	// Config is the applied config; absent for the built-in default.
	Config *Config `json:"config,omitempty"`
	// Summary is for the columns of kubectl.
	Summary Summary `json:"summary"`
	GPUs    []GPU   `json:"gpus,omitempty"`
	// Grants are all grants of the node, active or not.
	Grants []Grant `json:"grants,omitempty"`
	// Fingerprint identifies the set of grants of pods. A client that compares it with the pods that it assigned knows
	// whether the status includes them. It is empty if there is no grant.
	Fingerprint string `json:"fingerprint,omitempty"`
	// PendingPods are assigned to the node, and had no GPU with enough free capacity when the agent last tried.
	PendingPods []PendingPod `json:"pendingPods,omitempty"`
	// TerminatingPods are pods that the agent has ended because of a faulty GPU (onFault: evict), until ten minutes
	// after they have released it.
	TerminatingPods []TerminatingPod `json:"terminatingPods,omitempty"`
}

// Config is the applied config.
type Config struct {
	// SHA256 is the config's hash, as "kerf config validate" prints it.
	SHA256 string `json:"sha256,omitempty"`
	// Errors are those of a newer config, which the agent rejected.
	Errors []string `json:"errors,omitempty"`
	// LastKnownGood is the text of the applied config while a newer one is rejected. It is absent if it is too large
	// for the object.
	LastKnownGood string `json:"lastKnownGood,omitempty"`
	// Pending are the GPUs with settings that wait until they are idle.
	Pending []PendingSettings `json:"pending,omitempty"`
	// Excluded are the GPUs that the pool excludes. They are not in Status.GPUs.
	Excluded []Excluded `json:"excluded,omitempty"`
}

// Excluded is a GPU that the pool excludes.
type Excluded struct {
	GPU   string `json:"gpu"`
	Index int    `json:"index"`
	Model string `json:"model,omitempty"`
}

// PendingSettings are settings of a GPU that wait.
type PendingSettings struct {
	GPU string `json:"gpu"`
	// Settings have the value before and after each. BlockedBy are pods (namespace/name) and grants of no pod.
	Settings  []string `json:"settings,omitempty"`
	BlockedBy []string `json:"blockedBy,omitempty"`
	// Current has the current value of each setting.
	Current map[string]string `json:"current,omitempty"`
}

// PendingPod is a pod that waits on the node for free capacity.
type PendingPod struct {
	PodUID    string `json:"podUID"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	// Reason is one sentence with the amounts.
	Reason string `json:"reason,omitempty"`
}

// TerminatingPod is a pod that ends because of a fault.
type TerminatingPod struct {
	PodUID    string `json:"podUID"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	// Reason says what is wrong with which GPU, and the remedy.
	Reason string `json:"reason,omitempty"`
	// Since is the time of the request to end (RFC 3339).
	Since string `json:"since,omitempty"`
}

// Summary has the node's totals.
type Summary struct {
	GPUs   int `json:"gpus"`
	Grants int `json:"grants"`
	// Free and LargestFree are amounts of memory for people ("412GiB"): of all GPUs, and the most of one GPU.
	Free        string `json:"free"`
	LargestFree string `json:"largestFree"`
	// Levels are the enforcement levels of all GPUs, strongest first, separated by commas.
	Levels string `json:"levels,omitempty"`
	// Unhealthy is the number of GPUs that take no grant because of their health.
	Unhealthy int `json:"unhealthy"`
	// Config is the beginning of the applied config's hash, with "rejected" while a newer one has errors and "pending"
	// while settings of GPUs wait.
	Config string `json:"config,omitempty"`
}

// GPU is one GPU of the node.
type GPU struct {
	UUID  string `json:"uuid"`
	Index int    `json:"index"`
	Model string `json:"model,omitempty"`
	PCI   string `json:"pci,omitempty"`
	// Product and Board are the PCI IDs of device and board, as pools write them.
	Product string `json:"product,omitempty"`
	Board   string `json:"board,omitempty"`
	// NUMANode is absent if it is unknown.
	NUMANode *int `json:"numaNode,omitempty"`
	// NVLinkClique is the same number for GPUs that reach each other over NVLink, and absent for a GPU that reaches
	// none.
	NVLinkClique *int `json:"nvlinkClique,omitempty"`
	// SystemMemory is true for a GPU that uses the system's memory, of which NVML reports no amount. It is granted
	// whole only, and its JSON has none of CapacityBytes, AllocatableBytes, FreeBytes and GrantedBytes.
	SystemMemory  bool  `json:"systemMemory,omitempty"`
	CapacityBytes int64 `json:"capacityBytes"`
	// AllocatableBytes can be granted in total, FreeBytes and FreePercent now. GrantedBytes and GrantedPercent are
	// granted. BurstBytes are usable above the guarantees of the grants until another grant needs them.
	AllocatableBytes int64 `json:"allocatableBytes"`
	FreeBytes        int64 `json:"freeBytes"`
	FreePercent      int   `json:"freePercent"`
	GrantedBytes     int64 `json:"grantedBytes"`
	GrantedPercent   int   `json:"grantedPercent"`
	BurstBytes       int64 `json:"burstBytes,omitempty"`
	// Whole is true while one grant has the GPU alone.
	Whole bool `json:"whole,omitempty"`
	// MIG is true while MIG mode is enabled.
	MIG bool `json:"mig,omitempty"`
	// MIGState has the MIG instances; absent for a GPU without MIG, and while it is unknown.
	MIGState *MIGState `json:"migState,omitempty"`
	// SwitchableTo is the mode that the idle GPU switches to for a pod that requests it: mig, or shared (also for whole
	// GPUs). It is absent if the mode stays.
	SwitchableTo string `json:"switchableTo,omitempty"`
	// Health is healthy, unknown, suspect, unhealthy or lost.
	Health       string `json:"health"`
	HealthReason string `json:"healthReason,omitempty"`
	// Cordoned is the reason for the cordon that the agent applies; empty if there is none.
	Cordoned string `json:"cordoned,omitempty"`
	// MaxShares is the highest number of shares on the GPU at once; absent for no bound.
	MaxShares int `json:"maxShares,omitempty"`
	// Overcommit is how much of the GPU is granted in shares; absent for no overcommit.
	Overcommit *Overcommit `json:"overcommit,omitempty"`
	// Mode is what the pool's rules let the GPU give: shared, whole, mig, excluded or dra; absent for everything it
	// can.
	Mode string `json:"mode,omitempty"`
	// Levels are the enforcement levels that a grant can have here, strongest first.
	Levels []string `json:"levels,omitempty"`
	// LevelReason says why each backend is not available if no backend enforces shares of the GPU, or if that is
	// unknown.
	LevelReason string `json:"levelReason,omitempty"`
	// MinEnforcement is the lowest level that the pool and its rules allow for a share. If none of Levels is as strong,
	// the GPU gives no share. If it is absent, that is reactive, unless the profile of a request says none.
	MinEnforcement string `json:"minEnforcement,omitempty"`
}

// Overcommit is how much of a GPU is granted in shares, in percent of its capacity; absent for 100.
type Overcommit struct {
	// MemoryPercent above 100 lets shares have more memory together than the GPU has. The driver may then reject an
	// allocation below the cap.
	MemoryPercent int `json:"memoryPercent,omitempty"`
	// ComputePercent above 100 lets the compute percents add up to more.
	ComputePercent int `json:"computePercent,omitempty"`
}

// MIGState has the MIG instances of a GPU, and what it can have.
type MIGState struct {
	// MemorySlices is the number of the GPU's memory slices, and Profiles are the names of its profiles.
	MemorySlices int      `json:"memorySlices"`
	Profiles     []string `json:"profiles,omitempty"`
	// Geometry has the profiles and placements that the driver reports, if the GPU is in MIG mode or may be put there.
	Geometry []MIGProfile `json:"geometry,omitempty"`
	// LayoutFromPool is true if a layout of the pool fixes the instances; else they are created on demand.
	LayoutFromPool bool `json:"layoutFromPool,omitempty"`
	// Instances exist, or are being created, in the order of their starts.
	Instances []MIGInstance `json:"instances,omitempty"`
	// MaxInstances is how many instances of each profile the GPU can have at once.
	MaxInstances []MIGCount `json:"maxInstances,omitempty"`
	// PendingReason says why the GPU differs from its pool's layout, and Error why it gives no instance.
	PendingReason string `json:"pendingReason,omitempty"`
	Error         string `json:"error,omitempty"`
}

// MIGProfile is a MIG profile of a GPU.
type MIGProfile struct {
	// Name and ID are the driver's.
	Name string `json:"name"`
	ID   int    `json:"id"`
	// Compute is the number of compute slices, MemoryBytes what programs can use, and MaxInstances how many an empty
	// GPU has.
	Compute      int   `json:"compute"`
	MemoryBytes  int64 `json:"memoryBytes"`
	MaxInstances int   `json:"maxInstances"`
	// MemorySlices is the number of memory slices of an instance. PlacementStarts are those at which it can start.
	MemorySlices    int   `json:"memorySlices"`
	PlacementStarts []int `json:"placementStarts,omitempty"`
	// Decoders, Encoders, JPEGs and OFAs are its media engines.
	Decoders int `json:"decoders,omitempty"`
	Encoders int `json:"encoders,omitempty"`
	JPEGs    int `json:"jpegs,omitempty"`
	OFAs     int `json:"ofas,omitempty"`
}

// MIGCount is a number of instances of a profile.
type MIGCount struct {
	Profile string `json:"profile"`
	Count   int    `json:"count"`
}

// MIGInstance is a MIG instance, from memory slice Start over MemorySlices slices.
type MIGInstance struct {
	Profile      string `json:"profile"`
	Start        int    `json:"start"`
	MemorySlices int    `json:"memorySlices"`
	// Managed is true for an instance that Kerf created. Kerf neither grants nor destroys others.
	Managed bool `json:"managed"`
	// Ready is false while it is being created.
	Ready bool `json:"ready"`
	// Grant has it, if one does. RequestedBy is the pod of the grant, or the one for which it is being created.
	Grant       string `json:"grant,omitempty"`
	RequestedBy string `json:"requestedBy,omitempty"`
	// PendingReason says why it is not created yet; Kerf retries.
	PendingReason string `json:"pendingReason,omitempty"`
}

// Grant is the GPU resources of one container or process.
type Grant struct {
	ID string `json:"id"`
	// PodUID, Namespace, Pod and Container are empty for a process outside pods.
	PodUID    string `json:"podUID,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
	Profile   string `json:"profile,omitempty"`
	// State is Reserved, Active or Releasing.
	State string `json:"state"`
	// Level is the enforcement level now, and Backend what enforces the cap.
	Level   string  `json:"level"`
	Backend string  `json:"backend,omitempty"`
	Shares  []Share `json:"shares"`
}

// Share is what a grant has of one GPU.
type Share struct {
	GPU         string `json:"gpu"`
	MemoryBytes int64  `json:"memoryBytes"`
	Percent     int    `json:"percent"`
	Whole       bool   `json:"whole,omitempty"`
	// MIGProfile is the profile of the MIG instance, absent for a share of the GPU or the whole GPU. MIGStart is the
	// memory slice at which the instance starts.
	MIGProfile string `json:"migProfile,omitempty"`
	MIGStart   int    `json:"migStart,omitempty"`
}
