// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"strings"
)

// cell is one cell of the matrix.
type cell struct {
	verdict verdict
	over    string
}

// document is docs/enforcement.md.
func document(all []backend, families, attacks []attempt, got []map[string]cell) string {
	var b strings.Builder
	b.WriteString(`# What holds

Each way to get device memory, and each attack, against each backend. ` + "`make matrix`" + ` writes this page: it runs real agents,
` + "`kerf run --memory 2GiB`" + ` and programs that want 4 GiB on the simulated driver, whose own account of each process is
compared with the cap. It fails where a program is over its cap while Kerf shows it as held. What a real driver
does beyond its documentation is not seen here.

| word | means |
|---|---|
| held | never above the cap, at any look |
| held, but for a context | above the cap by no more than the context that the driver made for the process, which is counted when it was seen; the agent says so |
| ended after the fact | above the cap, found by the watch, and killed (` + "`overCap: kill`" + `) |
| over, and shown | above the cap, not killed; a warning names the grant, or its level shows that nothing holds it |
| refused | it got nothing |
| not charged | above the cap, by memory that the driver's limit is documented not to count |
| not in this driver | the simulated driver of that version does not have the functions, or not for clients of MPS |

How far above the cap stands in brackets where it is not 0. Drivers: `)
	for i, be := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "`%s` (level %s) on %s", be.name, be.level, be.driver)
	}
	b.WriteString(". Behind all but the first the pool also watches, with `overCap: kill`.\n\n## Families of memory\n\n")
	table(&b, all, families, got)
	b.WriteString("\n## Attacks\n\n")
	table(&b, all, attacks, got)
	b.WriteString("\n")
	for _, a := range append(append([]attempt{}, families...), attacks...) {
		for _, be := range all {
			if why := a.excuse[be.name]; why != "" {
				fmt.Fprintf(&b, "- %s, `%s`: %s.\n", a.name, be.name, why)
			}
		}
	}
	b.WriteString(limits)
	return b.String()
}

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

func table(b *strings.Builder, all []backend, rows []attempt, got []map[string]cell) {
	b.WriteString("| what |")
	for _, be := range all {
		b.WriteString(" " + be.name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(all)) + "\n")
	for _, a := range rows {
		b.WriteString("| " + a.what + " |")
		for i := range all {
			c := got[i][a.name]
			text := string(c.verdict)
			if c.over != "0" && c.verdict != heldLate {
				text += " (" + c.over + ")"
			}
			b.WriteString(" " + text + " |")
		}
		b.WriteString("\n")
	}
}
