// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// takes is a program that takes memory and runs until it is killed.
func takes(gibs int) string { return fmt.Sprintf("exec gpuload --json --alloc %dGiB --hold 6h", gibs) }

// begin creates n random pods.
func (s *soak) begin(r *rand.Rand, n int) {
	s.Helper()
	for range n {
		p := s.draw(r)
		restart, grace, spread := r.IntN(2) == 0, int64(r.IntN(2)), r.IntN(4) == 0
		p.spec.name = fmt.Sprintf("%s-%d", p.kind, s.made)
		s.made++
		if restart {
			p.spec.restart = corev1.RestartPolicyAlways
		}
		if spread {
			p.spec.annotations = map[string]string{"kerf.dev/placement-policy": "spread"}
		}
		p.spec.edit = func(o *corev1.Pod) { o.Spec.TerminationGracePeriodSeconds = &grace }
		p.pod = s.create(p.spec)
		s.Logf("  %s, restartPolicy %s", p.name, p.spec.object("").Spec.RestartPolicy)
		s.live = append(s.live, &p.soakPod)
	}
}

// drawn is a pod that does not exist yet.
type drawn struct {
	soakPod
	spec podSpec
}

// draw makes up a pod.
func (s *soak) draw(r *rand.Rand) drawn {
	n, m, pc, w := 1+r.IntN(20), 1+r.IntN(10), 1+r.IntN(50), 1+r.IntN(2)
	gpu := s.node.gpus(s.T)[0]
	mem := func(n int) soakAsk { return soakAsk{memory: uint64(n) * gib} }
	asks := func(of ...any) map[string]soakAsk {
		out := map[string]soakAsk{}
		for i := 0; i < len(of); i += 2 {
			out[of[i].(string)] = of[i+1].(soakAsk)
		}
		return out
	}
	d := func(kind string, spec podSpec, asks map[string]soakAsk) drawn {
		return drawn{soakPod{kind: kind, asks: asks, stable: map[string]string{}}, spec}
	}
	switch r.IntN(13) {
	default:
		return d("gib", one("", gibs(n+1), takes(n)), asks("main", mem(n+1)))
	case 1:
		return d("percent", one("", percent(pc), hold), asks("main", soakAsk{memory: gpu.shareOf(uint64(pc))}))
	case 2:
		return d("both", one("", both(gibs(n+1), percent(pc)), takes(n)), asks("main", mem(n+1)))
	case 3:
		return d("whole", one("", wholeGPUs(w), takes(n)), asks("main", soakAsk{whole: w}))
	case 4:
		spec := podSpec{containers: []container{{name: "a", run: takes(n), limits: gibs(n + 1)}, {name: "b", run: hold},
			{name: "c", run: hold, limits: gibs(m)}}}
		return d("three", spec, asks("a", mem(n+1), "c", mem(m)))
	case 5:
		spec := one("", gibs(n+1), takes(n))
		spec.init = []container{{name: "before", run: "gpuload --json", limits: gibs(m)}}
		return d("init", spec, asks("main", mem(n+1)))
	case 6:
		spec := one("", gibs(n+1), takes(n))
		spec.init = []container{{name: "side", run: hold, limits: gibs(m), sidecar: true},
			{name: "before", run: "true"}}
		return d("sidecar", spec, asks("main", mem(n+1), "side", mem(m)))
	case 7:
		p := d("crash", one("", gibs(n), "gpuload --json; exit 1"), asks("main", mem(n)))
		p.ends = true
		return p
	case 8:
		p := d("ends", one("", gibs(n+1), fmt.Sprintf("gpuload --json --alloc %dGiB --hold 2s", n)),
			asks("main", mem(n+1)))
		p.ends = true
		return p
	case 9:
		p := d("big", one("", gibs(100), hold), nil)
		p.tooBig = true
		return p
	case 10:
		spec := one("", nil, "gpuload --json; "+hold)
		spec.containers[0].image, spec.runtimeClass = "kerf.test/greedy:1", "nvidia"
		return d("greedy", spec, nil)
	case 11:
		return d("past", one("", gibs(m),
			fmt.Sprintf("gpuload --json --alloc %dGiB; exec gpuload --json --step 256MiB --alloc %dGiB --hold 6h || %s",
				m+1, m, hold)), asks("main", mem(m)))
	}
}

// remove deletes pods; grace below 0 leaves it to the pod.
func (s *soak) remove(pods []*soakPod, grace int64) {
	s.Helper()
	for _, p := range pods {
		_, _ = p.fetch() // to have seen its containers
		var o metav1.DeleteOptions
		if grace >= 0 {
			o.GracePeriodSeconds = &grace
		}
		p.deleted = true
		s.Logf("  %s", p.name)
		eventually(s, "deletion of "+p.name, func() error {
			err := s.client.CoreV1().Pods(p.namespace).Delete(background(), p.name, o)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
	}
}

// killProgram kills what runs in a container that has a share.
func (s *soak) killProgram(r *rand.Rand) {
	s.Helper()
	var all []grant
	for _, g := range s.picture().Grants {
		if g.Namespace == s.namespace && len(g.PIDs) > 0 {
			all = append(all, g)
		}
	}
	at := r.IntN(1 << 20)
	if len(all) == 0 {
		return
	}
	g := all[at%len(all)]
	s.Logf("  %s/%s", g.Pod, g.UsedBy)
	for _, p := range s.live {
		if p.name != g.Pod {
			continue
		}
		p.killed = true
		clear(p.stable)
		for _, pid := range g.PIDs {
			s.node.in("kill", "-KILL", fmt.Sprint(pid)) // it may have ended
		}
		eventually(s, "end of the program in "+p.name, func() error {
			o, err := p.fetch()
			if apierrors.IsNotFound(err) {
				return nil
			}
			for _, c := range containerStatuses(o) {
				if containerID(c) == g.ContainerID && c.State.Running != nil {
					return fmt.Errorf("%s", describe(o))
				}
			}
			return err
		})
	}
}

// endAgent kills the agent's process. kubelet starts it again, and waits longer before each start of the same pod's:
// after the second one there is another pod.
func (s *soak) endAgent() {
	s.Helper()
	pods, err := s.agentPods()
	if err != nil {
		s.Fatal(err)
	}
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			if c.RestartCount >= 2 {
				s.Logf("  the agent's pod is replaced first")
				s.replaceAgent()
			}
		}
	}
	s.signalAgent("KILL")
}

// killDaemon kills one of the node's; "up" starts it again.
func (s *soak) killDaemon(name string) {
	s.Helper()
	if name == "containerd" {
		s.killed++
	}
	s.node.do(s.T, "kill", name, "KILL")
}

// loseGPU lets one fall off the bus and come back, with pods that are created and perhaps an agent that ends in
// between.
func (s *soak) loseGPU(r *rand.Rand) {
	s.Helper()
	n, kill, pods := r.IntN(8), r.IntN(3) == 0, r.IntN(3)
	s.Logf("  GPU %d; the agent is killed meanwhile: %t", n, kill)
	s.lost = n
	s.lostOnce = append(s.lostOnce, s.node.gpus(s.T)[n].UUID)
	s.node.set(s.T, fmt.Sprintf("gpu=%d lost=true", n))
	eventually(s, "news of the lost GPU", func() error {
		p, err := s.status()
		if err == nil && p.GPUs[n].Health == "healthy" {
			err = fmt.Errorf("GPU %d is still healthy to the agent", n)
		}
		return err
	})
	s.begin(r, pods)
	s.pause(r)
	if kill {
		s.endAgent()
	}
	s.mendGPU()
}

func (s *soak) mendGPU() {
	s.Helper()
	if s.lost >= 0 {
		s.node.set(s.T, fmt.Sprintf("gpu=%d lost=false", s.lost))
		s.lost = -1
	}
}

// changeRules writes other rules, some of them with an error; the agent learns of them when kubelet has brought them to
// it, at some later step.
func (s *soak) changeRules(r *rand.Rand) {
	s.Helper()
	text := s.rules
	switch n := r.IntN(4); {
	case n < 2:
		text = strings.ReplaceAll(text, "placementPolicy: pack", "placementPolicy: spread")
	case n == 2:
		text = strings.ReplaceAll(text, "placementPolicy: pack", "placementPolicy: wherever")
	}
	s.Logf("  other rules: %t, with an error: %t", text != s.rules, strings.Contains(text, "wherever"))
	s.writeRules(text)
}

func (s *soak) currentRules() string {
	s.Helper()
	rules := s.readRules()
	if !strings.Contains(rules, "placementPolicy: pack") {
		s.Fatalf("the rules do not pack: %q", rules)
	}
	return rules
}

// mendAll ends what the steps have broken.
func (s *soak) mendAll() {
	s.node.do(s.T, "up")
	s.mendGPU()
	if s.rules != "" {
		s.writeRules(s.rules)
	}
}
