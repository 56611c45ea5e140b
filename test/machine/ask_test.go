// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/present"
)

// The suite asks the agent some thousand times. It does so as kerf does, but starts no process each time: that took a
// fifth of the suite's processor time. Tests of commands run kerf itself.

// answerTime is how long one question to the agent may take on a busy machine.
const answerTime = time.Minute

// state is what kerf status -o json prints.
func (m *machine) state() status {
	m.t.Helper()
	text, err := m.statusText()
	if err != nil {
		m.t.Fatalf("status of the agent: %v", err)
	}
	s := decode[status](m.t, string(text))
	for _, g := range s.Grants {
		if g.Cgroup != "" {
			m.parent = parentOf(g.Cgroup)
		}
	}
	return s
}

func (m *machine) statusText() ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	client, err := nodeclient.New(m.dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	node, err := client.Node(ctx)
	if err != nil {
		return nil, err
	}
	return present.JSON(present.FromNode(node), false)
}

// metrics is what kerf metrics prints.
func (m *machine) metrics() string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	var text bytes.Buffer
	if err := nodeclient.Metrics(ctx, m.dir, &text); err != nil {
		m.t.Fatalf("metrics of the agent: %v", err)
	}
	return text.String()
}

// ready waits until the agent takes grants.
func (m *machine) ready() {
	m.t.Helper()
	if err := m.await(func(p *nodeapi.GetNodeResponse) bool { return p.GetReady() }); err != nil {
		m.t.Fatalf("agent does not become ready: %v\nagent's log:\n%s", err, tail(m.agent.stderr()))
	}
}

// noGrants waits until nothing is granted.
func (m *machine) noGrants() {
	m.t.Helper()
	m.noGrantsBut(0)
}

// noGrantsBut waits until so many are left.
func (m *machine) noGrantsBut(n int) {
	m.t.Helper()
	if err := m.await(func(p *nodeapi.GetNodeResponse) bool { return len(p.GetGrants()) == n }); err != nil {
		m.t.Fatalf("grants do not become %d: %v", n, err)
	}
}

// await returns nil once the agent sends a status with the condition, as kerf status --wait does. It waits while the
// agent restarts.
func (m *machine) await(holds func(*nodeapi.GetNodeResponse) bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), *patience)
	defer cancel()
	seen, done := "nothing", errors.New("the condition holds")
	err := nodeclient.WatchReconnecting(ctx, m.dir, time.Second, func(p *nodeapi.GetNodeResponse) error {
		seen = fmt.Sprintf("ready %v (%q), %d grants", p.GetReady(), p.GetNotReady(), len(p.GetGrants()))
		if holds(p) {
			return done
		}
		return nil
	}, func(err error) error {
		seen = err.Error()
		return nil
	})
	if errors.Is(err, done) {
		return nil
	}
	return fmt.Errorf("%w; last seen: %s", err, seen)
}
