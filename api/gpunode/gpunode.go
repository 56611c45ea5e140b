// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package gpunode is what an agent tells the cluster of its node: the status of the cluster-scoped object GPUNode
// (kerf.dev/v1alpha1), one for each node and of the node's name; and what an administrator tells the agent there, its
// spec. Its schema is deploy/manifests/05-crd-gpunodes.yaml.
//
// It promises to change only by fields that are added. Amounts of memory are bytes. Fields without a value are left
// out. It holds what is booked and not what is measured: the use of a GPU changes all the time, and is a matter of the
// metrics.
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

// Spec is what an administrator says of a node's GPUs. No agent writes it.
type Spec struct {
	// Cordoned are the GPUs that take nothing new, by UUID. What runs on them goes on.
	Cordoned map[string]Cordon `json:"cordoned,omitempty"`
}

// Cordon says why a GPU takes nothing new, who said so, and when (RFC 3339); all of it is for people.
type Cordon struct {
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
	Since  string `json:"since,omitempty"`
}

// Words of GPU.Gives: parts of it alone, all of it alone, and nothing, because it is left to others.
const (
	GivesShared  = "shared"
	GivesWhole   = "whole"
	GivesNothing = "nothing"
)

// Status is what an agent tells of its node.
type Status struct {
	// AgentVersion and DriverVersion are as the programs say; DriverVersion is empty while no driver answers.
	AgentVersion  string `json:"agentVersion,omitempty"`
	DriverVersion string `json:"driverVersion,omitempty"`
	// Pool is the pool of the configuration in force that the node belongs to.
	Pool string `json:"pool,omitempty"`
	// Config is the configuration in force; left out for the built-in default.
	Config *Config `json:"config,omitempty"`
	// Ready is true when pods' containers can start; NotReady says why not.
	Ready    bool     `json:"ready"`
	NotReady []string `json:"notReady,omitempty"`
	// Summary is for people, and for the columns of kubectl.
	Summary Summary `json:"summary"`
	GPUs    []GPU   `json:"gpus,omitempty"`
	// Claims are all that hold a part of a GPU, with and without a container that runs.
	Claims []Claim `json:"claims,omitempty"`
	// Fingerprint tells one set of claims of pods from another: who compares it with the pods that it has bound knows
	// whether the status reflects them. It is empty without any.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Unplaced are pods that were bound to the node, and for which no GPU of it had room when they were tried last.
	Unplaced []Unplaced `json:"unplaced,omitempty"`
	// Ending are pods that the agent has asked to end because of a faulty GPU of theirs (onFault: evict), for ten minutes
	// after they have let go of it, too.
	Ending []Ending `json:"ending,omitempty"`
}

// Config is a configuration in force.
type Config struct {
	// SHA256 is the hash of the document, as "kerf config validate" shows it.
	SHA256 string `json:"sha256,omitempty"`
	// Mistakes are those of a newer document, which was refused.
	Mistakes []string `json:"mistakes,omitempty"`
	// Document is the text of what is in force, while a newer one is refused: then it is the last good one, which the ConfigMap
	// has no more. It is left out otherwise, and where it is larger than an object of the cluster is to be.
	Document string `json:"document,omitempty"`
	// Waiting are the GPUs whose settings wait for those who use them.
	Waiting []ConfigWaiting `json:"waiting,omitempty"`
	// Excluded are the GPUs that are left to others, which are not among the node's GPUs.
	Excluded []Excluded `json:"excluded,omitempty"`
}

// Excluded is a GPU that is left to others.
type Excluded struct {
	GPU   string `json:"gpu"`
	Index int    `json:"index"`
	Model string `json:"model,omitempty"`
}

// ConfigWaiting is a GPU whose settings wait.
type ConfigWaiting struct {
	GPU string `json:"gpu"`
	// What are the settings, each with before and after; For are those whose end they wait for: pods as namespace/name, and
	// grants of no pod.
	What []string `json:"what,omitempty"`
	For  []string `json:"for,omitempty"`
	// Has is what holds until then of each of the settings.
	Has map[string]string `json:"has,omitempty"`
}

// Unplaced is a pod that waits on the node for room.
type Unplaced struct {
	PodUID    string `json:"podUID"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	// Reason is one sentence with the numbers.
	Reason string `json:"reason,omitempty"`
}

// Ending is a pod that ends for a fault.
type Ending struct {
	PodUID    string `json:"podUID"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	// Reason says what is wrong with which GPU, and the remedy.
	Reason string `json:"reason,omitempty"`
	// Since is when it was asked to (RFC 3339).
	Since string `json:"since,omitempty"`
}

// Summary adds up what the node has.
type Summary struct {
	GPUs   int `json:"gpus"`
	Claims int `json:"claims"`
	// Free and LargestFree are amounts of memory for people ("412GiB"): in all, and the largest piece that one GPU gives.
	Free        string `json:"free"`
	LargestFree string `json:"largestFree"`
	// Levels are the enforcement levels that any GPU offers, strongest first, with commas between them.
	Levels string `json:"levels,omitempty"`
	// Unhealthy counts the GPUs that take no claims for their health.
	Unhealthy int `json:"unhealthy"`
	// Config is the beginning of the hash of the configuration in force, and in a word what else is to be known of it: "refused"
	// while a newer one has mistakes, "waits" while settings of GPUs wait.
	Config string `json:"config,omitempty"`
}

// GPU is one GPU of the node.
type GPU struct {
	UUID  string `json:"uuid"`
	Index int    `json:"index"`
	Model string `json:"model,omitempty"`
	PCI   string `json:"pci,omitempty"`
	// Product is what kind of GPU it is and Board what kind of board, as pools name them (mig[].pci).
	Product string `json:"product,omitempty"`
	Board   string `json:"board,omitempty"`
	// NUMANode is left out where it is not known.
	NUMANode *int `json:"numaNode,omitempty"`
	// NVLinkClique is the same number for the GPUs that reach each other over NVLink, and left out for one that reaches
	// none.
	NVLinkClique *int   `json:"nvlinkClique,omitempty"`
	MemoryBytes  uint64 `json:"memoryBytes"`
	// UsableBytes can be granted in all, FreeBytes and FreePercent now, GrantedBytes and GrantedPercent are booked, and
	// LentBytes are used beyond what is booked and are taken back when they are needed.
	UsableBytes    uint64 `json:"usableBytes"`
	FreeBytes      uint64 `json:"freeBytes"`
	FreePercent    int    `json:"freePercent"`
	GrantedBytes   uint64 `json:"grantedBytes"`
	GrantedPercent int    `json:"grantedPercent"`
	LentBytes      uint64 `json:"lentBytes,omitempty"`
	// Whole is true while one claim has the GPU for itself.
	Whole bool `json:"whole,omitempty"`
	// MIG is true while MIG mode is on.
	MIG bool `json:"mig,omitempty"`
	// MIGState is how the GPU is cut; left out for one that cannot be, and while nothing is known of that.
	MIGState *MIGState `json:"migState,omitempty"`
	// TurnsTo is what the GPU, which is idle, becomes for a pod that asks for that: mig, or shared (or given whole). It is left
	// out where it stays as it is.
	TurnsTo string `json:"turnsTo,omitempty"`
	// Health is healthy, unknown, suspect, unhealthy or lost.
	Health       string `json:"health"`
	HealthReason string `json:"healthReason,omitempty"`
	// Cordoned says why it takes nothing new though it may be healthy, as the agent heard of it; empty where it does.
	Cordoned string `json:"cordoned,omitempty"`
	// MaxSharers is the most claims that may have a fragment of it at once; left out for no bound.
	MaxSharers int `json:"maxSharers,omitempty"`
	// Overcommit is how much more than the GPU has is given in fractions; left out where it is no more.
	Overcommit *Overcommit `json:"overcommit,omitempty"`
	// Gives is what the pool's rules let it give: shared, whole, mig or nothing; left out for all that it can.
	Gives string `json:"gives,omitempty"`
	// Levels are the enforcement levels that a claim can have here, strongest first.
	Levels []string `json:"levels,omitempty"`
	// LevelReason says why each backend is not available where no backend enforces shares of it, or where that is unknown.
	LevelReason string `json:"levelReason,omitempty"`
	// MinEnforcement is the least level that the pool and its rules let a share of it have: without one of Levels that is as
	// strong, it gives none. Where it is left out, that is reactive, unless the profile of a request says none.
	MinEnforcement string `json:"minEnforcement,omitempty"`
}

// Overcommit is how much of a GPU is given in fractions, in percent of what it has; left out for 100.
type Overcommit struct {
	// MemoryPercent is above 100 where fragments may have more memory together than there is: the driver may then refuse
	// a program what is below its cap.
	MemoryPercent int `json:"memoryPercent,omitempty"`
	// ComputePercent is above 100 where their percents may add up to more.
	ComputePercent int `json:"computePercent,omitempty"`
}

// MIGState is how a GPU is cut into MIG instances.
type MIGState struct {
	// Units is the number of its placement units, and Profiles are the names of what it can be cut into.
	Units    int      `json:"units"`
	Profiles []string `json:"profiles,omitempty"`
	// Geometry is what it can be cut into while it is in MIG mode, or may be put there, as its driver says.
	Geometry []MIGProfile `json:"geometry,omitempty"`
	// Fixed is true where a layout of the pool says what it has; else instances are cut on demand.
	Fixed bool `json:"fixed,omitempty"`
	// Instances are those that are there, or are being cut, by their starts.
	Instances []MIGInstance `json:"instances,omitempty"`
	// Most is how many instances of each profile the GPU can have at once.
	Most []MIGCount `json:"most,omitempty"`
	// Waits says why the GPU is not as the pool says, and Trouble why it gives no instances; empty where all is well.
	Waits   string `json:"waits,omitempty"`
	Trouble string `json:"trouble,omitempty"`
}

// MIGProfile is one size of MIG instance that a GPU gives.
type MIGProfile struct {
	// Name and ID are the driver's.
	Name string `json:"name"`
	ID   int    `json:"id"`
	// Compute is the number of its compute slices, MemoryBytes what programs can use, and Most how many an empty GPU has.
	Compute     int    `json:"compute"`
	MemoryBytes uint64 `json:"memoryBytes"`
	Most        int    `json:"most"`
	// Size is the number of placement units that it takes, and Starts are those at which it can begin.
	Size   int   `json:"size"`
	Starts []int `json:"starts,omitempty"`
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

// MIGInstance is a piece of a GPU in MIG mode, from Start over Size units.
type MIGInstance struct {
	Profile string `json:"profile"`
	Start   int    `json:"start"`
	Size    int    `json:"size"`
	// Foreign is true for one that Kerf did not make: nobody gets it, and nobody destroys it.
	Foreign bool `json:"foreign,omitempty"`
	// Ready is false while it is being cut.
	Ready bool `json:"ready"`
	// Claim has it, if one does, and For is whose that is, or who else it is being cut for, for people.
	Claim string `json:"claim,omitempty"`
	For   string `json:"for,omitempty"`
	// Waits says why it is not cut yet; it is tried again.
	Waits string `json:"waits,omitempty"`
}

// Claim is a part of one or several GPUs that somebody holds.
type Claim struct {
	ID string `json:"id"`
	// PodUID, Namespace, Pod and Container are empty for a process that is of no pod.
	PodUID    string `json:"podUID,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"`
	Profile   string `json:"profile,omitempty"`
	// InUse is true while a container or process uses it.
	InUse bool `json:"inUse"`
	// Level is what holds it now, and Backend by what means.
	Level     string     `json:"level"`
	Backend   string     `json:"backend,omitempty"`
	Fragments []Fragment `json:"fragments"`
}

// Fragment is a claim's part of one GPU.
type Fragment struct {
	GPU         string `json:"gpu"`
	MemoryBytes uint64 `json:"memoryBytes"`
	Percent     int    `json:"percent"`
	Whole       bool   `json:"whole,omitempty"`
	// MIGProfile is the profile of the MIG instance that it is, left out for a share of the GPU or all of it, and MIGStart
	// where that begins.
	MIGProfile string `json:"migProfile,omitempty"`
	MIGStart   int    `json:"migStart,omitempty"`
}
