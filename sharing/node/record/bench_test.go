// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"testing"
)

// BenchmarkEncoder renders the record of as many grants as a node has pods, of which one has changed since the record
// before.
func BenchmarkEncoder(b *testing.B) {
	r := Record{BootID: "5f0c9a5e-8d55-4a2f-9a93-0e8d8b6a7d11"}
	for i := range 110 {
		id := fmt.Sprintf("%016x", i)
		r.Grants = append(r.Grants, Grant{
			ID: id, PodUID: "0d1c1f6e-0000-4000-8000-" + id, Container: "main", Level: "driver", Backend: "driver",
			Namespace: "team", PodName: "pod-" + id, Kind: "app",
			Requests: []string{"gpu-memory-gib:4"}, Cgroup: "/sys/fs/cgroup/kubepods/burstable/pod" + id + "/" + id,
			Inode:  uint64(i),
			Use:    &Use{ContainerID: id + id + id + id, Container: "main", Requests: []string{"gpu-memory-gib:4"}},
			Shares: []Share{{GPU: "GPU-070cdf73-669d-5443-b36b-1e6bf155930a", Memory: 4 << 30}},
		})
	}
	var e Encoder
	for i := 0; b.Loop(); i++ {
		r.Grants[i%len(r.Grants)].Inode++
		if _, err := e.Encode(r); err != nil {
			b.Fatal(err)
		}
	}
}
