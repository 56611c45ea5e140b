// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

const introduction = `# What holds

Each way to get device memory, and each attack, against each backend. ` + "`make matrix`" + ` writes this page: it runs real agents,
` + "`kerf run --memory 2GiB`" + ` and programs that want 4 GiB on the simulated driver, which counts the most that was held at any
moment. It fails where a program is over its cap while Kerf shows it as held, where level ` + "`driver`" + ` lets one byte too much pass that its limit
counts, and where MPS or ` + "`libkerf`" + ` do not hold what is theirs to hold. What a real driver
does beyond its documentation is not seen here.

| word | means |
|---|---|
| held | never above the cap, at any moment: what was too much was refused to the program |
| held, but for a context | above the cap by no more than the context that the driver made for the process, which is counted when it was seen; the agent says so |
| ended: over its cap | above the cap, found by the watch, and killed (` + "`overCap: kill`" + `) |
| ended: beside its MPS | ran without the limit of MPS, found by the watch, and killed, whatever ` + "`overCap`" + ` says |
| over, and shown | above the cap, not killed; a warning names the grant or the process, or its level shows that nothing holds it |
| over by less than is reported | above the cap with memory that the backend does not limit, by at most 32 MiB and 8 MiB for each process. The driver itself may hold as much outside its lists, so the agent reports nothing |
| over for a moment | above the cap for less than a second, and back or ended by itself before the watch had looked twice |
| refused | it got nothing |
| not in this driver | the simulated driver of that version does not have the functions, or not for clients of MPS |

How far above the cap it came, before it was refused or killed, stands in brackets where it is not 0. The programs take 64 MiB at a time,
as fast as they can, so that all that they want is theirs before any watch can look. Drivers: `

// limits is what holds when a cap changes while programs run, which tests of their own show.
const limits = `
## A cap that changes

` + "`kerf limit GRANT SIZE`" + ` changes the cap of programs that run. None is made smaller than what its programs hold.

| backend | in force |
|---|---|
| driver | at once: the driver's limit of the cgroup is set, and read back |
| libkerf | at once: the limit lies on a page that the library reads at each allocation |
| reactive | at the watch's next look |
| mps | for programs that become clients afterwards |

MPS gives a client its limit when it connects, and has no call that changes it. A larger cap is taken, and booked: programs that run keep the
smaller one that they were started with. The command and ` + "`kerf status`" + ` name their pids; start these anew. A smaller cap is
taken while none of the grant's programs is a client of MPS. Else it is refused, and the message names the pids: end them, or leave the cap as it is.

## Memory that changes hands

A program can hand memory to another one, of its own container or of another: by an IPC handle, by a file that stands for physical memory
(` + "`cuMemExportToShareableHandle`" + `), by a shared pool. Who makes it pays, whoever uses it. It lives until its maker, everybody who
imported it, and every file that stands for it have let it go, so a maker can free it, or end, and it is still there:

| backend | while its maker has it | when its maker has let it go |
|---|---|---|
| driver | the maker's limit counts it | the same, until the last holder lets it go: the maker gets nothing in its place. A grant without a process that still is charged stays booked, and a warning names it |
| libkerf | the maker counts it | who alone holds it is shown with it by NVML: it counts against the holder's cap from when the agent has seen it, and what is over is found by the watch |
| mps, reactive | the maker's use | the use of who alone holds it, which the watch sums over the grant |

What several hold, or a file alone, and its maker has let go, is unattributed memory (next section). At level ` + "`driver`" + ` it is
still held to its maker's cap. What a driver counts for whom is from NVIDIA's open kernel modules (a charge ends with the last reference to the memory;
a process's own are what it alone holds and what it made); that NVML adds these two up is inferred. Shown by
` + "`test/machine.TestMemoryHandedToAnotherGrant`" + `, ` + "`sharing/node.TestUnlistedMemoryIsTold`" + `, ` + "`sim/model.TestImportedMemoryLivesOn`" + `, ` + "`sim/model.TestFileHoldsMemory`" + `, and
the rows ` + "`ipc`" + `, ` + "`import`" + `, ` + "`pool-import`" + ` and ` + "`file`" + ` above, in which a program's own helper makes the memory and frees it.

## Memory of ended processes

A driver frees the memory of a process when the last descriptor of its device files closes. A forked child has these descriptors
too. So memory outlives a killed trainer while its data loaders run, and the driver's list still names the trainer's PID.

The agent charges this memory to the trainer's grant, as a part of its use. A process that gets the PID later is another process:
the agent compares start times, and it asks whether a process has the GPU's device file open. It signals no process that has not.

If a process ended before the agent saw it on the list, the agent infers the grant from the processes that can keep the memory.
A warning then names the grant and these processes. The agent ends nothing for inferred memory, because another process outside of all
grants could keep it (row ` + "`orphans in turn`" + `). Shown by
` + "`test/machine.TestOrphanedMemoryIsCharged`, `test/machine.TestInnocentWithAReusedPIDLives`, `sharing/node.TestMemoryOfEndedProcessesIsCharged`," + `
` + "`sharing/node.TestAnInnocentHasTheNumber`, `sharing/node.TestBothUseTheGPU`, `sharing/node.TestAfterARestartTheListingStartsAnew`" + ` and the rows
` + "`orphaned memory`, `orphans in turn` and `reused PID`" + ` above.

## Unattributed memory

Unattributed memory is in use on a GPU, and NVIDIA's driver lists it with no process. Managed memory (` + "`cudaMallocManaged`" + `) is such memory, and so is
memory that a program exported and released while a file or several processes hold it. Of the backends only ` + "`libkerf`" + ` counts managed memory:
it charges all of it when a program allocates it, wherever its pages are.

` + "`kerf status`" + ` and an event of the node (` + "`GPUMemoryUnlisted`" + `) report how much there is, its possible causes and the grants on the GPU.
The agent ends no process for it, because it cannot know whose it is. What libkerf has charged is left out.
A driver also needs memory for itself. Kerf expects up to 32 MiB per GPU and 8 MiB per process, for at most 64 processes, and reports only more than that.
These amounts are estimates until they are measured on hardware.
` + "`managedMemory: reject`" + ` in a pool makes libkerf reject managed memory. Under the other backends it has no effect, and the level's reason says so.

That managed memory is in no process's number is from NVIDIA's open kernel modules and from reports of users; no real GPU was at hand.
Shown by ` + "`sim/lib/libtest.TestDaemonListsNoManagedMemory`" + `, ` + "`sharing/node.TestManagedMemoryOfLibkerfIsAttributed`" + `, ` + "`sharing/node.TestUnlistedMemoryIsTold`" + `,
` + "`test/machine.TestMemoryOfTheDriverPerContext`, `internal/libkerf/lib/libtest.TestRejectsManagedMemory`" + ` and the rows ` + "`managed`" + ` and ` + "`batch`" + `.

## Attacks that take no memory, or need a cluster

| what a tenant tries | what comes of it | shown by |
|---|---|---|
| an image or environment with ` + "`NVIDIA_VISIBLE_DEVICES=all`" + `, without a request | no device in the container; a node whose runtime would obey is not ready, and says why | ` + "`test/e2e.TestForgedPodsGetNoGPU`, `test/e2e.TestDefaultRuntimeThatBelieves`" + ` |
| the same with a request, to reach another GPU | it sees its own alone | ` + "`test/e2e.TestForgedPodsGetNoMore`" + `, and the row of another's GPU above |
| host paths to device files, CDI files, kubelet's or Kerf's own directories | refused at admission in a pod with a share; in another pod admission warns, and the agent refuses the container on its node. Past both, a process that uses a GPU is reported as a stranger, and ended where the pool says so | ` + "`test/e2e.TestWaysPastAreRefused`, `test/e2e.TestOthersHostPaths`, `test/e2e.TestStranger`, `test/machine.TestStrangersByPolicy`" + ` |
| ` + "`NVIDIA_GPU_MEMORY_LIMIT` or `NVIDIA_GPU_MEMORY_REQUEST`" + ` in the container, on a node whose CDI specs have NVIDIA's hook ` + "`apply-cuda-memory-limits`" + ` | the cap stays: Kerf's specs do not have the hook, and Kerf clears the variables. If another spec brings the hook, the container does not start | ` + "`test/machine.TestForeignLimitHook`, `test/machine.TestToolkitSpec`, `hooks/nri.TestStartReadsBack`, `internal/cdi.TestDeriveGolden`" + ` |
| forged annotations, labels, CDI names, scheduler and node names, Kerf's own environment | refused, or without effect | ` + "`test/e2e.TestForgedPodsGetNoMore`, `test/e2e.TestPlacementIsTheSchedulers`, `test/e2e.TestOtherSchedulers`, `test/e2e.TestPreloadStaysInThePod`" + ` |
| a pid that another process has by the time it would be killed | nobody is killed, and that is counted | ` + "`sharing/node/guard.TestCheckBeforeKill`" + ` |
| a debug container beside one with a grant | no GPU; a privileged one is refused | ` + "`test/e2e.TestDebugContainer`" + ` |
| a pod beyond the Pod Security baseline that asks for a share: privileged, with more capabilities, in a namespace of the host | refused, unless the profile allows it | ` + "`test/e2e.TestPrivilegedProfiles`, `test/e2e.TestPoliciesRefuse`" + ` |
| a client of MPS that dies, quits its daemon or is another user's | it reaches no further than its trust domain, and the others of that domain are named in the promises | ` + "`test/machine.TestMPSTwoTrustDomains`, `test/machine.TestMPSFaultsStayInTheirDomain`, `test/machine.TestMPSSharedByThePool`, `test/machine.TestMPSHolds`, `test/e2e.TestMPSOnOlderDriver`" + `, and the rows of MPS above |
| device files of another's MIG instance, or of MIG's configuration | they are not there | ` + "`test/e2e.TestMIG`, `test/machine.TestRunMIG`" + ` |
| NVML's calls (those of ` + "`nvidia-smi -pl`, `-c`, `-mig`" + `) to change the power limit, compute mode, MIG mode, or its own memory limit, as root in the container | refused: the driver asks for CAP_SYS_ADMIN | ` + "`test/machine.TestTamper`, `test/e2e.TestTamper`" + `, on a machine and in a pod |
| writes to what Kerf mounts into the container | read-only, but for the library's counters, which no enforcement reads | ` + "`test/e2e.TestOlderDriver`" + `, and the rows of the counters above |
| ten thousand names of pods, over a day | as many series as grants live | ` + "`monitor/exposition.TestSeriesAreAsManyAsGrantsLive`, `monitor/collect.TestADayOfPods`" + ` |
| requests without a token to the ports of agent and monitor | metrics and health alone, and nothing that changes anything | ` + "`sharing/node/agent.TestHTTP`" + ` |
| a program that is run in the container beside the one that it was made for (` + "`kubectl exec`" + `) | under the same cap | ` + "`test/e2e.TestOlderDriver`" + ` |
| the rules of sharing edited to be wrong, or deleted, by a role that is too broad | the last good ones stay in force, and their hash and the mistakes are shown | ` + "`sharing/node/settings.TestFollowConfig`, `sharing/node/settings.TestFallback`" + ` |
| a stolen token of another node, to write a node's report | refused at admission | ` + "`test/e2e.TestGPUNode`, `test/e2e.TestPolicies`" + ` |

## Attacks that the matrix does not have

| what | why | what is said of it |
|---|---|---|
| memory that holds what its last owner wrote, also after SIGKILL, in an instance of MIG that was made anew, and beside clients of MPS | the simulated driver's memory never has what another process wrote: a real GPU alone can show it, and none was at hand | Kerf clears nothing, and promises nothing of it ([promises.md](../design/promises.md)) |
| a kernel that does not end, or a thousand tiny launches, beside a neighbour | it takes time, and no memory: ` + "`make figures`" + ` measures what the neighbour keeps, on the simulated driver, whose kernels take turns as it decides | [compute shares](../benchmarks/compute-shares.md); compute isolation is promised of MIG instances alone |
`
