// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package ledger

// ActivateNow takes an attachment through all its states up to Active.
var ActivateNow = activate

func activate(l *Ledger, id GrantID, a Attachment) error {
	if a.ContainerID != "" {
		a.State = Injected
		if err := l.Assign(id, a); err != nil {
			return err
		}
	}
	if err := l.Activate(id, a.ContainerID, a.Cgroup, a.Inode); err != nil {
		return err
	}
	err := l.Activated(id)
	if err != nil {
		l.Fail(id)
	}
	return err
}
