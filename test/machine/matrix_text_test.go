// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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

## Attacks that take no memory, or need a cluster

| what a tenant tries | what comes of it | shown by |
|---|---|---|
| an image or environment with ` + "`NVIDIA_VISIBLE_DEVICES=all`" + `, without a request | no device in the container; a node whose runtime would obey is not ready, and says why | ` + "`TestForgedPodsGetNoGPU`, `TestDefaultRuntimeThatBelieves`" + ` |
| the same with a request, to reach another GPU | it sees its own alone | ` + "`TestForgedPodsGetNoMore`" + `, and the row of another's GPU above |
| host paths to device files, CDI files, kubelet's or Kerf's own directories | refused at admission; past it a process that uses a GPU is reported as a stranger, and ended where the pool says so | ` + "`TestWaysPastAreRefused`, `TestStranger`, `TestStrangersByPolicy`" + ` |
| forged annotations, labels, CDI names, scheduler and node names, Kerf's own environment | refused, or without effect | ` + "`TestForgedPodsGetNoMore`, `TestPlacementIsTheSchedulers`, `TestOtherSchedulers`, `TestPreloadStaysInThePod`" + ` |
| a pid that another process has by the time it would be killed | nobody is killed, and that is counted | ` + "`TestGuardLooksAgainBeforeItKills`" + ` |
| a debug container beside one with a grant | no GPU; a privileged one is refused | ` + "`TestDebugContainer`" + ` |
| a privileged pod, or one with SYS_ADMIN, that asks for a share | refused, unless the profile allows it | ` + "`TestPrivilegedProfiles`, `TestPoliciesRefuse`" + ` |
| a client of MPS that dies, quits its daemon or is another user's | it reaches no further than its trust domain, and the others of that domain are named in the promises | ` + "`TestMPSTwoTrustDomains`, `TestMPSFaultsStayInTheirDomain`, `TestMPSSharedByThePool`, `TestMPSHolds`, `TestMPSOnOlderDriver`" + `, and the rows of MPS above |
| device files of another's MIG instance, or of MIG's configuration | they are not there | ` + "`TestMIG`, `TestRunMIG`" + ` |
| NVML's calls (those of ` + "`nvidia-smi -pl`, `-c`, `-mig`" + `) to change the power limit, compute mode, MIG mode, or its own memory limit, as root in the container | refused: the driver asks for CAP_SYS_ADMIN | ` + "`TestTamper`" + `, on a machine and in a pod |
| writes to what Kerf mounts into the container | read-only, but for the library's counters, which no enforcement reads | ` + "`TestOlderDriver`" + `, and the rows of the counters above |
| ten thousand names of pods, over a day | as many series as grants live | ` + "`TestSeriesAreAsManyAsGrantsLive`, `TestADayOfPods`" + ` |
| requests without a token to the ports of agent and monitor | metrics and health alone, and nothing that changes anything | ` + "`TestHTTP`" + ` |
| a program that is run in the container beside the one that it was made for (` + "`kubectl exec`" + `) | under the same cap | ` + "`TestOlderDriver`" + ` |
| the rules of sharing edited to be wrong, or deleted, by a role that is too broad | the last good ones stay in force, and their hash and the mistakes are shown | ` + "`TestFollowConfig`, `TestFallback`" + ` |
| a stolen token of another node, to write a node's report | refused at admission | ` + "`TestGPUNode`, `TestPolicies`" + ` |

## Attacks that the matrix does not have

| what | why | what is said of it |
|---|---|---|
| memory that holds what its last owner wrote, also after SIGKILL, in an instance of MIG that was made anew, and beside clients of MPS | the simulated driver's memory has no contents: a real GPU alone can show it, and none was at hand | Kerf clears nothing, and promises nothing of it ([promises.md](promises.md)) |
| a kernel that does not end, or a thousand tiny launches, beside a neighbour | it takes time, and no memory: ` + "`make figures`" + ` measures what the neighbour keeps, on the simulated driver, whose kernels take turns as it decides | [measured.md](measured.md); compute isolation is promised of MIG instances alone |
`

// A test that the page names is there.
func TestTextNamesTests(t *testing.T) {
	named := regexp.MustCompile(`\bTest[A-Z]\w*`)
	there := map[string]bool{}
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == ".cache" || d.Name() == "bin"):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, f := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			there[f[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range named.FindAllString(introduction+limits, -1) {
		n++
		if !there[name] {
			t.Errorf("the page names %s, and there is no such test", name)
		}
	}
	if n < 20 {
		t.Errorf("%d names of tests found, want at least 20", n)
	}
}
