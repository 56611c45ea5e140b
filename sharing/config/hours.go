// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// Hours are hours of the week, by the clocks of a time zone.
type Hours struct {
	// Days has, from Sunday on, whether they begin on that day.
	Days [7]bool
	// From and To are minutes of the day, From from 0 to 1439 and To from 1 to 1440. Where To is not after From, they
	// go on past midnight into the next day.
	From, To int
	// Zone is the zone's name in the IANA database, empty for UTC.
	Zone string
}

const (
	minutesOfDay = 24 * 60
	hoursRemedy  = "write days, times and a time zone (UTC where there is none), such as Mon-Fri 20:00-06:00 " +
		"Europe/Berlin or Sat,Sun 00:00-24:00"
)

// Has reports whether the moment is one of the hours. Hours that a clock skips or has twice, when it is set for summer
// or winter, are skipped or had twice.
func (h Hours) Has(at time.Time) bool {
	clock, err := time.LoadLocation(h.Zone)
	if err != nil {
		return false // no document has such hours
	}
	at = at.In(clock)
	day, minute := int(at.Weekday()), at.Hour()*60+at.Minute()
	if h.To > h.From {
		return h.Days[day] && h.From <= minute && minute < h.To
	}
	return h.Days[day] && h.From <= minute || h.Days[(day+6)%7] && minute < h.To
}

// String is what ParseHours reads.
func (h Hours) String() string {
	var days []string
	for d := range 7 {
		if on := time.Weekday((d + 1) % 7); h.Days[on] { // from Monday on
			days = append(days, short(on))
		}
	}
	text := fmt.Sprintf("%02d:%02d-%02d:%02d", h.From/60, h.From%60, h.To/60, h.To%60)
	if h.Zone != "" {
		text += " " + h.Zone
	}
	if len(days) == 7 {
		return text
	}
	return strings.Join(days, ",") + " " + text
}

func short(d time.Weekday) string { return d.String()[:3] }

// valid reports whether ParseHours could have made it.
func (h Hours) valid() bool {
	_, err := zone(h.Zone)
	return err == nil && h.Days != [7]bool{} && h.From >= 0 && h.From < minutesOfDay && h.To > 0 && h.To <= minutesOfDay
}

// zone is the name of a time zone as Hours has it.
func zone(name string) (string, error) {
	if name == "" || name == time.UTC.String() {
		return "", nil
	}
	if name == time.Local.String() {
		return "", fmt.Errorf("%q is another zone on every machine: %w", name, sharing.ErrInvalid)
	}
	_, err := time.LoadLocation(name)
	return name, err
}

// ParseHours reads hours of the week: days (Mon, Mon-Fri, Sat,Sun; none for all), times (20:00-06:00), and the time
// zone of both (Europe/Berlin; none for UTC). The error is a *sharing.FieldError for field.
func ParseHours(field, s string) (Hours, error) {
	bad := func(problem string, args ...any) error {
		return sharing.Invalid(field, s, hoursRemedy, problem, args...)
	}
	var h Hours
	days, times, both := strings.Cut(s, " ")
	if !both || strings.Contains(days, ":") {
		days, times = "Mon-Sun", s
	}
	times, name, named := strings.Cut(times, " ")
	var err error
	if h.Zone, err = zone(name); err != nil || named && name == "" {
		return Hours{}, bad("names a time zone %q that there is not", name)
	}
	for part := range strings.SplitSeq(days, ",") {
		first, last, span := strings.Cut(part, "-")
		if !span {
			last = first
		}
		from, to := weekday(first), weekday(last)
		if from < 0 || to < 0 {
			return Hours{}, bad("names a day %q that there is not", part)
		}
		for d := from; ; d = (d + 1) % 7 {
			if h.Days[d] = true; d == to {
				break
			}
		}
	}
	from, to, ok := strings.Cut(times, "-")
	var good, fine bool
	h.From, good = clockTime(from)
	h.To, fine = clockTime(to)
	if !ok || !good || !fine || !h.valid() {
		return Hours{}, bad("has no times of the day from 00:00 to 24:00")
	}
	return h, nil
}

// weekday is a day from 0 for Sunday, -1 for none.
func weekday(s string) int {
	return slices.IndexFunc([]int{0, 1, 2, 3, 4, 5, 6}, func(d int) bool { return short(time.Weekday(d)) == s })
}

func clockTime(s string) (int, bool) {
	if len(s) != len("00:00") || s[2] != ':' {
		return 0, false
	}
	hour, err := strconv.ParseUint(s[:2], 10, 8)
	minute, wrong := strconv.ParseUint(s[3:], 10, 8)
	total := int(hour)*60 + int(minute)
	return total, err == nil && wrong == nil && minute < 60 && total <= minutesOfDay
}
