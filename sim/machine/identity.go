// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"crypto/sha1" // #nosec G505 -- version 5 UUIDs are made with SHA-1 by definition; nothing is secured by it
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// The name space of all UUIDs made here: a random UUID.
const nameSpace = "\x5d\x0e\x9c\x1a\x7b\x34\x4f\x62\x9a\x11\x8e\x3d\x27\xc4\x66\xb0"

// UUID returns the UUID of GPU minor of the machine called name that is simulated in dir, an absolute path.
func UUID(dir, name string, minor int) string {
	return "GPU-" + uuid5("gpu", dir, name, strconv.Itoa(minor))
}

// MIGUUID returns the UUID of the compute instance ci in the GPU instance gi of the GPU with that UUID, as it is when
// the machine starts.
func MIGUUID(gpu string, gi, ci int) string {
	return "MIG-" + uuid5("mig", gpu, strconv.Itoa(gi), strconv.Itoa(ci))
}

// MadeMIGUUID returns the UUID of a compute instance that was made later: with another number it is another one.
func MadeMIGUUID(gpu string, number uint64) string {
	return "MIG-" + uuid5("mig", gpu, "made", strconv.FormatUint(number, 10))
}

// Serial returns a board's serial number of 13 digits.
func Serial(uuid string) string {
	sum := digest("serial", uuid)
	return fmt.Sprintf("165%010d", binary.BigEndian.Uint64(sum[:8])%10_000_000_000)
}

func digest(parts ...string) [sha1.Size]byte {
	return sha1.Sum([]byte(nameSpace + strings.Join(parts, "\x00"))) // #nosec G401 -- as above
}

// uuid5 makes a UUID of version 5 and RFC 4122's variant.
func uuid5(parts ...string) string {
	b := digest(parts...)
	b[6] = b[6]&0x0f | 0x50
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
