// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

func TestMarkOf(t *testing.T) {
	gpu := func(h sharing.Health, why string) sharing.GPU {
		return sharing.GPU{UUID: "GPU-1", Health: h, HealthReason: why}
	}
	well, lost, suspect := gpu(sharing.HealthOK, ""), gpu(sharing.HealthLost, "XID 79"),
		gpu(sharing.HealthSuspect, "hangs")
	for name, tc := range map[string]struct {
		mode           config.NodeMark
		gpus           []sharing.GPU
		healthy, taint bool
		text           string
	}{
		"all are well": {config.NodeMarkTaint, []sharing.GPU{well, gpu(sharing.HealthUnknown, "")}, true,
			false, ""},
		"one is lost":       {config.NodeMarkTaint, []sharing.GPU{well, lost}, false, true, "lost: XID 79"},
		"a condition alone": {config.NodeMarkCondition, []sharing.GPU{lost}, false, false, "lost: XID 79"},
		"a suspect":         {config.NodeMarkTaint, []sharing.GPU{suspect}, false, false, "suspect: hangs"},
		"the driver went away": {config.NodeMarkTaint, []sharing.GPU{gpu(sharing.HealthUnknown, "no driver")}, false,
			true, "no driver"},
		"no GPU was looked for": {config.NodeMarkTaint, nil, true, false, ""},
	} {
		m := markOf(tc.mode, tc.gpus)
		if m.Clear || m.Healthy != tc.healthy || m.Taint != tc.taint || !strings.Contains(m.Message, tc.text) ||
			m.Reason == "" {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if m := markOf(config.NodeMarkNone, []sharing.GPU{lost}); !m.Clear || m.Taint {
		t.Errorf("no mark: %+v", m)
	}
}

func TestLeaving(t *testing.T) {
	keys := []string{"spot/itn", "going"}
	if why := leaving(keys, []string{"a", "going"}); !strings.Contains(why, "taint going") {
		t.Errorf("%q", why)
	}
	if why := leaving(keys, []string{"a", "spot"}); why != "" {
		t.Errorf("%q", why)
	}
}
