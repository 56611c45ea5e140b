// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestUserQuota(t *testing.T) {
	for name, c := range map[string]struct {
		quota  UserQuota
		used   UserUse
		memory Bytes
		says   []string
	}{
		"no quota":    {UserQuota{}, UserUse{1 << 20, math.MaxUint64}, math.MaxUint64, nil},
		"first grant": {UserQuota{1, 10 * GiB}, UserUse{}, 10 * GiB, nil},
		"one grant more": {UserQuota{2, 0}, UserUse{2, 0}, GiB,
			[]string{"uid 7", "1 grant requested, 2 used, 2 allowed", "userQuota.grants"}},
		"one byte more": {UserQuota{0, 10 * GiB}, UserUse{1, 4 * GiB}, 6*GiB + 1,
			[]string{"uid 7", "6.0GiB requested, 4GiB used, 10GiB allowed", "userQuota.memory"}},
		"all that is left":  {UserQuota{3, 10 * GiB}, UserUse{2, 4 * GiB}, 6 * GiB, nil},
		"more than a quota": {UserQuota{0, GiB}, UserUse{}, math.MaxUint64, []string{"0B used, 1GiB allowed"}},
		"a sum that wraps":  {UserQuota{0, GiB}, UserUse{1, GiB}, math.MaxUint64, []string{"1GiB used"}},
		"a lowered quota":   {UserQuota{1, GiB}, UserUse{3, 9 * GiB}, 0, []string{"3 used, 1 allowed"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.quota.Check(7, c.used, c.memory)
			if (err != nil) != (c.says != nil) || err != nil && !errors.Is(err, ErrExhausted) {
				t.Errorf("%v", err)
			}
			for _, part := range c.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v does not say %q", err, part)
				}
			}
		})
	}
}

// Whatever users request and end, none has more than the quota, and a request is rejected only if it would.
func TestUserQuotaIsNeverExceeded(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		q := UserQuota{Grants: rnd.IntN(5), Memory: Bytes(rnd.IntN(20))}
		grants := map[uint32][]Bytes{} // the naive model: each user's grants
		for range 500 {
			uid := uint32(rnd.IntN(3))
			if have := grants[uid]; len(have) > 0 && rnd.IntN(3) == 0 {
				i := rnd.IntN(len(have))
				grants[uid] = append(have[:i:i], have[i+1:]...)
				continue
			}
			memory := Bytes(rnd.IntN(12))
			used, sum := UserUse{}, memory
			for _, m := range grants[uid] {
				used, sum = used.With(m), sum+m
			}
			fits := (q.Grants == 0 || len(grants[uid]) < q.Grants) && (q.Memory == 0 || sum <= q.Memory)
			if err := q.Check(uid, used, memory); (err == nil) != fits {
				t.Fatalf("seed %d: quota %+v, used %+v, requested %d: %v", seed, q, used, memory, err)
			}
			if fits {
				grants[uid] = append(grants[uid], memory)
			}
		}
	}
}
