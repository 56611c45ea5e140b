// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package entry

// step is what is done next, or how it ended. The order of the first six is the order of a successful entry.
type step uint8

const (
	freeze   step = iota // mark and freeze the empty group
	move                 // move the process into it
	stop                 // wait until all of its threads have stopped
	check                // look at what it has open
	thaw                 // let it continue
	unmark               // forget where it came from
	giveBack             // return it to where it came from
	letGo                // thaw a group that it could not be taken out of

	entered  // it is in the group and runs
	rejected // it is where it came from, and runs
	kept     // it was rejected, and is in the group all the same, and runs
)

// next tells what follows a step. A process that has been moved never stays frozen at the end.
func next(done step, ok bool) step {
	switch done {
	case freeze:
		if !ok {
			return rejected // nothing was moved
		}
	case move, stop, check, thaw:
		if !ok {
			return giveBack // also where the move may have been half of one
		}
	case unmark:
		return entered // it runs already; a mark that stays is removed at the next start
	case giveBack:
		if !ok {
			return letGo
		}
		return rejected
	case letGo:
		return kept
	case entered, rejected, kept:
		return done
	}
	return done + 1
}

// final reports whether nothing is left to do.
func (s step) final() bool { return s >= entered }

func (s step) String() string {
	return [...]string{"freeze", "move", "stop", "check", "thaw", "unmark", "give-back", "let-go", "entered",
		"rejected", "kept"}[s]
}

// remedy is what a new agent does with a group that an earlier one left.
type remedy uint8

const (
	leave  remedy = iota // it is no unfinished entry
	finish               // the process was checked and runs: remove the mark
	undo                 // return the process to where it came from
)

// remedyFor decides from the two facts that last. One is the mark, which is set before the group is frozen and removed
// after it is thawed. The other is whether the group is frozen. A frozen group without a mark was frozen by others, who
// also thaw it.
func remedyFor(marked, freezing bool) remedy {
	switch {
	case !marked:
		return leave
	case freezing:
		return undo
	}
	return finish
}
