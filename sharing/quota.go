// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"math"
)

// UserQuota is the most that one user may be granted on a node at a time. 0 means no limit.
type UserQuota struct {
	Grants int   `yaml:"grants"`
	Memory Bytes `yaml:"memory"`
}

// UserUse is what one user is granted. Memory is the guaranteed memory of all grants, on all GPUs.
type UserUse struct {
	Grants int
	Memory Bytes
}

// With is u with one more grant of so much memory. It does not wrap.
func (u UserUse) With(memory Bytes) UserUse {
	sum, err := u.Memory.Add(memory)
	if err != nil {
		sum = math.MaxUint64
	}
	return UserUse{Grants: u.Grants + 1, Memory: sum}
}

// Check returns nil if a user who has used may get one more grant of so much memory. Else the error states the amounts
// requested, used and allowed, and wraps ErrExhausted.
func (q UserQuota) Check(uid uint32, used UserUse, memory Bytes) error {
	after := used.With(memory)
	switch {
	case q.Grants > 0 && after.Grants > q.Grants:
		return fmt.Errorf("user quota of uid %d: 1 grant requested, %d used, %d allowed (userQuota.grants); end a "+
			"grant first: %w",
			uid, used.Grants, q.Grants, ErrExhausted)
	case q.Memory > 0 && after.Memory > q.Memory:
		return fmt.Errorf("user quota of uid %d: %s requested, %s used, %s allowed (userQuota.memory); request less "+
			"or end a grant first: %w",
			uid, memory, used.Memory, q.Memory, ErrExhausted)
	}
	return nil
}
