// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// supervision is how often the daemons are looked after while the node does not settle.
const supervision = 10 * time.Second

// sight is all that is known of the node at about one moment.
type sight struct {
	pods      []corev1.Pod
	status    status
	limits    []simLimit
	processes []simProcess
	gpus      []simGPU
}

func (s *soak) look() (sight, error) {
	var v sight
	list, err := s.client.CoreV1().Pods(s.namespace).List(background(), metav1.ListOptions{})
	if err != nil {
		return v, err
	}
	v.pods = list.Items
	// A process is listed before the limits are: what holds it was there before it.
	v.processes, v.limits, v.gpus = s.node.processes(s.T), s.node.limits(s.T), s.node.gpus(s.T)
	v.status, err = s.status()
	return v, err
}

// settle waits until the node has done what the last step asks of it, and all is as it should be. What must hold at
// every moment is looked at each time. A daemon that has ended is started again, as systemd does it: kubelet ends
// where the container runtime goes away while it starts.
func (s *soak) settle() {
	s.Helper()
	began := time.Now()
	supervised := began
	eventually(s, "a node that has settled", func() error {
		if time.Since(supervised) > supervision {
			s.node.do(s.T, "up")
			supervised = time.Now()
		}
		if err := s.neverError(); err != nil {
			return final("%w", err)
		}
		if err := s.agentReady(); err != nil {
			return err
		}
		v, err := s.look()
		if err != nil {
			return err
		}
		return errors.Join(s.podsError(v), s.ledgerError(v), s.driverError(v), s.nodeError(v))
	})
	s.forget()
	if took := time.Since(began); took > 20*time.Second {
		s.Logf("  settled after %v", took.Round(time.Second))
	}
}

// neverError reports what must not be at any moment: caps that add up to more than a GPU has, and a process that no
// container has. What is seen once may have ended between two samples; what is there a little later has not.
func (s *soak) neverError() error {
	first := s.violations()
	if len(first) == 0 {
		return nil
	}
	time.Sleep(300 * time.Millisecond)
	again := s.violations()
	for what := range first {
		if again[what] {
			return errors.New(what)
		}
	}
	return nil
}

func (s *soak) violations() map[string]bool {
	bad := map[string]bool{}
	processes, limits := s.node.processes(s.T), s.node.limits(s.T)
	sum := map[string]uint64{}
	for _, l := range limits {
		if l.Hard != nil && *l.Hard > least {
			sum[l.GPU] += *l.Hard
		}
	}
	for _, g := range s.node.gpus(s.T) {
		if sum[g.UUID] > g.Memory-g.Reserved {
			bad[fmt.Sprintf("the caps on GPU %d add up to %d bytes, and it has %d: %+v", g.Index, sum[g.UUID],
				g.Memory-g.Reserved, limits)] = true
		}
	}
	for _, p := range processes {
		if g := s.gpuNamed(p.GPU); g.Lost || s.capOf(limits, p) || s.isWhole(p) {
			continue
		}
		bad[fmt.Sprintf("process %d of %s is on GPU %s without a cap", p.PID, p.Cgroup, p.GPU)] = true
	}
	return bad
}

func (s *soak) gpuNamed(uuid string) simGPU {
	for _, g := range s.node.gpus(s.T) {
		if g.UUID == uuid {
			return g
		}
	}
	return simGPU{}
}

// capOf tells whether a limit that is a share of the GPU holds the process.
func (s *soak) capOf(limits []simLimit, p simProcess) bool {
	return slices.ContainsFunc(limits, func(l simLimit) bool {
		return l.GPU == p.GPU && l.Hard != nil && *l.Hard > least && strings.HasPrefix(p.Cgroup+"/", l.Cgroup+"/")
	})
}

// isWhole tells whether the process is one of a container that asked for whole GPUs.
func (s *soak) isWhole(p simProcess) bool {
	for _, q := range s.live {
		for _, id := range q.seen {
			if q.kind == "whole" && strings.Contains(p.Cgroup, id) {
				return true
			}
		}
		if q.kind == "whole" { // it may have started since
			if _, err := q.fetch(); err == nil &&
				slices.ContainsFunc(q.seen, func(id string) bool { return strings.Contains(p.Cgroup, id) }) {
				return true
			}
		}
	}
	return false
}

// podsError tells of the first pod that is not as it should be, or not yet.
func (s *soak) podsError(v sight) error {
	seen := map[string]bool{}
	for _, o := range v.pods {
		p := s.named(&o)
		if p == nil {
			continue
		}
		seen[p.name] = true
		if p.deleted {
			return fmt.Errorf("%s is still there: %s", p.name, describe(&o))
		}
		for _, c := range containerStatuses(&o) {
			if id := containerID(c); id != "" && !slices.Contains(p.seen, id) {
				p.seen = append(p.seen, id)
			}
		}
		if err := s.podError(p, &o, v); err != nil {
			return fmt.Errorf("%s: %w: %s", p.name, err, describe(&o))
		}
	}
	for _, p := range s.live {
		if !p.deleted && !seen[p.name] {
			return final("%s is gone, and no one has deleted it", p.name)
		}
	}
	return nil
}

func (s *soak) podError(p *soakPod, o *corev1.Pod, v sight) error {
	switch o.Status.Phase {
	case corev1.PodSucceeded:
		if !p.ends {
			return final("it has ended by itself")
		}
		return nil
	case corev1.PodFailed:
		return s.failedError(p, o)
	case corev1.PodPending:
		return s.pendingError(p, o)
	}
	running := map[string]bool{}
	for _, c := range containerStatuses(o) {
		if c.State.Running == nil {
			continue
		}
		if p.tooBig {
			return final("%s runs, and is larger than any GPU", c.Name)
		}
		running[c.Name] = true
		if err := containerError(p, c, v); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		if p.ends || p.killedForGood(o) {
			continue
		}
		now := fmt.Sprintf("%s, restarted %d times", containerID(c), c.RestartCount)
		if was := p.stable[c.Name]; was != "" && was != now {
			return final("%s was instance %s, and is %s", c.Name, was, now)
		}
		p.stable[c.Name] = now
	}
	if p.tooBig { // the phase is Running while kubelet tries to start a container again
		return s.pendingError(p, o)
	}
	for name := range p.stable {
		switch {
		case running[name]:
		case p.kind == "init": // kubelet may be ending it: failedError tells whether it had a reason to
			return fmt.Errorf("%s has ended, and nothing has killed it", name)
		default:
			return final("%s has ended, and no one has killed it", name)
		}
	}
	for _, c := range o.Spec.Containers { // one that we have killed stays ended, unless kubelet is to start it again
		if !running[c.Name] && !p.ends && (!p.killed || o.Spec.RestartPolicy == corev1.RestartPolicyAlways) {
			return fmt.Errorf("%s does not run yet", c.Name)
		}
	}
	return nil
}

// failedError: a pod may fail because its program does, because kubelet found no agent when it admitted it, or because
// its GPU was lost before it could start. A restarted kubelet admits all pods again, and takes an init container that
// has ended for one that is yet to start. With no agent there, or with a GPU lost, it fails such a pod while it runs.
func (s *soak) failedError(p *soakPod, o *corev1.Pod) error {
	text := o.Status.Reason + " " + o.Status.Message
	for _, c := range containerStatuses(o) {
		if c.State.Terminated != nil {
			text += " " + c.State.Terminated.Message
		}
	}
	admission := strings.Contains(text, "UnexpectedAdmissionError")
	switch {
	case p.killedForGood(o):
	case len(p.stable) > 0 && admission && p.kind == "init":
		p.casualty(s, "readmission")
	case len(p.stable) > 0:
		return final("it ran, and has failed")
	case p.ends || p.killed:
	case admission:
		p.casualty(s, "admission")
	case strings.Contains(text, "made without its grant"):
		p.casualty(s, "grant")
	case slices.ContainsFunc(s.lostOnce, func(uuid string) bool {
		return strings.Contains(text, fmt.Sprintf("gpu %q: the driver has lost it", uuid))
	}):
		p.casualty(s, "lost") // its GPU went between its claim and its start, which is refused
	default:
		return final("it has failed")
	}
	return nil
}

// killedForGood tells of a pod of which we have killed a program that is not started again: kubelet ends the rest of
// it, sidecars last, or leaves its other containers running.
func (p *soakPod) killedForGood(o *corev1.Pod) bool {
	return p.killed && o.Spec.RestartPolicy == corev1.RestartPolicyNever
}

// casualty counts a pod that got no second chance.
func (p *soakPod) casualty(s *soak, why string) {
	if !p.killed {
		s.tally["casualties-"+why]++
	}
	p.killed = true
}

// pendingError: a pod may wait for room, for ever if there can be none.
func (s *soak) pendingError(p *soakPod, o *corev1.Pod) error {
	for _, c := range o.Status.Conditions {
		if c.Type == corev1.PodScheduled && strings.Contains(c.Message, "Insufficient kerf.dev/") {
			return nil
		}
	}
	if len(p.stable) > 0 && len(p.asks) > 0 && !p.ends {
		return final("it ran, and waits")
	}
	texts, err := p.events()
	if err != nil {
		return err
	}
	// Each try after a failed one is announced, within the same second.
	texts = slices.DeleteFunc(texts, func(text string) bool { return strings.HasPrefix(text, "SandboxChanged:") })
	if len(texts) > 0 && (strings.Contains(texts[len(texts)-1], "not enough free for") ||
		strings.Contains(texts[len(texts)-1], "will never give it")) {
		return nil
	}
	return fmt.Errorf("it waits, and not for room: %q", tail(strings.Join(texts, "\n"), 3))
}

// containerError compares what a running container has with what it asked for: at the driver, and to the agent.
func containerError(p *soakPod, c corev1.ContainerStatus, v sight) error {
	id, ask, asked := containerID(c), p.asks[c.Name], false
	if _, asked = p.asks[c.Name]; !asked {
		return withoutError(p, c, id, v)
	}
	at := slices.IndexFunc(v.status.Grants, func(g grant) bool { return g.ContainerID == id })
	if at < 0 {
		return fmt.Errorf("the agent shows no grant for %s", id)
	}
	g := v.status.Grants[at]
	if ask.whole > 0 {
		if len(g.Shares) != ask.whole || !g.Whole || g.Level != "exclusive" {
			return fmt.Errorf("%d whole GPUs were requested, the agent shows %+v", ask.whole, g)
		}
	} else if len(g.Shares) != 1 || g.Shares[0].Memory != ask.memory || g.Level != "driver" {
		return fmt.Errorf("%d bytes were requested, the agent shows %+v", ask.memory, g)
	}
	for _, gpu := range v.gpus {
		own := slices.ContainsFunc(g.Shares, func(f fragment) bool { return f.GPU == gpu.UUID })
		hard := uint64(0)
		for _, l := range v.limits {
			if l.GPU == gpu.UUID && strings.Contains(l.Cgroup, id) && l.Hard != nil {
				hard = *l.Hard
			}
		}
		switch {
		case own && ask.whole == 0 && hard != ask.memory:
			return fmt.Errorf("the driver holds it to %d on GPU %d, it requested %d", hard, gpu.Index, ask.memory)
		case own && ask.whole > 0 && hard != 0:
			return fmt.Errorf("the driver holds it to %d on GPU %d, which is all its own", hard, gpu.Index)
		case !own && hard > least, !own && hard == 0:
			return fmt.Errorf("the driver lets it take %d (0: all) of GPU %d, which is not its own", hard, gpu.Index)
		}
	}
	return nil
}

// withoutError: a container without a request holds nothing.
func withoutError(p *soakPod, c corev1.ContainerStatus, id string, v sight) error {
	if slices.ContainsFunc(p.initOnly(), func(name string) bool { return name == c.Name }) {
		return nil
	}
	for _, l := range v.limits {
		if strings.Contains(l.Cgroup, id) {
			return fmt.Errorf("it has requested nothing, and the driver has a limit for it: %+v", l)
		}
	}
	for _, s := range v.processes {
		if strings.Contains(s.Cgroup, id) {
			return fmt.Errorf("it has requested nothing, and is on a GPU: %+v", s)
		}
	}
	return nil
}

// initOnly are the containers that have a share and end before the others start.
func (p *soakPod) initOnly() []string {
	if p.kind == "init" {
		return []string{"before"}
	}
	return nil
}

// ledgerError: what the agent shows of its GPUs is the sum of its grants, none of which is of a pod that is gone.
func (s *soak) ledgerError(v sight) error {
	memory, part := map[string]uint64{}, map[string]uint32{}
	for _, g := range v.status.Grants {
		at := slices.IndexFunc(v.pods, func(o corev1.Pod) bool { return o.Name == g.Pod && string(o.UID) == g.PodUID })
		if at < 0 || v.pods[at].Status.Phase == corev1.PodSucceeded || v.pods[at].Status.Phase == corev1.PodFailed {
			return fmt.Errorf("grant %+v is of a pod that has ended or is gone", g)
		}
		for _, f := range g.Shares {
			memory[f.GPU] += f.Memory
			part[f.GPU] += f.Percent
		}
	}
	for _, g := range v.status.GPUs {
		if memory[g.UUID] != g.Granted || part[g.UUID] != g.Percent {
			return fmt.Errorf("GPU %d: %d bytes and %d percent are said to be granted, its grants are %d and %d",
				g.Index, g.Granted, g.Percent, memory[g.UUID], part[g.UUID])
		}
		// An agent that has just started, and has found no driver yet, knows the grants on a GPU and not its size; its
		// index is -1 then.
		if g.Index >= 0 && (g.Granted > g.Memory-g.Reserved || g.Percent > 100) {
			return final("GPU %d: %d bytes of %d and %d percent are granted", g.Index, g.Granted, g.Memory-g.Reserved,
				g.Percent)
		}
	}
	return nil
}

// driverError: every limit is a grant's.
func (s *soak) driverError(v sight) error {
	for _, l := range v.limits {
		if !slices.ContainsFunc(v.status.Grants, func(g grant) bool {
			return g.ContainerID != "" &&
				strings.Contains(l.Cgroup, g.ContainerID)
		}) {
			return fmt.Errorf("the driver has a limit that is of no grant: %+v", l)
		}
	}
	return nil
}

// nodeError: the agent is ready and warns of nothing but what the steps have done, and kubelet offers all.
func (s *soak) nodeError(v sight) error {
	if !v.status.Ready {
		return fmt.Errorf("the agent is not ready: %q", v.status.NotReady)
	}
	for _, w := range v.status.Warnings {
		// by a step, until the agent learns of the next
		if !slices.Contains(s.warnings, w) && !strings.HasPrefix(w, "the config has errors") {
			return fmt.Errorf("the agent warns: %s", w)
		}
	}
	var usable, percents, gpus int64
	for i, g := range v.status.GPUs {
		if g.Health != "healthy" {
			return fmt.Errorf("GPU %d is %s (%s)", i, g.Health, g.Reason)
		}
		usable += int64((g.Memory - g.Reserved) / gib)
		percents, gpus = percents+100, gpus+1
	}
	for resource, want := range map[string]int64{"kerf.dev/gpu-memory-gib": usable, "kerf.dev/gpu-percent": percents,
		"kerf.dev/gpu": gpus} {
		if all, free, err := s.capacity(resource); err != nil || all != want || free != want {
			return fmt.Errorf("kubelet offers %d of %d %s, want %d: %w", free, all, resource, want, errors.Join(err))
		}
	}
	return nil
}

// agentMemory is what the agent has resident.
func (s *soak) agentMemory() uint64 {
	s.Helper()
	most := uint64(0)
	for _, pid := range s.agentPIDs() {
		for line := range strings.Lines(s.node.in("cat", "/proc/"+pid+"/status").out) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
				n, _ := strconv.ParseUint(f[1], 10, 64)
				most = max(most, n<<10)
			}
		}
	}
	return most
}

var (
	anyUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	anyID  = regexp.MustCompile(`[0-9a-f]{24,64}`)
	token  = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)
	// socket is one of the device plugin: each start of an agent has its own.
	socket = regexp.MustCompile(`(kerf-[a-z-]+)-[a-z0-9]{8}(-[0-9]+)?\.sock`)
)

// nameless leaves the names of pods and containers out: the agent's own pod may be another at the end.
func (now remains) nameless() remains {
	out := remains{}
	for what, n := range maps.All(now) {
		what = anyID.ReplaceAllString(anyUID.ReplaceAllString(what, "UID"), "ID")
		out[socket.ReplaceAllString(token.ReplaceAllString(what, "kube-api-access"), "$1.sock")] += n
	}
	return out
}

// atRest is what there is on the node once a pod has come and gone.
func (s *soak) atRest() remains {
	s.Helper()
	warm := s.create(one("warm", gibs(1), "gpuload --json"))
	warm.phase(corev1.PodSucceeded)
	warm.delete()
	warm.released()
	s.pods = nil
	var last remains
	eventually(s, "a node at rest", func() error {
		r, err := s.remains()
		if err != nil {
			return err
		}
		before := last
		last = r.nameless()
		if more := before.more(last) + last.more(before); more != "" || before == nil {
			return fmt.Errorf("it changes:%s", more)
		}
		return nil
	})
	return last
}

// leavesNothing waits until there is no more on the node than before. A containerd that is killed while it starts a
// shim does not know it afterwards: it deletes the bundle and lets the process be. It does so on a node without Kerf
// too (lab/notes/measured.md), so that after such a kill shims that have nothing left are counted and not held against
// it.
func (s *soak) leavesNothing(before remains) {
	s.Helper()
	empty := 0
	defer func() {
		s.Logf("%d SIGKILLs of containerd left %d shims without bundle or child", s.killed, empty)
	}()
	eventually(s, "nothing left", func() error {
		now, err := s.remains()
		if err != nil {
			return err
		}
		now = now.nameless()
		if line := "containerd's shim " + emptyShim; s.killed > 0 {
			empty = now[line]
			delete(now, line)
		}
		if more := now.more(before); more != "" {
			return fmt.Errorf("there is more than before:%s", more)
		}
		record := s.node.in("cat", "/run/kerf/record.json")
		if record.err != nil || strings.Contains(record.out, `"id"`) {
			return fmt.Errorf("the record is not empty: %v", record)
		}
		return nil
	})
}
