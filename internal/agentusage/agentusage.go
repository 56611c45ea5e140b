// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package agentusage reads what an agent answers about usage: the prices of its config, then entries of its audit log.
package agentusage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/audit"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/usage"
)

// Read reads an agent's answer. NameOf names the user of a process outside pods.
func Read(in io.Reader, nameOf func(uid uint32) string) (parts []usage.Part, prices config.Prices, err error) {
	d := json.NewDecoder(in)
	if err := d.Decode(&prices); err != nil {
		return nil, prices, fmt.Errorf("read prices: %w (%w)", err, sharing.ErrInvalid)
	}
	for {
		var e audit.Entry
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return parts, prices, nil
		} else if err != nil {
			return nil, prices, fmt.Errorf("read an entry: %w (%w)", err, sharing.ErrInvalid)
		}
		who := audit.Subject{}
		if e.Subject != nil {
			who = *e.Subject
		}
		for _, r := range e.Usage {
			values := map[string]string{
				"namespace": who.Namespace, "pod": who.Pod, "container": who.Container, "user": userOf(who, nameOf),
				"profile": e.Profile, "level": e.Level, "model": r.Model, "node": e.Node,
				"claim": sharing.ClaimNames(who.Claims),
			}
			for k, v := range who.Labels {
				values[usage.LabelKey+k] = v
			}
			parts = append(parts, usage.Part{Record: r, Labels: values})
		}
	}
}

// userOf names the user of a process outside pods, on the agent's machine.
func userOf(w audit.Subject, nameOf func(uid uint32) string) string {
	if w.PodUID != "" {
		return ""
	}
	return nameOf(w.UID)
}
