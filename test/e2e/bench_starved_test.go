// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// lookEvery is the time between two reads of the kernel's run queues. Each costs some milliseconds of CPU time itself.
const lookEvery = 20 * time.Millisecond

// queue is what the kernel says of a cgroup's part in one CPU's run queue.
type queue struct {
	ready  bool          // a thread of the group is ready to run there
	ran    time.Duration // all that the group has ever run there
	weight float64       // its share of that CPU, relative to its siblings; 1024 is one process of the usual priority
}

// starvation is a time for which the cgroup of all pods had ready threads on a CPU and was not served there.
type starvation struct {
	cpu      int
	from, to time.Time
	pods     queue         // as it was seen last
	others   queue         // the same of system.slice, where the node's daemons are
	ran      time.Duration // that system.slice was served meanwhile
}

func (s starvation) String() string {
	return fmt.Sprintf("%v on CPU %d, with a weight of %.0f; system.slice, with %.0f, was served %v there meanwhile",
		s.to.Sub(s.from).Round(time.Millisecond), s.cpu, s.pods.weight, s.others.weight, s.ran.Round(time.Millisecond))
}

// watchPods looks at the kernel's run queues, until the function that it returns is called, for the longest time that
// the cgroup of all pods was ready and not served. No program in a pod can be sooner than that.
func (e *testCase) watchPods() func() starvation {
	e.Helper()
	dir := e.TempDir()
	if out, err := exec.CommandContext(e.Context(), "mount", "-t", "debugfs", "none",
		dir).CombinedOutput(); err != nil {
		e.Skipf("the kernel's run queues cannot be seen: mount debugfs: %v: %s", err, out)
	}
	e.Cleanup(func() { _ = exec.Command("umount", dir).Run() })
	file, root := filepath.Join(dir, "sched", "debug"), e.cpuCgroup()
	if _, err := queues(file, root); err != nil {
		e.Skipf("the kernel's run queues cannot be seen: %v", err)
	}
	ctx, cancel := context.WithCancel(e.Context())
	var group sync.WaitGroup
	var longest starvation
	group.Go(func() {
		open := map[int]starvation{}
		for ctx.Err() == nil {
			now := time.Now()
			seen, err := queues(file, root)
			if err != nil {
				e.Errorf("the kernel's run queues: %v", err)
				return
			}
			for cpu, q := range seen {
				pods, others := q["kubepods"], q["system.slice"]
				s, going := open[cpu]
				switch {
				case !pods.ready:
					delete(open, cpu)
					continue
				case !going || pods.ran != s.pods.ran:
					s = starvation{cpu: cpu, from: now, others: others}
				}
				s.ran += others.ran - s.others.ran
				s.to, s.pods, s.others = now, pods, others
				open[cpu] = s
				if s.to.Sub(s.from) > longest.to.Sub(longest.from) {
					longest = s
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(lookEvery):
			}
		}
	})
	return func() starvation {
		cancel()
		group.Wait()
		return longest
	}
}

// cpuCgroup is the node's cgroup where CPU time is shared out, as this machine names it.
func (e *testCase) cpuCgroup() string {
	e.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", e.node.env["NODE_INIT"], "cgroup"))
	if err != nil {
		e.Fatal(err)
	}
	root := ""
	for l := range strings.Lines(string(text)) {
		id, rest, _ := strings.Cut(strings.TrimSpace(l), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		if strings.Contains(","+controllers+",", ",cpu,") || id == "0" && root == "" {
			root = path
		}
	}
	return strings.TrimSuffix(root, "/init")
}

// queues reads, for each CPU, the parts of the groups below root that bear a plain name.
func queues(file, root string) (map[int]map[string]queue, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := map[int]map[string]queue{}
	for block := range strings.SplitSeq(string(text), "\n\n") {
		head, rest, _ := strings.Cut(strings.TrimSpace(block), "\n")
		number, path, found := strings.Cut(strings.TrimPrefix(head, "cfs_rq["), "]:")
		name, inside := strings.CutPrefix(path, root+"/")
		cpu, err := strconv.Atoi(number)
		if !found || !inside || strings.Contains(name, "/") || err != nil {
			continue
		}
		values := map[string]float64{}
		for l := range strings.Lines(rest) {
			key, value, _ := strings.Cut(l, ":")
			if v, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil {
				values[strings.TrimSpace(key)] = v
			}
		}
		if all[cpu] == nil {
			all[cpu] = map[string]queue{}
		}
		all[cpu][name] = queue{
			ready:  values[".h_nr_runnable"] > 0,
			ran:    time.Duration(values[".se->sum_exec_runtime"] * float64(time.Millisecond)),
			weight: values[".se->load.weight"] / 1024, // the kernel reckons with 1024 times it
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s tells nothing of cgroups below %q", file, root)
	}
	return all, nil
}
