// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

func TestHours(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Mon-Fri 20:00-06:00": "Mon,Tue,Wed,Thu,Fri 20:00-06:00", "Sat,Sun 00:00-24:00": "Sat,Sun 00:00-24:00",
		"22:30-06:00":         "22:30-06:00",
		"Fri-Mon 08:00-09:00": "Mon,Fri,Sat,Sun 08:00-09:00", "Mon-Sun 00:00-24:00": "00:00-24:00",
		"Wed 10:00-10:00":               "Wed 10:00-10:00",
		"Mon 08:00-09:00 Europe/Berlin": "Mon 08:00-09:00 Europe/Berlin",
		"08:00-09:00 Asia/Kolkata":      "08:00-09:00 Asia/Kolkata", "Mon 08:00-09:00 UTC": "Mon 08:00-09:00",
	} {
		h, err := ParseHours("hours", text)
		again, errAgain := ParseHours("hours", h.String())
		if err != nil || h.String() != want || errAgain != nil || again != h {
			t.Errorf("%q is %q (%v, %v)", text, h, err, errAgain)
		}
	}
	for _, text := range []string{"", "Mon", "Mon 8-9", "mon 08:00-09:00", "Mon 08:00-25:00", "Mon 08:00-00:00",
		"Mon 24:00-06:00", "Mon  08:00-09:00", "Mon,,Tue 08:00-09:00", "08:60-09:00", "08:00 09:00", "+8:00-09:00",
		"Mon 08:00-09:00 Berlin", "Mon 08:00-09:00 Local", "Mon 08:00-09:00 ", "08:00-09:00 Europe/Berlin CET",
		"Mon 08:00-09:00 ../etc"} {
		if h, err := ParseHours("hours", text); err == nil {
			t.Errorf("%q is taken as %q", text, h)
		}
	}
}

// Hours are as many minutes of the week as they say, each in the place that a plain count of minutes finds.
func TestHoursHave(t *testing.T) {
	t.Parallel()
	monday := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	for text, spans := range map[string][][2]int{ // minutes of the week from Monday
		"Mon 08:00-09:00":     {{8 * 60, 9 * 60}},
		"Tue 22:00-02:00":     {{24*60 + 22*60, 48*60 + 2*60}},
		"Sun 22:00-02:00":     {{6*1440 + 22*60, 7 * 1440}, {0, 2 * 60}},
		"Sat,Sun 00:00-24:00": {{5 * 1440, 7 * 1440}},
		"Wed 10:00-10:00":     {{2*1440 + 600, 3*1440 + 600}},
	} {
		h, err := ParseHours("hours", text)
		if err != nil {
			t.Fatal(err)
		}
		for m := range 7 * 1440 {
			want := false
			for _, s := range spans {
				want = want || s[0] <= m && m < s[1]
			}
			at := monday.Add(time.Duration(m) * time.Minute).In(time.FixedZone("elsewhere", 5*3600))
			if h.Has(at) != want {
				t.Fatalf("%q at %v: %v", text, at.UTC().Format("Mon 15:04"), !want)
			}
		}
	}
}

// Hours of a zone are by its clocks, which are set for summer and winter.
func TestHoursOfAZone(t *testing.T) {
	t.Parallel()
	h, err := ParseHours("hours", "Mon-Fri 20:00-06:00 Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]bool{
		// an hour ahead
		"2026-01-05T18:59:00Z": false, "2026-01-05T19:00:00Z": true, "2026-01-06T04:59:00Z": true,
		"2026-01-06T05:00:00Z": false,
		// two
		"2026-07-06T17:59:00Z": false, "2026-07-06T18:00:00Z": true, "2026-07-07T03:59:00Z": true,
		"2026-07-07T04:00:00Z": false,
		"2026-07-12T22:30:00Z": false, // Monday there, and the night of Sunday
	} {
		moment, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		if h.Has(moment) != want {
			t.Errorf("%s: %v", at, !want)
		}
	}
	if (Hours{Days: [7]bool{true}, To: 60, Zone: "Nowhere/Land"}).Has(time.Date(2026, 3, 1, 0, 30, 0, 0, time.UTC)) {
		t.Error("hours of a zone that there is not")
	}
}

func TestPermit(t *testing.T) {
	t.Parallel()
	c := decode(t, head+`spec:
  pools: [{name: a}]
  profiles:
  - {name: free, percent: 10}
  - {name: night, percent: 50, namespaces: [ml-*, "!ml-test"], startWindows: ["Mon-Fri 20:00-06:00"],
    maxMemoryPerPod: 20GiB}
`)
	day := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	night := day.Add(10 * time.Hour)
	for name, tt := range map[string]struct {
		profile, namespace string
		at                 time.Time
		want               []string
	}{
		"no profile": {"", "web", day, nil}, "one that is gone": {"gone", "web", day, nil},
		"no rules": {"free", "", day, nil},
		"in order": {"night", "ml-a", night, nil},
		"not the hours": {"night", "ml-a", day,
			[]string{
				`profile "night" is for the hours Mon,Tue,Wed,Thu,Fri 20:00-06:00 (in UTC where no zone is named), ` +
					`and it is Mon 12:00 UTC (spec.profiles, night.startWindows)`}},
		"all wrong": {"night", "web", day,
			[]string{
				`profile "night" is for the namespaces ml-*, !ml-test, not for "web" (spec.profiles, night.namespaces)`,
				"night.startWindows"}},
		"but one": {"night", "ml-test", night, []string{`not for "ml-test"`}},
		"of no pod": {"night", "", night,
			[]string{"a process outside pods has none (spec.profiles, night.namespaces)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.Permit(tt.profile, tt.namespace, tt.at)
			if len(tt.want) > 0 {
				checkLines(t, err, tt.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	if err := c.PermitMemory("night", 20*sharing.GiB); err != nil {
		t.Error(err)
	}
	checkLines(t, c.PermitMemory("night", 20*sharing.GiB+1), []string{`profile "night" gives one pod at most 20GiB`})
	if err := c.PermitMemory("free", sharing.TiB); err != nil {
		t.Error(err)
	}
}

func TestRuleMistakes(t *testing.T) {
	t.Parallel()
	_, err := Decode([]byte(head + `spec:
  pools: [{name: a}]
  profiles:
  - {name: a, memory: 10GiB, namespaces: [], startWindows: [], maxMemoryPerPod: 5GiB, allowPrivileged: true}
  - {name: b, percent: 10, namespaces: ["["], startWindows: ["at night", 8]}
`))
	checkLines(t, err, []string{
		"line 6: spec.profiles[0].namespaces is an empty list",
		"line 6: spec.profiles[0].startWindows is an empty list",
		`line 6: spec.profiles[0].allowPrivileged "true" lets everybody have privileged containers`,
		`line 6: spec.profiles[0].maxMemoryPerPod "5GiB" is less than the 10GiB of one container`,
		`line 7: spec.profiles[1].startWindows[0] "at night" names a day "at" that there is not; write days, times ` +
			`and a time zone`, `line 7: spec.profiles[1].startWindows[1] "8" is not a text`,
		`line 7: spec.profiles[1].namespaces[0] "["`,
	})
}
