// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package openb_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/lab/openb"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

const nodeHead = "sn,cpu_milli,memory_mib,gpu,model\n"
const podHead = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"

func TestReadLists(t *testing.T) {
	nodes, err := openb.ReadNodes(strings.NewReader(nodeHead + "a,64000,1024,2,T4\nb,1000.0,2,0,\n"))
	if err != nil {
		t.Fatal(err)
	}
	if n := nodes[0]; len(nodes) != 2 || n.Name != "a" || n.CPU != 64000 || n.Memory != sharing.GiB ||
		n.Model != "T4" || n.Free() != 2000 {
		t.Errorf("nodes %+v", nodes)
	}
	pods, err := openb.ReadPods(strings.NewReader(podHead + "p,500.0,1024,1,460,T4|G2\nq,1000,1,0,0,T4\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []simulate.Pod{
		{Name: "p", Request: cluster.Request{Memory: sharing.GiB, Shape: cluster.Shape{CPU: 500, GPUs: 1, Share: 460,
			Models: "T4|G2"}}},
		{Name: "q", Request: cluster.Request{Memory: sharing.MiB, Shape: cluster.Shape{CPU: 1000}}},
	}
	if diff := cmp.Diff(want, pods); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if marked, err := openb.ReadPods(strings.NewReader("\ufeff" + podHead + "p,1,1,0,0,\n")); err != nil ||
		len(marked) != 1 || marked[0].Name != "p" {
		t.Errorf("with a byte order mark: %+v, %v", marked, err)
	}
	// What is wrong, where, and what to do.
	for name, tt := range map[string]struct{ text, want string }{
		"empty": {"",
			"it is empty: its first line has to name the columns name, cpu_milli, memory_mib, num_gpu, gpu_milli"},
		"no column": {"name\np\n",
			`no column "cpu_milli": the first line names ["name"], and name, cpu_milli,`},
		"semicolons":          {strings.ReplaceAll(podHead, ",", ";") + "p;1;1;0;0;\n", "with commas between them"},
		"a column twice":      {"name,name\n", `names the column "name" twice`},
		"share above one GPU": {podHead + "p,1,1,1,1001,\n", "read line 2: gpu_milli 1001: not in 1 to 1000"},
		"no share":            {podHead + "p,1,1,1,0,\n", "read line 2: gpu_milli 0: not in 1 to 1000"},
		"negative":            {podHead + "p,-1,1,0,0,\n", `read line 2: cpu_milli "-1": not a number in 0 to 2^30`},
		"no number": {podHead + "p,1,1,0,0,\np,NaN,1,0,0,\n",
			`read line 3: cpu_milli "NaN": not a number in 0 to 2^30`},
		"huge":   {podHead + "p,1e300,1,0,0,\n", `read line 2: cpu_milli "1e300": not a number in 0 to 2^30`},
		"ragged": {podHead + "p,1\n", "line 2 has 2 fields, and the first line names 6 columns"},
		"GPUs":   {podHead + "p,1,1,65,1000,\n", "read line 2: num_gpu 65: at most 64 for a pod"},
	} {
		if _, err := openb.ReadPods(strings.NewReader(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func FuzzReadPods(f *testing.F) {
	f.Add(podHead + "p,500,1024,1,460,T4|G2\n")
	f.Fuzz(func(t *testing.T, text string) {
		pods, err := openb.ReadPods(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, p := range pods {
			if p.CPU < 0 || p.Memory > 1024*sharing.TiB || p.Share < 0 || p.Share > cluster.WholeGPU ||
				(p.GPUs == 0) != (p.Share == 0) {
				t.Errorf("read %+v", p)
			}
		}
	})
}
