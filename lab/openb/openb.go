// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package openb reads the node and pod lists of the published traces. It opens no file.
package openb

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// ReadNodes reads a node list in the openb format: sn, cpu_milli, memory_mib, gpu, model.
func ReadNodes(r io.Reader) ([]cluster.Node, error) {
	var nodes []cluster.Node
	err := rows(r, []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}, func(f map[string]string) error {
		n, err := numbers(f, "cpu_milli", "memory_mib", "gpu")
		if err != nil {
			return err
		}
		if n[2] > simulate.MaxGPUs {
			return fmt.Errorf("gpu %d: at most %d in a node", n[2], simulate.MaxGPUs)
		}
		//nolint:gosec // numbers gives no negative one
		node := cluster.Node{Name: f["sn"], CPU: cluster.Milli(n[0]), Memory: sharing.Bytes(n[1]) * sharing.MiB,
			Model: f["model"]}
		for range n[2] {
			node.GPUs = append(node.GPUs, cluster.WholeGPU)
		}
		nodes = append(nodes, node)
		return nil
	})
	return nodes, err
}

// ReadPods reads a pod list in the openb format: name, cpu_milli, memory_mib, num_gpu, gpu_milli, and
// gpu_spec where there is one. What a list says of times is not looked at.
func ReadPods(r io.Reader) ([]simulate.Pod, error) {
	var pods []simulate.Pod
	err := rows(r, []string{"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"},
		func(f map[string]string) error {
			n, err := numbers(f, "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
			if err != nil {
				return err
			}
			p := simulate.Pod{Name: f["name"]}
			//nolint:gosec // as above
			p.CPU, p.Memory = cluster.Milli(n[0]), sharing.Bytes(n[1])*sharing.MiB
			if n[2] > 0 {
				if n[2] > simulate.MaxGPUs {
					return fmt.Errorf("num_gpu %d: at most %d for a pod", n[2], simulate.MaxGPUs)
				}
				if n[3] < 1 || n[3] > int64(cluster.WholeGPU) {
					return fmt.Errorf("gpu_milli %d: not in 1 to 1000, the thousandths of each GPU", n[3])
				}
				p.GPUs, p.Share, p.Models = int(n[2]), cluster.Milli(n[3]), f["gpu_spec"]
			}
			pods = append(pods, p)
			return nil
		})
	return pods, err
}

func rows(r io.Reader, need []string, each func(map[string]string) error) error {
	in := csv.NewReader(r)
	head, err := in.Read()
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("it is empty: its first line has to name the columns %s", strings.Join(need, ", "))
	case err != nil:
		return fmt.Errorf("read the first line: %w", err)
	}
	head[0] = strings.TrimPrefix(head[0], "\ufeff") // as some programs begin what they save
	have := map[string]bool{}
	for _, name := range head {
		if have[name] {
			return fmt.Errorf("the first line names the column %q twice", name)
		}
		have[name] = true
	}
	for _, name := range need {
		if !have[name] {
			return fmt.Errorf("no column %q: the first line names %q, and %s are needed, with commas between them",
				name, head, strings.Join(need, ", "))
		}
	}
	for {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, csv.ErrFieldCount) {
			line, _ := in.FieldPos(0)
			return fmt.Errorf("line %d has %d fields, and the first line names %d columns", line, len(record),
				len(head))
		}
		if err != nil {
			return fmt.Errorf("read row: %w", err)
		}
		fields := make(map[string]string, len(head))
		for i, name := range head {
			fields[name] = record[i]
		}
		if err := each(fields); err != nil {
			line, _ := in.FieldPos(0)
			return fmt.Errorf("read line %d: %w", line, err)
		}
	}
}

// numbers are whole amounts, though lists write some of them as 1000.0.
func numbers(f map[string]string, names ...string) ([]int64, error) {
	out := make([]int64, len(names))
	for i, name := range names {
		v, err := strconv.ParseFloat(f[name], 64)
		if err != nil || !(v >= 0 && v <= simulate.MaxAmount) {
			return nil, fmt.Errorf("%s %q: not a number in 0 to 2^30", name, f[name])
		}
		out[i] = int64(math.Round(v))
	}
	return out, nil
}
