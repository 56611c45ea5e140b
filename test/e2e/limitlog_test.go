// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
)

// neverUncapped checks the driver's log since the test began: the only limits that it has for the pods' containers are
// the right ones. The log also shows a cap that is removed and restored between two samples.
func (e *testCase) neverUncapped(pods ...*pod) {
	e.Helper()
	gpus := e.node.gpus(e.T)
	told := strings.Split(since(e.node.log("gpusim"), e.logs["gpusim"]), "\n")
	for _, p := range pods {
		for _, s := range containerStatuses(p.get()) {
			if s.State.Running == nil {
				continue
			}
			id := containerID(s)
			caps, lines := e.node.capsOf(e.T, id), 0
			for _, line := range told {
				if !strings.Contains(line, " msg=limit ") || !strings.Contains(line, id) ||
					!strings.Contains(line, "error=<nil>") {
					continue
				}
				lines++
				right := false
				for _, g := range gpus {
					right = right || strings.Contains(line, fmt.Sprintf(" gpu=%d ", g.Minor)) &&
						strings.Contains(line, fmt.Sprintf(" hard=%d ", caps[g.UUID]))
				}
				if !right {
					e.Errorf("%s/%s has the limits %v, and the driver got: %s", p.name, s.Name, caps, line)
				}
			}
			if lines < len(caps) || lines == 0 {
				e.Errorf("%s/%s has the limits %v, and the driver's log has %d lines of them: this check looks at "+
					"nothing", p.name, s.Name, caps, lines)
			}
		}
	}
}
