// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// Hours, the most memory by a profile, the idle policy, and prices apply while the agent runs and a grant is active.
// They decide on new requests at once. The grant goes on, gets the idle warning, and costs what its time does.
func TestRulesOfUseComeLive(t *testing.T) {
	t.Parallel()
	document := func(pool, night, large, prices string) string {
		return head + "spec:\n" + prices + "  pools: [{name: default" + pool +
			"}]\n  profiles:\n  - {name: night, percent: 10" + night + "}\n  - {name: large, percent: 50" + large +
			"}\n"
	}
	m := newMachine(t, setup{hardware: "t4x4", noAgent: true})
	m.agentFlags = []string{"--config", m.write(document("", "", "", ""))}
	m.startAgent()
	m.ready()
	r := m.run(flags("--profile night --name idler"), hold())
	r.granted()
	if got := m.run(flags("--profile large"), []string{"true"}).wait(); got.code != 0 {
		t.Fatalf("before the change: %v", got)
	}
	const price = 1000
	never := time.Now().UTC().AddDate(0, 0, 3).Format("Mon") // a day that is neither today nor near it
	m.write(document(", idle: {timeout: 1m}", `, startWindows: ["`+never+` 00:00-24:00"]`, ", maxMemoryPerPod: 1GiB",
		fmt.Sprintf("  prices: {currency: EUR, perGPUHour: [{model: \"*\", price: %d}]}\n", price)))
	for profile, rule := range map[string]string{"night": "night.startWindows", "large": "large.maxMemoryPerPod"} {
		eventually(t, "refusal by "+rule, func() error {
			got := m.run(flags("--profile "+profile), []string{"true"}).wait()
			if got.code != 125 || !strings.Contains(got.err, rule) {
				return fmt.Errorf("profile %s: %v", profile, got)
			}
			return nil
		})
	}
	idle := fmt.Errorf("nothing was looked at")
	for end := time.Now().Add(5 * time.Minute); idle != nil; time.Sleep(time.Second) {
		if idle = nil; !strings.Contains(strings.Join(m.state().Warnings, "\n"),
			"has used no GPU time for 1m0s or longer") {
			if idle = fmt.Errorf("warnings %q", m.state().Warnings); time.Now().After(end) {
				t.Fatalf("who is idle: %v", idle)
			}
		}
	}
	r.end()
	type row struct {
		Labels  map[string]string `json:"labels"`
		Granted float64           `json:"grantedGPUHours"`
		Cost    *float64          `json:"cost"`
	}
	type report struct {
		Currency string `json:"currency"`
		Rows     []row  `json:"rows"`
	}
	eventually(t, "the price of a minute and more of a tenth of a GPU", func() error {
		got := decode[report](t, m.kerf("usage", "--by", "profile", "-o", "json").out)
		for _, one := range got.Rows {
			if one.Labels["profile"] != "night" {
				continue
			}
			if least := 0.1 / 60; got.Currency != "EUR" || one.Cost == nil || one.Granted < least/2 ||
				math.Abs(*one.Cost-price*one.Granted) > 1e-6*price {
				return fmt.Errorf("currency %q, %+v", got.Currency, one)
			}
			return nil
		}
		return fmt.Errorf("%+v", got)
	})
}
