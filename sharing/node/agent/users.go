// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"os/user"
	"strconv"
	"time"

	"github.com/kerf-gpu/kerf/internal/sleep"
)

// usersEvery is how often the file of subordinate UIDs is read.
const usersEvery = 10 * time.Second

// followUsers reads the subordinate UIDs of the machine's users again and again until ctx ends.
func (a *agent) followUsers(ctx context.Context) {
	said := ""
	for sleep.For(ctx, usersEvery) {
		said = a.readUsers(said)
	}
}

// readUsers reads them once, and returns what went wrong. What was said before is not logged again.
func (a *agent) readUsers(said string) string {
	err := a.users.Read(a.opt.SubUIDs, uidOf)
	if err == nil {
		return ""
	}
	if said != err.Error() {
		a.log.Warn("failed to read subordinate UIDs", "file", a.opt.SubUIDs, "error", err.Error())
	}
	return err.Error()
}

// uidOf looks a login name up.
func uidOf(name string) (uint32, bool) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, false
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(uid), err == nil
}
