// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"errors"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

// ParseFields reads the file by which dcgm-exporter is told what to expose: lines of "FIELD, gauge|counter|label,
// help", comments after "#". Second come the names of fields that the monitor does not have, which is no
// error, since the file is one that works for dcgm-exporter; labels are passed over, because the driver's version is always one. The
// error holds a *sharing.FieldError for each line that is none, and for a field that stands twice.
func ParseFields(text string) ([]collect.FieldInfo, []string, error) {
	known := map[string]collect.FieldInfo{}
	for _, f := range collect.Fields() {
		known[f.Name] = f
	}
	seen, fields := map[string]bool{}, []collect.FieldInfo{}
	var others []string
	var errs []error
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		where := "line " + strconv.Itoa(n)
		parts := strings.SplitN(line, ",", 3)
		if len(parts) != 3 {
			errs = append(errs, sharing.Invalid(where, line, "write FIELD, gauge, help", "has %d columns", len(parts)))
			continue
		}
		name, kind, help := strings.TrimSpace(parts[0]), strings.TrimSpace(parts[1]), strings.TrimSpace(parts[2])
		if seen[name] {
			errs = append(errs, sharing.Invalid(where, name, "take one of the lines out", "stands twice"))
			continue
		}
		seen[name] = true
		f, ok := known[name]
		switch kind {
		case "gauge":
			f.Kind = collect.Gauge
		case "counter":
			f.Kind = collect.Counter
		case "label":
			continue
		default:
			errs = append(errs, sharing.Invalid(where, kind, "write gauge, counter or label", "is not a kind"))
			continue
		}
		if !ok {
			others = append(others, name)
			continue
		}
		if help != "" {
			f.Help = help
		}
		fields = append(fields, f)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	return fields, others, nil
}
