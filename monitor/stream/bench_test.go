// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"fmt"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

// BenchmarkSample makes and encodes what all readers of a sample get, of 8 GPUs whose 7 MIG instances are granted. In
// tenths of a millisecond it is hundredths of a percent of a core, at ten samples a second.
func BenchmarkSample(b *testing.B) {
	s := &collect.Snapshot{Seq: 1, At: time.Unix(1_700_000_000, 0), Source: "dcgm", Driver: "580.95.05", Agent: true,
		Grants: map[string]collect.Grant{}}
	var attachments []attribution.Attachment
	living := map[string]bool{}
	for g := range 8 {
		for i := range 7 {
			id, uuid := fmt.Sprintf("k-%010d", 7*g+i), sharing.GPUID(fmt.Sprintf("GPU-%036d", g))
			l := attribution.Attachment{Grant: id, Cgroup: "/sys/fs/cgroup/kerf/" + id,
				Shares: []attribution.Share{
					{GPU: sharing.GPURef{UUID: uuid, Instance: sharing.InstanceRef{Profile: "1g.18gb", Start: i}}}}}
			s.Grants[id] = collect.Grant{ID: id, Name: "ml/" + id + "/main", Namespace: "ml", Pod: id,
				Container: "main", Level: "hardware", Attachment: l, Caps: []collect.Cap{{Memory: 18 * sharing.GiB}}}
			attachments, living[id] = append(attachments, l), true
		}
	}
	var tally attribution.Accumulator
	for g := range 8 {
		uuid := sharing.GPUID(fmt.Sprintf("GPU-%036d", g))
		d := attribution.Device{GPU: uuid, Memory: attribution.Known(100 * sharing.GiB),
			SM: attribution.Known(attribution.Ratio(1)), Energy: attribution.Known(attribution.Joules(70)),
			Listed: true}
		for i := range 7 {
			d.Instances = append(d.Instances, attribution.Instance{
				GI: i, Ref: sharing.InstanceRef{Profile: "1g.18gb", Start: i}, Memory: attribution.Known(sharing.GiB),
				Compute: 1.0 / 7,
				SM:      attribution.Known(attribution.Ratio(0.5)), DRAM: attribution.Known(attribution.Ratio(0.2)),
			})
		}
		use := attribution.Attribute(d, attachments)
		tally.Add([]attribution.Sample{use}, time.Second, living)
		totals := map[attribution.Place]attribution.Total{}
		for _, u := range use.Grants {
			at := attribution.Place{Grant: u.Grant, GPU: sharing.GPURef{UUID: uuid, Instance: u.Instance}}
			totals[at], _ = tally.Of(at)
		}
		s.GPUs = append(s.GPUs, collect.GPU{
			Info: collect.Info{UUID: uuid, Index: g, Model: "NVIDIA H200"}, Device: d, Use: use, Totals: totals,
			Fields: map[collect.Field]float64{collect.FieldMemoryTotal: 143771, collect.FieldPower: 350,
				collect.FieldTemperature: 50},
		})
	}
	b.ReportAllocs()
	size := 0
	for b.Loop() {
		m, err := encode(sampleOf(s, filter{}))
		if err != nil {
			b.Fatal(err)
		}
		size = m.Len()
	}
	b.ReportMetric(float64(size), "bytes")
}
