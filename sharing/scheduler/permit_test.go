// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/scheduler"
)

// A pod that a rule of its profile rejects fits nowhere, and the text names the rule. Another pod of its kind, and the
// same one in another hour, may fit.
func TestProfileRules(t *testing.T) {
	t.Parallel()
	hours, err := config.ParseHours("hours", "Thu 12:00-13:00") // 2026-01-01 was a Thursday
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.New(config.Spec{Pools: config.Default().Pools(), Profiles: []config.Profile{
		{Name: "own", Memory: 10 * sharing.GiB, Namespaces: []string{"ns"}},
		{Name: "noon", Memory: 10 * sharing.GiB, Hours: []config.Hours{hours}},
		{Name: "half", Percent: 50, MaxPerPod: 60 * sharing.GiB},
	}})
	if err != nil {
		t.Fatal(err)
	}
	b := clusterStateOf(1, 2)
	b.Configure(c)
	fit := func(name, namespace string, at time.Time, pod sharing.Pod, refused string) {
		t.Helper()
		pod.Namespace = namespace
		b.Heartbeat("n00", at, time.Hour, at)
		v := b.Fit(want(t, pod), "n00", at)
		if ok := v.Reason == scheduler.Fits; ok != (refused == "") || !ok &&
			(v.Reason != scheduler.Refused || !strings.Contains(v.Text, refused)) {
			t.Errorf("%s: %v: %s", name, v.Reason, v.Text)
		}
	}
	pod := func(profile string, gib int) sharing.Pod { return podOf("p", memory(gib), "kerf.dev/profile", profile) }
	fit("its namespace", "ns", noon(), pod("own", 10), "")
	fit("another namespace", "web", noon(), pod("own", 10), "own.namespaces")
	fit("its hour", "ns", noon(), pod("noon", 10), "")
	fit("another hour", "ns", noon().Add(time.Hour), pod("noon", 10), "noon.startWindows")
	fit("within bounds", "ns", noon().Add(time.Hour), podOf("p", map[string]string{sharing.ResourcePercent: "50"},
		"kerf.dev/profile", "half"), "")
	two := podOf("p", map[string]string{sharing.ResourcePercent: "50"}, "kerf.dev/profile", "half")
	two.Containers = append(two.Containers, sharing.PodContainer{Name: "second", Limits: two.Containers[0].Limits})
	fit("too much in all", "ns", noon().Add(time.Hour), two, "half.maxMemoryPerPod")
}
