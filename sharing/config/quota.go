// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strconv"

	"github.com/kerf-gpu/kerf/sharing"
)

// MaxQuotaGrants bounds UserQuota.Grants.
const MaxQuotaGrants = 1_000_000

func parseQuotaGrants(field, s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > MaxQuotaGrants {
		return 0, sharing.Invalid(field, s, "write a number from 1 to "+strconv.Itoa(MaxQuotaGrants)+", or leave it out", "is not a number of grants")
	}
	return n, nil
}

// quotaField is what one user may be granted on a node.
func quotaField(to *sharing.UserQuota) field {
	f := object(to, func() fields {
		return named(to, fields{
			whole(&to.Grants, parseQuotaGrants, 1, MaxQuotaGrants, "How many grants a user may have at a time.").like("4").def("no limit"),
			size(&to.Memory, "How much GPU memory all grants of a user may have together.").like("40GiB").def("no limit"),
		})
	}, "What each user other than root may have on a node at a time through `kerf run` and the node API. Pods are not counted.").def("no quota")
	f.Type.Example = "{grants: 4, memory: 40GiB}"
	return f
}

// quota checks what one user may be granted.
func (c *checker) quota(path string, q sharing.UserQuota) {
	if q.Grants < 0 || q.Grants > MaxQuotaGrants {
		c.bad(path+".grants", strconv.Itoa(q.Grants), "write a number from 1 to "+strconv.Itoa(MaxQuotaGrants)+", or leave it out", "is not a number of grants")
	}
}
