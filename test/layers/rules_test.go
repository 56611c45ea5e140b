// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package layers_test

// module is the root module's path; every package path below is relative to it.
const module = "github.com/kerf-gpu/kerf"

// A layer says what a group of packages may import of this module.
//
// A pattern is a package path, or ends in "/..." for a package and all below it, or ends in "/*" for the
// folders directly below, each with all below it: those are siblings. A package may always import what
// belongs to the same folder of its pattern (for "internal/*": internal/kube/x may import
// internal/kube/y, and not internal/cgroup). Where several patterns match a package, the longest counts.
type layer struct {
	pattern string
	// why is the rule in words; a violation shows it.
	why string
	// may are patterns of what these packages import outside their own folder.
	may []string
}

// tools are the internal packages that know nothing of GPUs; any package above may use them.
var tools = []string{"internal/atomicfile", "internal/failpoint", "internal/helptext", "internal/mountns",
	"internal/mounttable", "internal/process", "internal/quiesce", "internal/serve/...",
	"internal/trusted", "internal/sleep"}

// layers are ordered from the bottom up. A package that no pattern matches has no place yet: give it one.
var layers = []layer{
	{"sharing", "the model is what every other package speaks, so it can know none of them", nil},
	{"api/...", "the wire format belongs to its users of every language, so it knows nothing of Kerf's own types", nil},

	{"deploy", "programs read the chart's files as the chart has them", nil},

	{"internal/*",
		"an adapter opens to one thing outside; it may speak the model, and its siblings know nothing of each other",
		with(tools, "sharing")},
	{"internal/cdi/...", "a CDI spec has the timeout of the hook that it names",
		[]string{"sharing", "internal/*", "hooks/oci/wire"}},
	{"internal/nodeclient/...", "the client is the adapter to the node API", []string{"sharing", "api/..."}},
	{"internal/promread/...", "what Prometheus tells is brought in the form in which use is added up",
		[]string{"sharing", "sharing/usage"}},
	{"internal/cli/...", "the command line shows and changes what the packages below know, and belongs to one program",
		[]string{"sharing/...", "mig/...", "api/...", "internal/*", "hooks/*", "dra/resourceclaim", "deploy"}},
	{"internal/agentusage/...", "an agent's answer has prices and entries of the audit log",
		[]string{"sharing", "sharing/audit", "sharing/config", "sharing/usage"}},
	{"internal/configplan/...", "what a config would change is decided from what was read of the cluster",
		[]string{"sharing/...", "mig/...", "api/...", "internal/kube/survey"}},
	{"internal/console/...", "the console shows what the API server and the agents report, to those who may see it",
		[]string{"sharing/...", "mig/...", "api/...", "internal/kube/...", "internal/nodeclient", "internal/promread",
			"internal/agentusage", "internal/configplan", "internal/sleep", "internal/serve/..."}},
	{"internal/console/model/...", "what a viewer sees is made of reports and pods alone",
		[]string{"sharing", "sharing/allocator/...", "sharing/scheduler", "api/gpunode"}},
	{"internal/console/advise/...", "which change places a pod is asked of the scheduler's cluster state",
		[]string{"sharing", "sharing/config", "sharing/defrag", "sharing/defrag/state", "sharing/scheduler",
			"sharing/simulate", "api/gpunode", "internal/console/model"}},
	{"internal/present/...", "the presenter shows what the node API answers", []string{"sharing", "api/..."}},

	{"sharing/config/...",
		"the document is decoded and validated on its own; how MIG profiles are named is the geometry's",
		[]string{"sharing", "mig"}},
	{"sharing/translate/...",
		"what pods of other tools request is said in the model's words, and a foreign document in the configuration's",
		[]string{"sharing", "sharing/config", "sharing/dra", "mig"}},
	{"sharing/config/change", "what a new document changes is decided from documents, and from who is on the GPUs",
		[]string{"sharing", "sharing/config"}},
	{"sharing/config/reference", "the reference is made of what the decoder reads by", []string{"sharing/config"}},
	{"sharing/ledger/...", "who holds what is decided without knowing how it was chosen; whether a GPU has room for " +
		"it, the allocator says", []string{"sharing", "sharing/allocator"}},
	{"sharing/faults/...", "what becomes of who is on a faulty GPU is decided from who is there and what the pool says",
		[]string{"sharing"}},
	{"sharing/dra/...", "what the DRA front end publishes and grants is decided from GPUs, pods and claims alone",
		[]string{"sharing", "mig"}},
	{"sharing/audit", "the audit log is a format: entries in, lines out", []string{"sharing", "sharing/usage"}},
	{"sharing/usage/...", "what was used is added up from what was seen", []string{"sharing"}},
	{"sharing/listing/...", "to whom the entries of a driver's list belong is decided from what was seen alone",
		[]string{"sharing"}},
	{"sharing/audit/file/...", "the audit log lies in files, and no package below it knows that",
		[]string{"sharing", "sharing/audit"}},
	{"sharing/packing/...", "how much of a bin an item costs is arithmetic, whatever the bins are", nil},
	{"sharing/allocator/...",
		"which GPU answers is decided without knowing who asks; what a GPU can be cut into is the geometry's",
		[]string{"sharing", "sharing/packing", "mig"}},
	{"sharing/allocator/report", "a report of a GPU is said in the allocator's words",
		[]string{"api/gpunode", "sharing", "sharing/allocator"}},
	{"sharing/scheduler/...",
		"the cluster state is made of reports and pods, and know no API server and no scheduler",
		[]string{"api/gpunode", "sharing", "sharing/allocator/...", "sharing/config", "sharing/dra", "sharing/ledger",
			"mig"}},
	{"sharing/defrag/...", "which pods to move is decided from a cluster that is tried through an interface", nil},
	{"sharing/defrag/control/...", "the next act is decided from a record and a view of the cluster", nil},
	{"sharing/defrag/state/...", "a plan for a cluster is tried in the scheduler's cluster state",
		[]string{"sharing", "sharing/defrag", "sharing/scheduler"}},
	{"internal/kube/defrag/...", "what is moved is decided in the packages of sharing, from what this adapter reads",
		[]string{"api/gpunode", "internal/kube/access", "internal/kube/survey", "sharing", "sharing/allocator/cluster",
			"sharing/config", "sharing/defrag", "sharing/defrag/control", "sharing/defrag/state",
			"sharing/scheduler"}},
	{"internal/kube/assign/...", "which claims a node gets follows only from their allocations",
		[]string{"api/gpunode", "dra/resourceclaim", "sharing", "sharing/dra"}},
	{"sharing/simulate/...",
		"an experiment asks the allocator, and knows of a node what its agent reports, and no program",
		[]string{"sharing", "sharing/allocator/...", "sharing/defrag", "mig", "api/gpunode"}},

	{"mig", "the geometry is computed from what the driver reported, and knows no driver",
		[]string{"sharing", "sharing/packing"}},
	{"mig/plan/...", "a plan is made from what was seen and what is wanted, and does not know who carries it out",
		[]string{"sharing", "mig"}},
	{"mig/modeswitch/...",
		"which GPU changes its MIG mode is decided from who waits and what is idle, and does not know who changes it",
		[]string{"sharing"}},
	{"mig/exec/...",
		"the executor carries plans out; driver, disk and holders reach it through interfaces that it declares",
		with(tools, "sharing", "mig", "mig/plan")},
	{"mig/live/...", "the driver's adapter and the executor meet here",
		[]string{"sharing", "mig", "mig/exec", "internal/nvml"}},
	{"mig/manager/...",
		"what keeps a node's GPUs as its pool wants them joins planner and executor; the ledger reaches " +
			"it through what its user hands in",
		[]string{"sharing", "sharing/config", "mig", "mig/plan", "mig/exec"}},
	{"mig/parted/...", "a foreign document is read and said in Kerf's own words",
		[]string{"sharing", "mig", "mig/plan"}},

	{"sharing/lists/...",
		"the lists join what driver and kernel tell; the driver reaches them through an interface that they declare",
		with(tools, "sharing", "sharing/listing")},
	{"sharing/backend/...", "a backend enforces caps through adapters, and knows no ledger",
		[]string{"sharing", "sharing/config", "internal/*"}},
	{"sharing/backend/libkerf", "libkerf also needs to know whose processes the driver lists",
		[]string{"sharing", "sharing/listing", "sharing/lists", "sharing/backend", "sharing/backend/libkerf/...",
			"internal/*"}},
	{"sharing/backend/reactive/...", "who is over a cap is decided from what was seen alone", []string{"sharing"}},
	{"sharing/backend/choice/...", "which backend holds a share is decided from what the probes found alone",
		[]string{"sharing", "sharing/config"}},
	{"sharing/backend/libkerf/contextsize/...", "how much one context takes is decided from what was measured",
		[]string{"sharing"}},
	{"sharing/backend/libkerf/compute/...", "who may use a GPU's time is decided from what was seen alone",
		[]string{"sharing"}},
	{"sharing/backend/libkerf/overhead/...",
		"what a lease holds beyond its counters is decided from what was seen alone", []string{"sharing"}},
	{"sharing/backend/libkerf/throttle/...",
		"the pace is a clock around a decision; accounts and driver reach it through interfaces that it declares",
		[]string{"sharing", "sharing/backend/libkerf/compute"}},
	{"sharing/backend/libkerf/members/...",
		"the process of a slot is found from what the kernel tells through an interface that it declares",
		[]string{"sharing", "sharing/backend/libkerf/overhead", "internal/libkerf", "internal/process"}},
	{"sharing/doctor/...", "the doctor looks through the adapters at what a machine can do, and holds nothing",
		[]string{"sharing", "api/...", "internal/*"}},
	{"sharing/node/...",
		"the runtime joins core and adapters; caps, clients and servers reach it through interfaces that it declares",
		with(tools, "sharing", "sharing/config", "sharing/config/change", "sharing/ledger", "sharing/allocator",
			"sharing/backend/...", "sharing/lists", "sharing/faults", "sharing/audit", "sharing/usage",
			"sharing/listing", "mig", "internal/cgroup", "internal/libkerf")},
	{"sharing/node/conditions/...", "conditions are a set of sentences with typed keys", nil},
	{"sharing/node/notify/...", "users of a grant are informed through functions that the cluster sets",
		[]string{"sharing", "sharing/audit", "sharing/config", "sharing/ledger"}},
	{"sharing/node/health/...",
		"what a fault demands is decided from a view of the node, and carried out on cgroups and through the notifier",
		[]string{"sharing", "sharing/audit", "sharing/config", "sharing/faults", "sharing/ledger",
			"sharing/node/instances", "sharing/node/notify", "mig", "internal/cgroup", "internal/process"}},
	{"sharing/node/guard/...", "which process is killed is decided from a view of the node, and checked with another " +
		"one; runtime and cgroups are reached through functions and interfaces that it declares",
		[]string{"sharing", "sharing/audit", "sharing/backend/...", "sharing/config", "sharing/ledger",
			"sharing/listing", "sharing/lists", "sharing/node/conditions", "sharing/node/notify",
			"sharing/node/observe", "internal/cgroup", "internal/process"}},
	{"sharing/node/meter/...", "what grants use is added up from samples and a view of the node; driver and sampler " +
		"are reached through interfaces that it declares",
		[]string{"sharing", "sharing/audit", "sharing/config", "sharing/ledger", "sharing/usage",
			"sharing/node/conditions", "sharing/node/notify", "sharing/node/observe"}},
	{"sharing/node/burst/...",
		"burst memory is decided from bursts and usage; the node reaches it through an interface that it declares",
		[]string{"sharing", "sharing/allocator", "sharing/ledger"}},
	{"sharing/node/counters/...", "which counters are corrected is the backend's decision; the node reaches it " +
		"through interfaces that it declares",
		[]string{"sharing", "sharing/backend/libkerf", "sharing/ledger", "sharing/lists", "sharing/node/conditions"}},
	{"sharing/node/status/...", "what clients see is decided from facts and a sample",
		[]string{"sharing", "sharing/backend/...", "sharing/config", "sharing/config/change", "sharing/ledger",
			"sharing/node/guard", "sharing/node/health", "sharing/node/lifecycle", "sharing/node/mode",
			"sharing/node/observe", "sharing/node/settings/applied", "sharing/node/unplaced", "mig"}},
	{"sharing/node/recovery/...", "how much was found after a start is a state that its users set",
		[]string{"internal/cgroup"}},
	{"sharing/node/observe/...", "what readings of GPUs mean is decided from lists and grants; driver and runtime " +
		"are reached through interfaces that it declares",
		[]string{"sharing", "sharing/backend/libkerf/contextsize", "sharing/ledger", "sharing/listing", "sharing/lists",
			"internal/cgroup"}},
	{"sharing/node/store/...", "the store joins ledger and checkpoint under one lock",
		[]string{"sharing", "sharing/backend", "sharing/backend/choice", "sharing/ledger", "sharing/node/checkpoint",
			"sharing/node/conditions", "sharing/node/record"}},
	{"sharing/node/work/...", "a queue knows nothing of its keys", nil},
	{"sharing/node/lifecycle/...",
		"grants are activated, released and found again by the store, the driver, the backends and the kernel",
		with(tools, "sharing", "sharing/audit", "sharing/backend/...", "sharing/ledger", "sharing/listing",
			"sharing/lists",
			"sharing/node/checkpoint", "sharing/node/conditions", "sharing/node/entry", "sharing/node/gpudriver",
			"sharing/node/guard", "sharing/node/handles", "sharing/node/health", "sharing/node/instances",
			"sharing/node/mode",
			"sharing/node/place", "sharing/node/unplaced", "sharing/config",
			"sharing/node/notify", "sharing/node/observe", "sharing/node/record", "sharing/node/recovery",
			"sharing/node/startcheck", "sharing/node/store", "sharing/node/work",
			"internal/cgroup", "internal/process")},
	{"sharing/node/claims/...", "a ResourceClaim is prepared by the runtime and the CDI specs, which are reached " +
		"through interfaces and functions that it declares", []string{"sharing", "sharing/dra", "sharing/ledger"}},
	{"sharing/node/assigned/...", "MIG instances of claims are created and reported by the runtime and the " +
		"API server, " +
		"which are reached through interfaces that it declares", with(tools, "sharing", "sharing/dra")},
	{"sharing/node/handles/...", "what is no value of a grant is kept by its ID", []string{"sharing/ledger",
		"internal/process"}},
	{"sharing/node/gpudriver/...", "the driver is reached through interfaces, and one of them answers now",
		[]string{"sharing", "sharing/backend/choice", "sharing/lists", "sharing/node/observe"}},
	{"sharing/node/record/...", "the record is a format: bytes in, bytes out", []string{"sharing"}},
	{"sharing/node/contextprobe/...", "the prober measures contexts through interfaces that it declares",
		with(tools, "sharing", "sharing/backend/libkerf/contextsize")},
	{"sharing/node/startcheck/...",
		"the check at a container's start reads limits through an interface that it declares", []string{"sharing"}},
	{"sharing/node/instances/...", "which MIG instance a grant gets, and when it is created, is decided from grants " +
		"and GPUs; runtime and MIG manager are reached through interfaces that it declares",
		[]string{"sharing", "sharing/allocator", "sharing/faults", "sharing/ledger", "mig"}},
	{"sharing/node/unplaced/...", "which pods wait for room is remembered from attempts alone",
		[]string{"sharing", "sharing/allocator"}},
	{"sharing/node/mode/...", "which GPU switches its MIG mode is decided from a picture of the node; runtime and " +
		"MIG manager are reached through interfaces that it declares",
		[]string{"sharing", "sharing/allocator", "sharing/backend/choice", "sharing/config", "sharing/ledger", "mig",
			"mig/modeswitch"}},
	{"sharing/node/place/...", "which GPUs and which backend a request gets is decided from values of the node; MIG " +
		"manager and mode switcher are reached through interfaces that it declares",
		[]string{"sharing", "sharing/allocator", "sharing/backend/...", "sharing/config", "sharing/ledger",
			"sharing/node/instances", "mig"}},
	{"sharing/node/nodeserver/...", "the server translates between the node API and the runtime",
		with(tools, "api/...", "sharing", "sharing/config", "sharing/ledger", "sharing/node", "sharing/node/lifecycle",
			"sharing/node/mode", "sharing/node/status", "mig")},

	{"deviceplugin/...",
		"the device plugin speaks to kubelet, and reaches the runtime through interfaces that it declares",
		with(tools, "sharing")},
	{"dra/...", "the DRA plugin speaks to kubelet and the API server of claims, and reaches the preparer through an " +
		"interface that it declares", []string{"sharing", "sharing/dra", "dra/resourceclaim"}},
	{"hooks/*",
		"a hook translates for the container runtime, and reaches the node runtime through interfaces that it " +
			"declares", with(tools, "sharing")},
	{"hooks/oci/client/...",
		"the hook program runs as root in every container's start: its client is its frames and the standard library",
		[]string{"hooks/oci/wire"}},
	{"hooks/oci/wire/...",
		"the hook program runs as root in every container's start: its frames need nothing but the standard library",
		nil},

	{"monitor/*", "a collector reads through interfaces that it declares, and its siblings know nothing of each other",
		[]string{"sharing", "internal/sleep"}},
	{"monitor/attribution/...", "whose use a GPU's use is, is decided from what was seen alone", []string{"sharing"}},
	{"monitor/collect/...", "the collector joins what it reads through interfaces that it declares",
		[]string{"sharing", "monitor/attribution"}},
	{"monitor/exposition/...", "what is scraped is made of the collector's snapshots",
		[]string{"sharing", "monitor/attribution", "monitor/collect"}},
	{"monitor/stream/...", "the stream is made of the collector's snapshots",
		[]string{"sharing", "api/...", "internal/serve/...", "monitor/attribution", "monitor/collect"}},

	{"monitor/source/...", "a source asks the driver's libraries, NVML and DCGM, through their adapters, and says " +
		"what it read in the collector's words",
		[]string{"sharing", "internal/dcgm", "internal/nvml", "internal/quiesce", "monitor/attribution",
			"monitor/collect"}},
	{"monitor/service/...", "the monitor joins sources, the agent's grants and collector, and serves its snapshots",
		[]string{"sharing", "api/...", "internal/cgroup", "internal/nodeclient", "internal/process", "internal/quiesce",
			"internal/serve/...", "monitor/*"}},

	{"sharing/node/gpunode/...", "what the cluster gets is made of the runtime's state",
		[]string{"api/...", "sharing", "sharing/config", "sharing/config/change", "sharing/ledger", "sharing/node",
			"sharing/node/health", "sharing/node/status", "mig"}},
	{"sharing/node/metrics/...", "the metrics are made of the same picture that the node API gives",
		[]string{"sharing", "api/..."}},
	{"sharing/node/options/...", "the agent's flags are values that each of its parts can read",
		[]string{"sharing", "sharing/backend", "sharing/doctor", "internal/failpoint", "internal/process"}},
	{"sharing/node/uninstall/...",
		"what the agent has put on a node is removed through the adapters, without the runtime",
		with(tools, "sharing", "sharing/node/settings/gpumode", "sharing/backend/mps", "sharing/node/checkpoint",
			"sharing/node/record", "internal/*")},
	{"sharing/node/settings/...",
		"the settings of GPUs follow from the applied config; the driver is reached through its adapter",
		with(tools, "sharing", "sharing/config", "sharing/config/change", "sharing/node/settings/applied",
			"sharing/node/settings/gpumode", "sharing/node", "sharing/node/conditions", "sharing/node/options",
			"internal/kube", "internal/nvml", "internal/nvidiasmi")},
	{"sharing/node/settings/applied/...", "what GPUs have follows from config and users; the node runtime is reached " +
		"through an interface that the package declares",
		with(tools, "sharing", "sharing/config", "sharing/config/change", "sharing/ledger")},
	{"sharing/node/session/...",
		"a session joins one driver with the node runtime: its library, its GPUs, their MIG instances and backends",
		[]string{"sharing/...", "mig/...", "internal/*", "monitor/health"}},
	{"sharing/node/cluster/...",
		"what a node of a cluster needs joins the node runtime with kubelet, container runtime and API server",
		[]string{"sharing/...", "mig/...", "api/...", "internal/*", "monitor/*", "deviceplugin/...", "dra", "hooks/*"}},
	{"sharing/node/agent/...",
		"the agent joins the node runtime with driver, container runtime, kubelet and API server",
		[]string{"sharing/...", "mig/...", "api/...", "internal/*", "monitor/*", "deviceplugin/...", "hooks/*"}},

	{"lab/...", "an experiment compares the product with something else: it may use the product, and the product " +
		"does not know it",
		[]string{"sharing", "sharing/packing", "sharing/allocator/...", "sharing/simulate", "mig", "internal/cli/..."}},
	{"lab/policy/dra", "the policies of ResourceClaims publish devices as the agent does",
		[]string{"dra", "sharing", "sharing/allocator/...", "sharing/dra", "sharing/simulate", "mig"}},
	{"sim/...", "the simulator stands in for the NVIDIA driver: it shares value types with the product, and does not " +
		"know how the product uses a driver",
		[]string{"sharing", "internal/process"}},

	{"cmd/*", "a program wires everything below, and nothing imports a program",
		[]string{"sharing/...", "mig/...", "api/...", "internal/*", "monitor/*", "deviceplugin/...", "hooks/*"}},
	{"cmd/kerf-hook/...",
		"the hook program runs as root in every container's start: it is its client and the standard library",
		[]string{"hooks/oci/client", "hooks/oci/wire"}},
	{"test/*", "a suite may look at everything, and nothing imports a suite",
		[]string{"sharing/...", "mig/...", "api/...", "internal/*", "monitor/*", "deviceplugin/...", "hooks/*",
			"sim/..."}},
}

// outside are the packages that are not part of the product, with the packages that may import them. This rule wins
// over layers.
var outside = []adapter{
	{"sim", "the simulator is not part of the product: what runs on a node must not depend on it, and tests use it " +
		"in place of a driver", []string{"sim/...", "test/*"}},
}

// An adapter is an import that only some packages may have. An import of another module that no adapter names is
// not allowed anywhere: a new dependency is a decision, and its line here is where it is made.
type adapter struct {
	// path is an import path, of another module or of a package of this one; everything below it belongs to it.
	path string
	why  string
	// open are the patterns of the packages that may import it.
	open []string
}

var adapters = []adapter{
	{module + "/hooks/oci/client", "what asks the agent is the hook program's alone", []string{"cmd/kerf-hook"}},
	{module + "/internal/dcgm", "what may crash in DCGM's library is kept to the one program that can do without it",
		[]string{"monitor/source"}},
	{module + "/monitor/source", "what may crash in DCGM's library is kept to the one program that can do without it",
		[]string{"monitor/service", "cmd/kerf-monitor"}},
	{module + "/monitor/service", "the monitor is a separate program", []string{"cmd/kerf-monitor"}},
	{module + "/internal/cli", "a command line belongs to its program, and to experiments that extend it",
		[]string{"cmd/kerf", "cmd/kubectl-kerf", "internal/cli/...", "lab/...", "test/clitest"}},
	{"github.com/containerd/containerd", "containerd has one adapter", []string{"internal/containerd/...", "test/*"}},
	{"github.com/containerd/errdefs", "containerd has one adapter", []string{"internal/containerd/..."}},
	{"github.com/containerd/log", "what containerd's client would print is kept silent at its adapter",
		[]string{"internal/containerd/..."}},
	{"github.com/containerd/typeurl", "containerd has one adapter", []string{"internal/containerd/..."}},
	{"github.com/containerd/platforms", "containerd has one adapter", []string{"internal/containerd/..."}},
	{"github.com/opencontainers/image-spec", "the parts of an image are containerd's to keep",
		[]string{"internal/containerd/..."}},
	{"github.com/moby/sys/mountinfo", "one package reads mount tables", []string{"internal/mounttable"}},
	{"github.com/containerd/nri", "NRI is spoken by the hook that injects", []string{"hooks/nri/...", "test/*"}},
	{"github.com/opencontainers/runtime-spec", "OCI specs are patched in one place, made by the adapter to containerd",
		[]string{"hooks/oci", "internal/containerd/...", "internal/cdi/...", "internal/cli/...", "test/*"}},
	{"tags.cncf.io/container-device-interface", "CDI specs are read and written by one adapter, and applied by two",
		[]string{"internal/cdi/...", "hooks/oci", "hooks/nri", "sim/cmd/gpusim", "test/*"}},
	{"github.com/pelletier/go-toml/v2", "the toolkit's configuration is read where the container runtime is looked at",
		[]string{"internal/containerd/..."}},
	{"k8s.io/cri-api", "the container runtime is asked by one adapter", []string{"internal/containerd/...", "test/*"}},
	{"k8s.io/kubelet", "kubelet's two sockets have one user each", []string{"deviceplugin/...", "internal/kubelet/...",
		"test/*"}},
	{"k8s.io/client-go", "the API server has one adapter, besides the library of the DRA plugin API",
		[]string{"internal/kube/...", "dra/...", "test/*"}},
	{"k8s.io/dynamic-resource-allocation", "kubelet's DRA plugin API has one adapter; an experiment asks the allocator",
		[]string{"dra/...", "lab/policy/dra", "test/*"}},
	{"k8s.io/client-go/tools/clientcmd", "the adapter reads kubeconfigs; the command line has kubectl's flags for them",
		[]string{"internal/kube/...", "internal/cli/...", "test/*"}},
	{"k8s.io/client-go/util/jsonpath", "-o jsonpath is kubectl's", []string{"internal/cli/..."}},
	{"k8s.io/api", "the API server has one adapter; the command line makes a Job, and evicts pods, as its user",
		[]string{"internal/kube/...", "internal/cli/...", "dra/...", "lab/policy/dra",
			"test/*"}},
	{"k8s.io/apimachinery", "the API server has one adapter; the command line writes a user's objects",
		[]string{"internal/kube/...", "internal/cli/...", "dra/...", "lab/policy/dra",
			"test/*"}},
	{"github.com/go-logr/logr",
		"the API server's client library logs through it, and its one user turns that into log/slog",
		[]string{"internal/kube/..."}},
	{"sigs.k8s.io/yaml", "Kubernetes' manifests are read as Kubernetes reads them",
		[]string{"internal/kube/...", "test/*"}},
	{"github.com/NVIDIA/go-nvml",
		"the driver has one adapter, so that deadlines and missing symbols are handled in one place",
		[]string{"internal/nvml/..."}},
	{"github.com/NVIDIA/go-dcgm", "what may crash in DCGM's library is kept to the one program that can do without it",
		[]string{"internal/dcgm/..."}},
	{"google.golang.org/grpc", "gRPC is how the node API travels; what decides does not know that it travels",
		[]string{"api/...", "internal/serve/...", "internal/nodeclient/...", "sharing/node/nodeserver/...",
			"monitor/stream/...", "deviceplugin/...", "internal/kubelet/...", "internal/containerd/...", "cmd/*",
			"test/*"}},
	{"google.golang.org/protobuf", "protobuf is how the node API travels; what decides does not know that it travels",
		[]string{"api/...", "internal/nodeclient/...", "internal/cli/...", "internal/containerd/...",
			"internal/present/...", "sharing/node/nodeserver/...", "monitor/stream/...", "cmd/*", "test/*"}},
	{"github.com/prometheus/client_golang",
		"metrics are made where what they tell is known, and served by a program; its client reads Prometheus",
		[]string{"internal/promread/...", "sharing/node/metrics/...", "internal/serve/servemetrics",
			"monitor/exposition/...", "monitor/service", "sharing/node/agent/...", "cmd/*"}},
	{"github.com/prometheus/client_model", "what is scraped of thousands of series is made without a registry",
		[]string{"monitor/exposition/...", "internal/cli/..."}},
	{"github.com/prometheus/common",
		"an exposition is read by the command line that shows it, and values of Prometheus where they are read",
		[]string{"internal/promread/...", "internal/cli/..."}},
	{"github.com/spf13/cobra", "command lines belong to programs",
		[]string{"internal/cli/...", "internal/helptext", "cmd/*", "sim/cmd/*", "lab/experiment", "test/clitest"}},
	{"github.com/spf13/pflag", "cobra's flags are of this module",
		[]string{"internal/cli/...", "internal/helptext", "test/clitest"}},
	{"go.yaml.in/yaml/v3", "YAML is read where a document has its type, and written where it is shown",
		[]string{"sharing/config/...", "mig/parted/...", "sim/...", "internal/cli/...", "internal/present/...",
			"sharing/translate/...", "cmd/*", "test/*"}},
	{"golang.org/x/sync", "goroutines are owned in groups", []string{"internal/*", "deviceplugin/...", "hooks/*",
		"sharing/node/...", "sharing/backend/...", "monitor/*", "cmd/*", "test/*"}},
	{"golang.org/x/sys", "system calls are behind the adapters", []string{"internal/*", "sim/...", "sharing/doctor/...",
		"cmd/*", "test/*"}},
	{"syscall", "system calls are behind the adapters", []string{"internal/*", "hooks/oci/client", "sim/...", "cmd/*",
		"test/*"}},
	{"github.com/google/go-cmp", "it compares for people to read, and panics on what it cannot compare",
		[]string{"test/*"}},
	{"charm.land/bubbletea/v2", "one adapter gives the pure screen its keys and its size",
		[]string{"internal/cli/status"}},
	{"golang.org/x/term", "terminals belong to programs", []string{"internal/cli/...", "internal/present/...",
		"cmd/*"}},
	{"unsafe", "memory that Go does not watch is touched only where a foreign ABI demands it",
		[]string{"api/...", "internal/*"}},
	{"C", "C is called only where the driver's libraries are", []string{"internal/nvml/...", "internal/dcgm/...",
		"internal/cudacontext"}},
	{"plugin", "code is never loaded at run time but by the adapters", nil},
	{"os/exec", "no external commands but by programs, what tests them, and adapters to programs of the driver; the " +
		"support archive has the journal of systemd",
		[]string{"cmd/*", "sim/...", "internal/nvidiasmi/...", "internal/mps", "internal/cudacontext",
			"internal/cli/doctor/machine", "test/*"}},
	{"os/signal", "signals are handled by programs and by their command lines",
		[]string{"internal/cli/...", "cmd/*", "sim/cmd/*", "test/*"}},
	{"flag", "command lines belong to programs", []string{"cmd/*", "test/*"}},
	{"log", "log/slog is passed in", nil},
	{"log/slog", "log/slog is passed in", []string{"internal/*", "sim/...", "deviceplugin/...", "dra/...", "hooks/*",
		"sharing/backend/...", "sharing/audit/file/...", "sharing/node/...", "mig/manager/...", "monitor/*", "cmd/*",
		"test/*"}},
}

// pure are the packages without I/O, clock or goroutine: they decide, and the same input gives the same
// answer for ever.
var pure = []string{"sharing", "sharing/config/...", "sharing/ledger/...", "sharing/allocator/...",
	"sharing/packing/...", "sharing/defrag/...", "sharing/backend/choice/...",
	"sharing/backend/libkerf/overhead/...",
	"sharing/backend/libkerf/contextsize/...", "sharing/backend/reactive/...", "sharing/backend/libkerf/compute/...",
	"sharing/audit", "sharing/dra/...", "sharing/faults/...", "sharing/usage/...", "sharing/listing/...",
	"sharing/doctor/preset", "sharing/node/place/...", "sharing/node/record/...", "internal/serve/limit",
	"internal/console/model/...", "internal/console/advise/...", "monitor/attribution/...", "mig", "mig/plan/...",
	"mig/modeswitch/...", "mig/parted/..."}

// pureImports is all that a pure package may import of the standard library.
var pureImports = []string{
	"bytes", "cmp", "container/list", "crypto/sha256", "encoding", "encoding/binary", "encoding/hex",
	"encoding/json", "errors", "fmt", "hash/crc32",
	"hash/fnv", "io", "iter", "maps",
	"math", "math/big", "math/bits", "path", "reflect", "regexp", "slices", "sort", "strconv", "strings", "time",
	"unicode", "unicode/utf8",
}

// clock are the functions of package time that a pure package must not call: durations and times are
// values, reading the clock is not.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

func with(list []string, more ...string) []string {
	return append(append([]string{}, list...), more...)
}
