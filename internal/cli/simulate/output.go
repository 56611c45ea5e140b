// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// printResults is one line a run; - where no load reached the point.
func printResults(out io.Writer, results []simulate.Result, departures bool) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprint(t, "POLICY\tSEED")
	if departures {
		_, _ = fmt.Fprint(t, "\tLOAD\tALLOCATED\tREJECTED PODS\tREJECTED GPU")
		pooled := len(results) > 0 && results[0].Pooled
		if pooled {
			_, _ = fmt.Fprint(t, "\tBY ONE POOL")
		}
		bounded := len(results) > 0 && results[0].NoPacking != nil
		if bounded {
			_, _ = fmt.Fprint(t, "\tNO PACKING")
		}
		_, _ = fmt.Fprintln(t, "\tREJECTED 8 GPU\tDECISIONS/S")
		for _, r := range results {
			_, _ = fmt.Fprintf(t, "%s\t%d\t%.2f\t%.2f %%\t%.2f %%\t%.2f %%", r.Policy, r.Seed, r.Load, r.MeanAllocatedPercent, r.RejectedPodsPercent, r.RejectedDemandPercent)
			if pooled {
				_, _ = fmt.Fprintf(t, "\t%.2f %%", r.PooledRejectedPercent)
			}
			if bounded {
				_, _ = fmt.Fprintf(t, "\t%.2f %%", r.NoPacking.Percent)
			}
			_, _ = fmt.Fprintf(t, "\t%d of %d\t%.0f\n", r.Rejects["8"], r.Arrived["8"], r.Decisions)
		}
		return t.Flush()
	}
	for _, p := range simulate.Points() {
		_, _ = fmt.Fprintf(t, "\t@%d", p)
	}
	_, _ = fmt.Fprintln(t, "\tFIRST FAILURE\tREJECTED\tDECISIONS/S")
	for _, r := range results {
		_, _ = fmt.Fprintf(t, "%s\t%d", r.Policy, r.Seed)
		for _, p := range simulate.Points() {
			if v, ok := r.AllocatedPercent[strconv.Itoa(p)]; ok {
				_, _ = fmt.Fprintf(t, "\t%.2f", v)
			} else {
				_, _ = fmt.Fprint(t, "\t-")
			}
		}
		first := "-" // nothing was refused
		if r.Rejected() > 0 {
			first = fmt.Sprintf("%.2f", r.FirstFailurePercent)
		}
		_, _ = fmt.Fprintf(t, "\t%s\t%d\t%.0f\n", first, r.Rejected(), r.Decisions)
	}
	return t.Flush()
}

// writeResults is one row a run, with the fields of the JSON; a point that no load reached is empty.
func writeResults(out io.Writer, results []simulate.Result) error {
	head := []string{"policy", "trace", "seed", "capacity_gpu_milli", "arrived_gpu_milli"}
	for _, p := range simulate.Points() {
		head = append(head, fmt.Sprintf("allocated_percent_%d", p))
	}
	for _, p := range simulate.Points() {
		head = append(head, fmt.Sprintf("fragmentation_percent_%d", p))
	}
	head = append(head, "first_failure_percent", "load", "mean_allocated_percent", "rejected_pods_percent", "rejected_demand_percent", "pooled_rejected_percent", "no_packing_percent")
	for _, class := range simulate.Classes() {
		head = append(head, "rejects_"+class)
	}
	head = append(head, "decisions_per_second")
	w := csv.NewWriter(out)
	_ = w.Write(head)
	for _, r := range results {
		row := []string{r.Policy, r.Trace, strconv.FormatInt(r.Seed, 10), strconv.FormatInt(r.CapacityMilli, 10), strconv.FormatInt(r.ArrivedMilli, 10)}
		for _, values := range []map[string]float64{r.AllocatedPercent, r.FragmentationPercent} {
			for _, p := range simulate.Points() {
				cell := ""
				if v, ok := values[strconv.Itoa(p)]; ok {
					cell = number(v)
				}
				row = append(row, cell)
			}
		}
		for _, v := range []float64{r.FirstFailurePercent, r.Load, r.MeanAllocatedPercent, r.RejectedPodsPercent, r.RejectedDemandPercent, r.PooledRejectedPercent} {
			row = append(row, number(v))
		}
		unplaceable := "" // it was not asked for
		if r.NoPacking != nil {
			unplaceable = number(r.NoPacking.Percent)
		}
		row = append(row, unplaceable)
		for _, class := range simulate.Classes() {
			row = append(row, strconv.Itoa(r.Rejects[class]))
		}
		_ = w.Write(append(row, number(r.Decisions)))
	}
	w.Flush()
	return w.Error()
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
