// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/internal/containerd"
	"github.com/kerf-gpu/kerf/sharing"
)

// Runtime is what was seen of the container runtime. Without one, Kerf serves processes and no pods, which
// is no lack.
type Runtime struct {
	// Socket is where one is, or empty when there is none.
	Socket string
	// Problem says why it could not be asked; Denied is true when for lack of permission.
	Problem string
	Denied  bool
	// Report is its answer, and Toolkit the configuration of NVIDIA's container runtime, when there is no Problem.
	Report  containerd.Report
	Toolkit containerd.Toolkit
}

// The checks of the container runtime.
const (
	checkRuntime     = "container runtime"
	checkNRI         = "NRI"
	checkRuntimeCDI  = "runtime's CDI"
	checkCgroups     = "cgroup driver"
	checkDefault     = "default runtime"
	checkAnnotations = "annotations"
)

const noPods = "pods cannot have grants on this machine; kerf run works"

// containers are the checks of the container runtime.
func (f Facts) containers() []Check {
	r := f.Runtime
	switch {
	case r.Socket == "":
		return []Check{{Name: checkRuntime, Status: Info, Found: "none found: processes only, no pods",
			Effect: "kerf run works; pods and kerf run --image need containerd or CRI-O"}}
	case r.Problem != "":
		c := Check{Name: checkRuntime, Status: Unknown, Found: r.Problem,
			Effect: "unknown whether pods can have grants here",
			Fix:    "start the container runtime: systemctl status containerd (or crio)"}
		if r.Denied {
			c.Fix = "sudo kerf doctor"
		}
		return []Check{c}
	}
	checks := []Check{
		{Name: checkRuntime, Status: OK, Found: fmt.Sprintf("%s %s at %s", r.Report.Name, r.Report.Version, r.Socket),
			Effect: "new enough for Kerf"},
		answer(checkNRI, r.Report.NRI, "Kerf can give GPUs to containers"),
		answer(checkRuntimeCDI, r.Report.CDI, "containers get GPUs and the hook by CDI name"),
		setting(checkCgroups, r.Report.CgroupDriver, "kubelet must use the same driver"),
		r.defaultRuntime(),
	}
	if r.Report.CDI == containerd.Yes && len(r.Report.CDIDirs) > 0 {
		checks[2].Found = "on, with specs in " + strings.Join(r.Report.CDIDirs, " and ")
	}
	for _, p := range containerd.Verdict(r.Report, r.Toolkit, "") {
		checks = found(checks, p)
	}
	if len(r.Report.Unchecked) > 0 {
		checks = append(checks, Check{
			Name: "runtime, unchecked", Status: Unknown, Found: strings.Join(r.Report.Unchecked, "; "),
			Effect: "these settings of the container runtime were not checked",
		})
	}
	return checks
}

// answer is the check of something that the runtime has or has not.
func answer(name string, a containerd.Answer, means string) Check {
	if a == containerd.Yes {
		return Check{Name: name, Status: OK, Found: "on", Effect: means}
	}
	return Check{Name: name, Status: Unknown, Found: "the container runtime does not report it",
		Effect: "unknown whether " + means}
}

// setting is the check of a setting by its value.
func setting(name, value, means string) Check {
	if value == "" {
		return Check{Name: name, Status: Unknown, Found: "the container runtime does not report it", Effect: means}
	}
	return Check{Name: name, Status: OK, Found: value, Effect: means}
}

func (r Runtime) defaultRuntime() Check {
	c := setting(checkDefault, r.Report.DefaultRuntime, "images that name GPUs in their environment get none")
	if h, ok := r.Report.Default(); ok && h.Binary != "" {
		c.Found += " (" + h.Binary + ")"
	}
	if c.Status == Unknown {
		c.Effect = "unknown whether images that name GPUs in their environment get them"
	}
	return c
}

// found replaces the check of a problem with that problem. If the check has a problem already, it adds the new one.
func found(checks []Check, p containerd.Problem) []Check {
	c := Check{Name: checkOf(p.Key), Status: Warn, Found: p.Sentence,
		Effect: "caps are enforced, but a container can bypass them this way", Fix: p.Remedy}
	if p.Blocking {
		c.Status, c.Effect = Missing, noPods
	}
	for i, old := range checks {
		if old.Name == c.Name && (old.Status == OK || old.Status == Unknown) {
			checks[i] = c
			return checks
		}
	}
	return append(checks, c)
}

// checkOf is the check that a problem belongs to.
func checkOf(key string) string {
	switch {
	case key == "nri-off":
		return checkNRI
	case strings.HasPrefix(key, "cdi-"):
		return checkRuntimeCDI
	case key == "nvidia-default":
		return checkDefault
	case key == "nvidia-mounts":
		return "NVIDIA's runtime"
	case strings.HasPrefix(key, "nvidia-handler-"):
		return "runtime " + strings.TrimPrefix(key, "nvidia-handler-")
	case strings.HasPrefix(key, "annotations-"):
		return checkAnnotations
	}
	return checkRuntime
}

const (
	// runtimeTimeout bounds all questions to the container runtime.
	runtimeTimeout = 10 * time.Second
	// nriSocket is where container runtimes take NRI plugins by default.
	nriSocket = "/var/run/nri/nri.sock"
)

// runtimeSockets are where container runtimes listen, in the order in which they are looked for.
func runtimeSockets() []string {
	return []string{containerd.DefaultSocket, containerd.CRIOSocket, "/run/k3s/containerd/containerd.sock"}
}

// gatherRuntime asks the first runtime that there is.
func gatherRuntime(ctx context.Context, sockets []string, nri, toolkit string) Runtime {
	var r Runtime
	for _, s := range sockets {
		if _, err := os.Stat(s); err == nil {
			r.Socket = s
			break
		}
	}
	if r.Socket == "" {
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	client, err := containerd.Open(r.Socket)
	if err != nil {
		r.Problem = err.Error()
		return r
	}
	defer func() { _ = client.Close() }()
	if r.Report, err = client.Report(ctx); err != nil {
		r.Problem, r.Denied = err.Error(), errors.Is(err, sharing.ErrDenied)
		return r
	}
	if r.Report.NRI == containerd.Unknown {
		if r.Report.NRI = containerd.ProbeNRI(ctx, nri); r.Report.NRI == containerd.No {
			r.Report.Unchecked = append(r.Report.Unchecked,
				fmt.Sprintf("nothing listens at %q; where the runtime's NRI has another socket_path, that was not "+
					"looked at", nri))
		}
	}
	r.Toolkit = containerd.ReadToolkit(toolkit)
	return r
}
