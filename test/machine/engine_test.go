// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// engineBundle is a bundle for runc: the program runs in new namespaces, on the machine's files. CGROUP stands for the
// path of the cgroup in which the engine runs.
func (m *machine) engineBundle(program []string) string {
	m.t.Helper()
	dir := m.work + "/job"
	spec := specs.Spec{
		Version: specs.Version,
		Root:    &specs.Root{Path: dir + "/rootfs", Readonly: true},
		Process: &specs.Process{Cwd: "/", Args: program, Env: append([]string{"PATH=" + os.Getenv("PATH")}, m.env...)},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"}, // else runc fills the machine's
		},
		Linux: &specs.Linux{
			CgroupsPath: "CGROUP/job",
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.IPCNamespace},
				{Type: specs.UTSNamespace}, {Type: specs.CgroupNamespace},
			},
			Resources: &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}},
		},
	}
	text, err := json.Marshal(spec)
	if err = errors.Join(err, os.MkdirAll(dir+"/rootfs", 0o755),
		os.WriteFile(dir+"/config.json", text, 0o644)); err != nil {
		m.t.Fatal(err)
	}
	return dir
}

// TestEngineInAGrant runs a container engine, runc, in a grant, as an engine in a pod does. The container is in a
// cgroup below the grant's, and has the grant's cap.
func TestEngineInAGrant(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{})
	bundle := m.engineBundle(load("--alloc 12GiB --step 256MiB --hold 1h"))
	// On a machine with cgroup v1 too, runc has to find v2 at the usual place. An engine leaves the cgroup whose
	// children it makes, because with controllers a cgroup has processes or children.
	script := `mount --bind ` + unified(t) + ` /sys/fs/cgroup
d=$(sed -n 's/^0:://p' /proc/self/cgroup)
mkdir /sys/fs/cgroup$d/engine && echo $$ >/sys/fs/cgroup$d/engine/cgroup.procs
cd ` + bundle + ` && mount --rbind / rootfs && sed -i "s,CGROUP,$d," config.json
exec ` + toolkit(t, "runc") + ` --root ` + m.work + `/runc run job`
	r := m.run(flags("--memory 6GiB --name nested"), []string{"unshare", "--mount", "--pid", "--fork", "--mount-proc",
		"--kill-child", "sh", "-ec", script})
	wantLoad(t, r.loads(1)[0], oom, 6*gib-contextH100-256*mib, 6*gib-contextH100)
	g := m.grant("nested")
	var found []string
	for _, p := range m.processes() {
		found = append(found, strings.TrimPrefix(p.Cgroup, g.Cgroup))
	}
	if len(found) != 1 || found[0] != "/job" {
		t.Errorf("processes of the driver's are in %q below %s", found, filepath.Base(g.Cgroup))
	}
	checkInvariants(t, m)
	r.end()
	m.noGrants()
	checkInvariants(t, m)
}
