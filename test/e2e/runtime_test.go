// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// blocked returns nil when the agent is not ready for pods and says so with these words.
func (e *testCase) blocked(words ...string) error {
	s, err := e.status()
	if err != nil {
		return err
	}
	all := strings.Join(append(s.NotReady, s.Warnings...), "\n")
	for _, w := range words {
		if !strings.Contains(all, w) {
			return fmt.Errorf("kerf status says %q", all)
		}
	}
	if e.agentReady() == nil {
		return fmt.Errorf("its pod is ready")
	}
	return nil
}

// Where NVIDIA's runtime is the default and believes the environment, any image could have every GPU: the agent is
// not ready, says what to do, and no pod gets a grant until it is done.
func TestDefaultRuntimeThatBelieves(t *testing.T) {
	e := beginWithAgent(t)
	warnings := e.picture().Warnings
	before := e.create(one("before", gibs(2), hold))
	before.running()
	held := e.heldBy(before)
	config := filepath.Join(e.node.env["CONF"], "containerd.toml")
	shipped, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	use := func(text string) {
		t.Helper()
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		e.node.restart(t, "containerd")
	}
	t.Cleanup(func() {
		e.node.in("rm", "-f", toolkitConfig)
		use(string(shipped))
		e.waitForAgent()
		eventually(e, "the warnings of before", func() error {
			s, err := e.status()
			if err != nil || !slices.Equal(s.Warnings, warnings) {
				return fmt.Errorf("the agent warns %q, not %q: %w", s.Warnings, warnings, errors.Join(err))
			}
			return nil
		})
	})
	changed := strings.Replace(string(shipped), `default_runtime_name = "runc"`, `default_runtime_name = "nvidia"`, 1)
	if changed == string(shipped) {
		t.Fatal("containerd's configuration names no default runtime")
	}
	use(changed)
	const remedy = "accept-nvidia-visible-devices-envvar-when-unprivileged = false"
	eventually(e, "an agent that is not ready", func() error { return e.blocked("default runtime", remedy) })
	waits := e.create(one("waits", gibs(2), hold))
	waits.event(remedy)
	if o := waits.get(); o.Status.Phase != corev1.PodPending || len(waits.seen) > 0 {
		t.Errorf("%s", describe(o))
	}
	e.wantSame(held, before)
	// The remedy, as the message has it.
	r := e.node.in("/bin/sh", "-c", "mkdir -p $(dirname "+toolkitConfig+") && echo '"+remedy+"' >"+toolkitConfig)
	if r.err != nil {
		t.Fatal(r)
	}
	e.waitForAgent()
	waits.running()
	e.wantHeld(waits, "main", share(2*gib, 0))
	e.wantSame(held, before)
}

// toolkitConfig is the configuration of NVIDIA's container toolkit.
const toolkitConfig = "/etc/nvidia-container-runtime/config.toml"
