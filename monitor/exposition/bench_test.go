// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

// BenchmarkScrape is of 8 GPUs with about a thousand series each.
func BenchmarkScrape(b *testing.B) {
	s := &collect.Snapshot{Seq: 1, Grants: map[string]collect.Grant{}}
	var attachments []attribution.Attachment
	for g := range 8 {
		for i := range 100 {
			id := fmt.Sprintf("p%d-%d", g, i)
			p := pod(id, attribution.Share{GPU: sharing.GPURef{UUID: sharing.GPUID(fmt.Sprint("GPU-", g))}},
				collect.Cap{Memory: sharing.GiB})
			s.Grants[id], attachments = p, append(attachments, p.Attachment)
		}
	}
	for g := range 8 {
		d := attribution.Device{GPU: sharing.GPUID(fmt.Sprint("GPU-", g)), Memory: attribution.Known(80 * sharing.GiB),
			SM: attribution.Known(attribution.Ratio(1)), Listed: true, Timed: true}
		fields := map[collect.Field]float64{}
		for _, f := range collect.Fields() {
			fields[f.Field] = 50
		}
		s.GPUs = append(s.GPUs, collect.GPU{Info: collect.Info{UUID: d.GPU, Index: g}, Device: d, Fields: fields,
			Use: attribution.Attribute(d, attachments)})
	}
	g := New(Options{Latest: func() *collect.Snapshot { return s }})
	b.Run("gather", func(b *testing.B) {
		series := 0
		for b.Loop() {
			families, err := g.Gather()
			if err != nil {
				b.Fatal(err)
			}
			series = 0
			for _, f := range families {
				series += len(f.GetMetric())
			}
		}
		b.ReportMetric(float64(series), "series")
	})
	// As Prometheus asks: with what the program tells of itself left out, text, compressed.
	b.Run("answer", func(b *testing.B) {
		h := promhttp.HandlerFor(g, promhttp.HandlerOpts{})
		r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/metrics", http.NoBody)
		r.Header.Set("Accept-Encoding", "gzip")
		var took []time.Duration
		for b.Loop() {
			began := time.Now()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				b.Fatal(w.Code)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	})
}
