// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"strconv"
	"strings"
)

const userDomain = "uid/"

// DomainOf names who trusts a user so far that they may share a daemon: the user's processes, or the pods of a
// namespace. Containers and processes never share one: a daemon has one /dev/shm.
func DomainOf(pod bool, namespace string, uid uint32) string {
	if pod {
		return "namespace/" + namespace
	}
	return userDomain + strconv.FormatUint(uint64(uid), 10)
}

// PoolDomain names all processes of a pool, or all its pods, where they may share a daemon.
func PoolDomain(pod bool) string {
	if pod {
		return "pool/pods"
	}
	return "pool"
}

// UserOfDomain is the user whose processes alone are in a domain. It is false for a domain of several users, and of
// containers.
func UserOfDomain(domain string) (uint32, bool) {
	text, ok := strings.CutPrefix(domain, userDomain)
	uid, err := strconv.ParseUint(text, 10, 32)
	return uint32(uid), ok && err == nil
}
