// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

// ContainerKind is the part that a container plays in its pod.
type ContainerKind uint8

// The kinds of container.
const (
	// ContainerApp runs at the same time as the pod's other app containers and sidecars.
	ContainerApp ContainerKind = iota
	// ContainerSidecar is a restartable init container: it runs together with all later containers.
	ContainerSidecar
	// ContainerInit runs to its end before the next container starts, and hands its grant over.
	ContainerInit
)

// String returns "app", "sidecar" or "init".
func (k ContainerKind) String() string {
	switch k {
	case ContainerSidecar:
		return "sidecar"
	case ContainerInit:
		return "init"
	case ContainerApp:
	}
	return "app"
}

// ContainerRef names one container of one pod. The pod's UID is its identity; names are for people.
type ContainerRef struct {
	PodUID    string
	Namespace string
	Pod       string
	Container string
}

// String returns "namespace/pod/container".
func (r ContainerRef) String() string { return r.Namespace + "/" + r.Pod + "/" + r.Container }

// Pod is what Kerf reads of a pod.
type Pod struct {
	UID       string
	Namespace string
	Name      string
	// Node is where it is bound; empty before.
	Node        string
	Annotations map[string]string
	Labels      map[string]string
	// Containers are the init containers in their order, then the app containers.
	Containers []PodContainer
	// Priority is the number that admission derived from the pod's priority class; 0 without a class. Users choose
	// among the classes of the administrator, and cannot write the number.
	Priority int32
	// Claims are the pod's ResourceClaims.
	Claims []PodClaim
	// Strong says by which rights its containers could take off a cap, for people: such as "hostPID".
	Strong []string
	// Terminal is true when the pod has succeeded or failed for good: none of its containers starts again.
	Terminal bool
}

// PodContainer is one container of a pod's spec.
type PodContainer struct {
	Name string
	Kind ContainerKind
	// Limits are the values of its resource limits as decimal integers, Kerf's resources alone.
	Limits map[string]string
	// Claims are the ResourceClaims that it references.
	Claims []ContainerClaim
}

// PodClaim is a ResourceClaim of a pod.
type PodClaim struct {
	// Name is that in the pod, and Claim the object's; Claim is empty until the object is created from its template.
	Name, Claim string
}

// ContainerClaim is a container's reference to a ResourceClaim of its pod.
type ContainerClaim struct {
	// Name is that in the pod. Request is one request of the claim, and empty for all.
	Name, Request string
}

// ContainerRequest is what one container of a pod is to get.
type ContainerRequest struct {
	Ref ContainerRef
	// Kind tells whether it may use a grant of another container of its pod.
	Kind ContainerKind
	// Requests are the amounts as kubelet admitted them, sorted.
	Requests []ResourceRequest
	// Claims names the requests of ResourceClaims among them, as CLAIM/REQUEST. It is empty if they are not known.
	Claims []string
	// Request is the asks and the pod's annotations together, not yet completed by a profile.
	Request Request
	// With names the container of the same pod whose GPUs and cap it shares; empty for a container with a separate
	// cap.
	With string
	// SharedCap is the sum of the requests of all containers with one cap, and zero without a shared cap. Request is
	// this container's part of it.
	SharedCap Request
	//
	// ExistingOnly means that the container uses a grant that exists, and gets no new one. It shares a cap, and the
	// requests of the others are not known now. Or ResourceClaims admit it: their grants were made before.
	ExistingOnly bool
	// Advice is where it would like to be.
	Advice Advice
	// Priority is the pod's, 0 while the pod is not known.
	Priority int32
}

// Advice narrows the choice of GPUs where it can be followed, and is passed over where it cannot.
type Advice struct {
	// GPUs is the placement that the scheduler planned, one per share, in order.
	GPUs []GPUID
	// MIG is the place of the MIG instance that it planned on the one GPU; the zero value where it planned none.
	MIG InstanceRef
	// NUMA are the NUMA nodes of whole GPUs.
	NUMA []NUMAAffinity
	// Exact is true if the scheduler has given the other GPUs and MIG placements to others: no other place will do.
	Exact bool
}

// Injection is what a container of a grant gets before it is made.
type Injection struct {
	// Grant is the grant's id.
	Grant     string
	Placement Placement
	Level     Level
	// Device is the MIG instance that the container gets; the zero value where its placement is none.
	Device MIGDevice
	// Requests are the amounts that the container's hooks must name.
	Requests []ResourceRequest
	// Env are variables for the program. No cap depends on them.
	Env map[string]string
	// Mounts are files and folders of the host for the container, in the order in which they are mounted.
	Mounts []Mount
	// Annotation is the grant as an annotation of the container, for the runtime alone to read again.
	Annotation string
}

// Mount shows a file or folder of the host at another place. Both are absolute paths. A program cannot make device
// files there, nor gain rights by executing from there.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// GrantAnnotation is an OCI annotation of the container, which the agent writes: the grant (Injection.Annotation). It
// counts only together with the guard.
const GrantAnnotation = Domain + "/grant"

// PrivilegedLabel is `profile` on a GPU pod that may have privileged containers because its profile says so. The
// admission policies set it, and reject it if no profile does.
const PrivilegedLabel = Domain + "/privileged-by"

// Seen is one container as the container runtime lists it: the second source for what runs.
type Seen struct {
	ID  string
	Ref ContainerRef
	// PID is its first process in the host's pid namespace, 0 while it does not run.
	PID int
	// Running is true from its creation by the OCI runtime until its end.
	Running bool
	// Removed is true when it has ended for good: this instance never runs again.
	Removed bool
	// CDINames are the CDI devices that kubelet passed.
	CDINames []string
	// Devices are the names of the driver's files, such as nvidia0 and nvidia-cap12, that its OCI spec gives it one by
	// one. A container that may use every device of the node has none here: it is given no GPU. Only containerd's own
	// list tells them, not NRI's.
	Devices []string
	// Annotation is the annotation that Inject gave, empty where it has none.
	Annotation string
	// Grant is the grant in the arguments of the hook in its OCI spec: for containers that are no pod's.
	Grant string
}

// HookCall is what kerf-hook asks before a container's program runs.
type HookCall struct {
	// ContainerID is the OCI state's id and PID its first process, which does not run the program yet.
	ContainerID string
	PID         int
	// Amount is the amount in the hook's arguments; empty for the guard itself.
	Amount string
	// Grant is the grant in the hook's arguments, for containers that are no pod's; empty for pods.
	Grant string
	// Note is the annotation GrantAnnotation of the container that the runtime created, empty without one.
	Note string
}

// placementKey is the scheduler's annotation: scheduling.kerf.dev/<container>.
const placementKey = keyScheduling + "." + Domain + "/"

// PlacementAnnotation is the annotation's key in which the scheduler writes a container's placement.
func PlacementAnnotation(container string) string { return placementKey + container }
