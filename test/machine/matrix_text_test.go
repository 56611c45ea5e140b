// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

const introduction = `# What holds

Each way to get device memory, and each attack, against each backend. ` + "`make matrix`" + ` writes this page: it runs real agents,
` + "`kerf run --memory 2GiB`" + ` and programs that want 4 GiB on the simulated driver, which counts the most that was held at any
moment. It fails where a program is over its cap while Kerf shows it as held. What a real driver
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
| not charged | above the cap, by memory that the driver's limit is documented not to count |
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

## Attacks that the matrix does not have

| what | why | what is said of it |
|---|---|---|
| memory that holds what its last owner wrote, also after SIGKILL, in an instance of MIG that was made anew, and beside clients of MPS | the simulated driver's memory has no contents: a real GPU alone can show it, and none was at hand | Kerf clears nothing, and promises nothing of it ([promises.md](promises.md)) |
| a kernel that does not end, or a thousand tiny launches, beside a neighbour | it takes time, and no memory: ` + "`make figures`" + ` measures what the neighbour keeps, on the simulated driver, whose kernels take turns as it decides | [measured.md](measured.md); compute isolation is promised of MIG instances alone |
`
