// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

const introduction = `# Enforcement matrix

This page shows each way to get device memory, and each attack, against each backend. ` + "`make matrix`" + ` writes it.
It runs real agents, ` + "`kerf run --memory 2GiB`" + `, and programs that request 4 GiB, on the simulated driver.
The simulator records the highest usage at any moment. It cannot show what a physical driver does beyond its documentation.

` + "`make matrix`" + ` fails in these cases:

- A program is over its cap, and Kerf shows the cap as enforced.
- Level ` + "`driver`" + ` lets one byte pass that its limit counts.
- MPS or ` + "`libkerf`" + ` let memory pass that they count.

| result | meaning |
|---|---|
| held | never above the cap: the program was refused more |
| held, except for a late context | above the cap by at most one context, which counts after the next sample |
| ended: over its cap | above the cap, found by the reactive backend, and killed (` + "`onOverCap: kill`" + `) |
| ended: without its MPS | ran without the limit of MPS, found by the reactive backend, and killed with any ` +
	"`onOverCap`" + ` |
| over, and shown | above the cap and not killed; a warning names the grant or the process, or the level shows it |
| over by less than is reported | above the cap by at most 32 MiB and 8 MiB per process, which the driver itself may use |
| over for a moment | above the cap for less than a second, and back before the second sample |
| refused | it got nothing |
| not in this driver | the driver of that version lacks the functions, or lacks them for MPS clients |

A number in brackets is the highest amount above the cap. Programs take 64 MiB at a time, as fast as they can.
So they have all their memory before the first sample. Drivers: `

// limits is what applies when a cap changes while programs run, and what separate tests show.
const limits = `
## A cap that changes

` + "`kerf resize GRANT --memory SIZE`" +
	` changes the cap of running programs. No cap can be below the usage of its programs.

| backend | effective |
|---|---|
| driver | at once: the agent sets the limit of the cgroup and reads it back |
| libkerf | at once: the library reads the limit at each allocation |
| reactive | at the next sample |
| mps | for programs that become clients afterwards |

MPS gives a client its limit when it connects, and has no call that changes it. A larger cap is accounted for at once.
Running programs keep their smaller limit. The command and ` + "`kerf status`" + ` name their PIDs; restart them.
A smaller cap is accepted while no program of the grant is a client of MPS. Otherwise the command is rejected and names the PIDs.

## Memory that changes hands

A program can pass memory to another one by an IPC handle, by a shared pool, or by a file handle of physical memory
(` + "`cuMemExportToShareableHandle`" +
	`). The memory counts to its maker. It lives until its maker, all importers and all files have released it.
So a maker can free it or end, and the memory still exists:

| backend | before its maker releases it | afterwards |
|---|---|---|
| driver | counts to the maker's limit | The same, until the last user releases it. A grant without a process that is still charged keeps its amount, and a warning names it. |
| libkerf | counts to the maker | NVML lists it for its only user. It counts to that user's cap from the next sample on. |
| mps, reactive | usage of the maker | usage of its only user, which the reactive backend adds up |

Memory of several importers, or of a file alone, is unattributed after its maker has released it (see below).
At level ` + "`driver`" +
	` it still counts to the cap of its maker. What a driver counts for which process is from NVIDIA's open kernel modules:

- A charge ends with the last reference to the memory.
- A process has the memory that it made, and the memory that only it references. That NVML adds both is inferred.

Shown by ` + "`test/machine.TestMemoryHandedToAnotherGrant`" + `, ` + "`sharing/node.TestUnlistedMemoryIsTold`" + `, ` +
	"`sim/model.TestImportedMemoryLivesOn`" + `, ` + "`sim/model.TestFileHoldsMemory`" + `,
and the rows ` + "`ipc`" + `, ` + "`import`" + `, ` + "`pool-import`" + ` and ` + "`file`" +
	` above. In these rows a helper of the program makes the memory and frees it.

## Memory of ended processes

A driver frees the memory of a process when the last descriptor of its device files closes. A forked child has these descriptors, too.
So memory outlives a killed trainer while its data loaders run. The driver's list still names the trainer's PID.

The agent charges this memory to the trainer's grant. A process that gets the PID later is another process.
The agent compares start times, and checks whether a process has the GPU's device file open. It signals no process that has not.

If a process ended before the agent saw it on the list, the agent infers the grant from the processes that can keep the memory.
A warning then names the grant and these processes. The agent ends nothing for inferred memory,
because a process outside of all grants could keep it (row ` + "`orphans in turn`" + `). Shown by
` + "`test/machine.TestOrphanedMemoryIsCharged`, `test/machine.TestInnocentWithAReusedPIDLives`, " +
	"`sharing/node.TestMemoryOfEndedProcessesIsCharged`," + `
` + "`sharing/node.TestAnInnocentHasTheNumber`, `sharing/node.TestBothUseTheGPU`, " +
	"`sharing/node.TestAfterARestartTheListingStartsAnew`" + ` and the rows
` + "`orphaned memory`, `orphans in turn` and `reused PID`" + ` above.

## Unattributed memory

Unattributed memory is in use on a GPU, and NVIDIA's driver lists it for no process. Managed memory (` +
	"`cudaMallocManaged`" + `) is such memory.
So is memory that a program exported and released while a file or several processes use it. Of the backends only ` +
	"`libkerf`" + ` counts managed memory:
it charges all of it when a program allocates it, wherever its pages are.

` + "`kerf status`" + ` and an event of the node (` + "`UnattributedGPUMemory`" +
	`) report the amount, its possible causes and the grants on the GPU.
The agent ends no process for it, because it cannot know its owner. What libkerf has charged is left out.
A driver also needs memory for itself. Kerf expects up to 32 MiB per GPU and 8 MiB per process, for at most 64 processes, and reports only more than that.
These amounts are estimates until they are measured on hardware.
` + "`managedMemory: reject`" +
	` in a pool makes libkerf reject managed memory. Under the other backends it has no effect, and the level's reason says so.

That managed memory is in no process's number was [seen on an H200](../../test/kit/reports/2026-11-26-h200.md) with driver 580.159.04.
Shown by ` + "`sim/lib/libtest.TestDaemonListsNoManagedMemory`" + `, ` +
	"`sharing/node.TestManagedMemoryOfLibkerfIsAttributed`" + `, ` + "`sharing/node.TestUnlistedMemoryIsTold`" + `,
` + "`test/machine.TestMemoryOfTheDriverPerContext`, `internal/libkerf/lib/libtest.TestRejectsManagedMemory`" +
	` and the rows ` + "`managed`" + ` and ` + "`batch`" + `.

## Attacks that take no memory, or need a cluster

| attack of a tenant | result | shown by |
|---|---|---|
| an image or environment with ` + "`NVIDIA_VISIBLE_DEVICES=all`" +
	`, without a request | no device in the container; a node whose runtime would obey is not ready, and says why | ` +
	"`test/e2e.TestForgedPodsGetNoGPU`, `test/e2e.TestDefaultRuntimeThatBelieves`" + ` |
| the same with a request, to reach another GPU | it sees only its GPU | ` + "`test/e2e.TestForgedPodsGetNoMore`" +
	`, and the row of another's GPU above |
| host paths to device files, CDI files, kubelet's or Kerf's own directories | Admission rejects a pod with a share. For another pod it warns, and the agent of a Kerf node rejects the container. After both, an unmanaged process is reported, and ended if the pool says so | ` + "`test/e2e.TestWaysPastAreRefused`, `test/e2e.TestOthersHostPaths`, `test/e2e.TestStranger`, `test/machine.TestStrangersByPolicy`" + ` |
| ` + "`NVIDIA_GPU_MEMORY_LIMIT` or `NVIDIA_GPU_MEMORY_REQUEST`" +
	` in the container, on a node whose CDI specs have NVIDIA's hook ` + "`apply-cuda-memory-limits`" +
	` | the cap stays: Kerf's specs do not have the hook, and Kerf clears the variables. If another spec brings the hook, the container does not start | ` + "`test/machine.TestForeignLimitHook`, `test/machine.TestToolkitSpec`, `hooks/nri.TestStartReadsBack`, `internal/cdi.TestDeriveGolden`" + ` |
| forged annotations, labels, CDI names, scheduler and node names, Kerf's own environment | refused, or without effect | ` + "`test/e2e.TestForgedPodsGetNoMore`, `test/e2e.TestPlacementIsTheSchedulers`, `test/e2e.TestOtherSchedulers`, `test/e2e.TestPreloadStaysInThePod`" + ` |
| a PID that another process has by the time of the kill | no process is killed, and Kerf counts that | ` +
	"`sharing/node/guard.TestCheckBeforeKill`" + ` |
| a debug container next to one with a grant | no GPU; a privileged one is refused | ` +
	"`test/e2e.TestDebugContainer`" + ` |
| a pod beyond the Pod Security baseline that requests a share: privileged, with more capabilities, in a namespace of the host | refused, unless the profile allows it | ` + "`test/e2e.TestPrivilegedProfiles`, `test/e2e.TestPoliciesRefuse`" + ` |
| a client of MPS that dies, quits its daemon or is another user's | it affects only its trust domain | ` +
	"`test/machine.TestMPSTwoTrustDomains`, `test/machine.TestMPSFaultsStayInTheirDomain`, " +
	"`test/machine.TestMPSSharedByThePool`, `test/machine.TestMPSHolds`, `test/e2e.TestMPSOnOlderDriver`" +
	`, and the rows of MPS above |
| device files of another's MIG instance, or of MIG's configuration | they are not there | ` +
	"`test/e2e.TestMIG`, `test/machine.TestRunMIG`" + ` |
| NVML's calls (those of ` + "`nvidia-smi -pl`, `-c`, `-mig`" +
	`) to change power limit, compute mode, MIG mode, or memory limit, as root in the container | refused: the driver requires CAP_SYS_ADMIN | ` + "`test/machine.TestTamper`, `test/e2e.TestTamper`" + `, on a machine and in a pod |
| writes to what Kerf mounts into the container | read-only, except the library's counters of the grant | ` +
	"`test/e2e.TestOlderDriver`" + `, and the rows of the counters above |
| ten thousand names of pods, over a day | as many series as there are grants | ` +
	"`monitor/exposition.TestSeriesAreAsManyAsGrantsLive`, `monitor/collect.TestADayOfPods`" + ` |
| requests without a token to the ports of agent and monitor | metrics and health alone, and nothing that changes anything | ` + "`sharing/node/agent.TestHTTP`" + ` |
| another program that runs in the container (` + "`kubectl exec`" + `) | under the same cap | ` +
	"`test/e2e.TestOlderDriver`" + ` |
| a config with errors, or a deleted config, by a role that is too broad | the last known good config stays applied; its hash and the errors are shown | ` + "`sharing/node/settings.TestFollowConfig`, `sharing/node/settings.TestFallback`" + ` |
| a stolen token of another node, to write a node's report | refused at admission | ` +
	"`test/e2e.TestGPUNode`, `test/e2e.TestPolicies`" + ` |

## Attacks outside of the matrix

| attack | reason | what Kerf promises |
|---|---|---|
| memory contents of the last owner, also after SIGKILL, in a new MIG instance, and among MPS clients | Memory of the simulator has no contents. Only a physical GPU can show it | Kerf clears nothing and promises nothing ([promises.md](../design/promises.md)) |
| an endless kernel, or a thousand tiny launches, next to a neighbor | It takes time, and no memory. ` +
	"`make figures`" +
	` measures what the neighbor keeps on the simulated driver | [compute shares](../benchmarks/compute-shares.md); Kerf promises compute isolation only for MIG instances |
`
