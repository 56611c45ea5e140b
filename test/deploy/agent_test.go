// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apps "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

// agent is the DaemonSet and its only container.
func agent(t *testing.T) (*apps.DaemonSet, *corev1.PodSpec, *corev1.Container) {
	t.Helper()
	d := one[*apps.DaemonSet](t)
	p := &d.Spec.Template.Spec
	if len(p.Containers) != 1 || len(p.InitContainers) != 0 {
		t.Fatalf("%d containers and %d init containers, want the agent alone", len(p.Containers), len(p.InitContainers))
	}
	return d, p, &p.Containers[0]
}

func TestOneAgentAtATime(t *testing.T) {
	d, p, _ := agent(t)
	u := d.Spec.UpdateStrategy.RollingUpdate
	if u == nil || u.MaxSurge == nil || u.MaxSurge.IntValue() != 0 || u.MaxSurge.StrVal != "" ||
		u.MaxUnavailable.IntValue() != 1 {
		t.Errorf("update strategy %+v: two agents on one node fight for its GPUs", d.Spec.UpdateStrategy)
	}
	if p.NodeSelector["kerf.dev/deploy-agent"] != "true" || len(p.NodeSelector) != 1 {
		t.Errorf("node selector %v", p.NodeSelector)
	}
	if p.PriorityClassName != "system-node-critical" ||
		!slices.Contains(p.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists}) {
		t.Error("the agent can be kept off a node, or pushed off it")
	}
}

func TestAgentHasNoMoreThanItNeeds(t *testing.T) {
	_, p, c := agent(t)
	s := c.SecurityContext
	if !p.HostPID || p.HostNetwork || p.HostIPC {
		t.Errorf("hostPID %v, hostNetwork %v, hostIPC %v; want the first alone", p.HostPID, p.HostNetwork, p.HostIPC)
	}
	if s.Privileged != nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
		s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
		t.Errorf("security context %+v", s)
	}
	if !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("drops %v, want ALL", s.Capabilities.Drop)
	}
	if d := cmp.Diff([]corev1.Capability{"SYS_ADMIN", "SYS_CHROOT", "SYS_PTRACE", "DAC_READ_SEARCH", "KILL"},
		s.Capabilities.Add); d != "" {
		t.Errorf("capabilities (-want +got):\n%s", d)
	}
	if p.SecurityContext.SeccompProfile == nil ||
		p.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("seccomp profile %v", p.SecurityContext.SeccompProfile)
	}
	// These are written by others; the agent reads them, or connects to the sockets in them.
	for _, name := range []string{"config", "cdi-run", "pod-resources", "nri", "containerd", "nvidia-runtime"} {
		if m := mount(c, name); m == nil || !m.ReadOnly {
			t.Errorf("mount %q is not read-only: %+v", name, m)
		}
	}
	for name, why := range map[string]string{
		"containerd": "the agent would keep the mounts of containers that have ended",
		"state":      "the agent would not see the folders of grants that it mounts on the host",
	} {
		if m := mount(c, name); m.MountPropagation == nil ||
			*m.MountPropagation != corev1.MountPropagationHostToContainer {
			t.Error(why)
		}
	}
	for _, v := range p.Volumes {
		m := mount(c, v.Name)
		if m == nil {
			t.Errorf("volume %q is not mounted", v.Name)
		} else if v.HostPath != nil && m.MountPath != v.HostPath.Path {
			t.Errorf("host path %s is mounted at %s: paths in messages would not be the host's", v.HostPath.Path,
				m.MountPath)
		}
		if v.HostPath != nil && (v.HostPath.Type == nil || *v.HostPath.Type == corev1.HostPathUnset) {
			t.Errorf("host path %s has no type", v.HostPath.Path)
		}
	}
}

func mount(c *corev1.Container, name string) *corev1.VolumeMount {
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].Name == name {
			return &c.VolumeMounts[i]
		}
	}
	return nil
}

// TestEachPathAndCapabilityHasItsReason compares the manifests with the tables of the threat model, both
// ways: a row is | `/path` or `CAPABILITY` | a reason |.
func TestEachPathAndCapabilityHasItsReason(t *testing.T) {
	_, p, c := agent(t)
	used := map[string]bool{}
	for _, cap := range c.SecurityContext.Capabilities.Add {
		used[string(cap)] = true
	}
	specs := []*corev1.PodSpec{p}
	for _, patched := range variants(t) {
		specs = append(specs, &patched.Spec.Template.Spec)
	}
	for _, spec := range specs {
		for _, v := range spec.Volumes {
			if v.HostPath != nil {
				used[v.HostPath.Path] = true
			}
		}
	}
	written := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(/[^`]*|[A-Z][A-Z_]+)` \\|(.*)\\|$").FindAllStringSubmatch(
		read(t, "docs/reference/agent-rights.md"), -1) {
		if len(strings.TrimSpace(row[2])) < 20 {
			t.Errorf("docs/reference/agent-rights.md gives %s no reason", row[1])
		}
		written[row[1]] = true
	}
	for what := range used {
		if !written[what] {
			t.Errorf("docs/reference/agent-rights.md has no row for %s", what)
		}
	}
	for what := range written {
		if !used[what] {
			t.Errorf("docs/reference/agent-rights.md has a row for %s, which no manifest has", what)
		}
	}
}

// What the agent asks of NVIDIA's runtime is a right, too.
func TestEachWordToNVIDIAsRuntimeHasItsReason(t *testing.T) {
	_, _, c := agent(t)
	text, asked := read(t, "docs/reference/agent-rights.md"), 0
	for _, v := range c.Env {
		if !strings.HasPrefix(v.Name, "NVIDIA_") {
			continue
		}
		asked++
		if row := regexp.MustCompile("(?m)^\\|.*`" + regexp.QuoteMeta(v.Name+"="+v.Value) +
			"`.* \\| (.{20,}) \\|$"); !row.MatchString(text) {
			t.Errorf("docs/reference/agent-rights.md has no row for %s=%s", v.Name, v.Value)
		}
	}
	if asked != 3 {
		t.Errorf("%d variables for NVIDIA's runtime, want 3", asked)
	}
}

func TestConfigIsValidAndWhereTheAgentLooks(t *testing.T) {
	_, p, c := agent(t)
	m := one[*corev1.ConfigMap](t)
	if len(m.Data) != 1 || len(m.BinaryData) != 0 {
		t.Fatalf("%d documents", len(m.Data))
	}
	for name, text := range m.Data {
		conf, err := config.Decode([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(conf.Pools()) != 1 || !conf.Pools()[0].Mode.Shared() || conf.Pools()[0].Mode.Whole() {
			t.Errorf("%s: pools %+v; without its own scheduler a pool offers one kind", name, conf.Pools())
		}
		wantDefaults(t, conf)
		if want := "--config=" + mount(c, "config").MountPath; !slices.Contains(c.Args, want) {
			t.Errorf("no argument %s in %v", want, c.Args)
		}
	}
	if v := p.Volumes[slices.IndexFunc(p.Volumes,
		func(v corev1.Volume) bool { return v.Name == "config" })]; v.ConfigMap == nil || v.ConfigMap.Name != m.Name {
		t.Errorf("volume %+v is not the ConfigMap", v)
	}
}

// wantDefaults holds a config that is shipped to what an agent without one does: the same backends and the same end of
// who is over his cap. It may demand a higher level, and never a lower one.
func wantDefaults(t *testing.T, c config.Config) {
	t.Helper()
	bare := config.Default()
	plain := bare.Pools()[0]
	for _, pool := range c.Pools() {
		if d := cmp.Diff(bare.BackendsOf(plain, ""), c.BackendsOf(pool, "")); d != "" {
			t.Errorf("pool %s: backends (-default +shipped):\n%s", pool.Name, d)
		}
		if got, want := c.OverCapOf(pool, ""), bare.OverCapOf(plain, ""); got != want {
			t.Errorf("pool %s: overCap %v, and %v by default", pool.Name, got, want)
		}
		if least := sharing.LeastOfShare(plain.MinLevel); !sharing.LeastOfShare(pool.MinLevel).AtLeast(least) {
			t.Errorf("pool %s: minEnforcement %v, and %v by default", pool.Name, pool.MinLevel, least)
		}
	}
}

// variants are the DaemonSets of deploy/variants; all else there is only decoded.
func variants(t *testing.T) map[string]*apps.DaemonSet {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "deploy/variants/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("deploy/variants: %v, %v", files, err)
	}
	out := map[string]*apps.DaemonSet{}
	for _, file := range files {
		for _, doc := range documents(t, file) {
			if d, ok := decode(t, file, doc).(*apps.DaemonSet); ok {
				out[filepath.Base(file)] = d
			}
		}
	}
	return out
}

func TestVariants(t *testing.T) {
	_, plain, c := agent(t)
	all := variants(t)
	for name, d := range all {
		p := &d.Spec.Template.Spec
		if name == "monitor.yaml" {
			testMonitor(t, p, c)
			continue
		}
		if d.Name != "kerf-agent" || len(p.Containers) != 1 || p.Containers[0].Image != c.Image ||
			len(p.Containers[0].VolumeMounts) != len(p.Volumes) {
			t.Errorf("%s: %+v", name, p.Containers)
		}
	}
	strong := &all["privileged.yaml"].Spec.Template.Spec
	s := strong.Containers[0].SecurityContext
	if strong.RuntimeClassName != nil || s.Privileged == nil || !*s.Privileged || s.Capabilities != nil ||
		len(strong.Volumes) != len(plain.Volumes)+2 {
		t.Errorf("privileged.yaml: runtime class %v, %+v", strong.RuntimeClassName, s)
	}
	crio := &all["crio.yaml"].Spec.Template.Spec
	const socket = "--containerd-socket="
	for i, arg := range crio.Containers[0].Args {
		if want := c.Args[i]; arg != want && (!strings.HasPrefix(arg, socket) || !strings.HasPrefix(want, socket)) {
			t.Errorf("crio.yaml: argument %s, want %s", arg, want)
		}
	}
	if len(crio.Containers[0].Args) != len(c.Args) || mount(&crio.Containers[0], "containerd") != nil ||
		mount(&crio.Containers[0], "crio") == nil {
		t.Errorf("crio.yaml: %v, %v", crio.Containers[0].Args, crio.Containers[0].VolumeMounts)
	}
}

// testMonitor: its pod has no right that the agent has not, no token, and writes nothing but its socket.
func testMonitor(t *testing.T, p *corev1.PodSpec, agent *corev1.Container) {
	t.Helper()
	if len(p.Containers) != 1 || p.AutomountServiceAccountToken == nil || *p.AutomountServiceAccountToken ||
		!p.HostPID || p.HostNetwork || p.HostIPC {
		t.Fatalf("monitor.yaml: %+v", p)
	}
	m := &p.Containers[0]
	if m.Name != "monitor" || m.Image != agent.Image ||
		!slices.Equal(m.Command, []string{"/usr/local/bin/kerf-monitor"}) {
		t.Errorf("monitor.yaml: %s, %s, %v", m.Name, m.Image, m.Command)
	}
	// it ends no process, reads no open files, and mounts nothing on the host
	rights := agent.SecurityContext.DeepCopy()
	rights.Capabilities.Add = slices.DeleteFunc(rights.Capabilities.Add, func(c corev1.Capability) bool {
		return c == "KILL" || c == "SYS_CHROOT" || c == "DAC_READ_SEARCH"
	})
	if d := cmp.Diff(rights, m.SecurityContext); d != "" {
		t.Errorf("monitor.yaml: rights in addition to the agent's: %s", d)
	}
	if len(m.VolumeMounts) != 2 || mount(m, "state") == nil || mount(m, "cgroup") == nil ||
		!mount(m, "cgroup").ReadOnly {
		t.Errorf("monitor.yaml: mounts %+v", m.VolumeMounts)
	}
	if !strings.Contains(read(t, "deploy/image/Dockerfile"), "release/kerf-monitor") {
		t.Error("the image has no kerf-monitor")
	}
}

// The reference has a row for each file of deploy.
func TestDocumentsNameEveryFile(t *testing.T) {
	const page = "docs/reference/manifests.md"
	text := read(t, page)
	files, err := filepath.Glob(filepath.Join(root, "deploy/[^c]*/*")) // not the files of the chart, which is one thing
	if err != nil || len(files) < 10 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		if !strings.Contains(text, filepath.Base(file)) {
			t.Errorf("%s does not name %s", page, file)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
