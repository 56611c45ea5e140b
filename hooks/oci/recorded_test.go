// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

// TestTheFirstHook: the server understands the requests of the first hook, and answers in its form. Programs of that
// time recorded the conversations; do not generate the file again.
func TestTheFirstHook(t *testing.T) {
	text, err := os.ReadFile("wire/testdata/first.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]struct{ Request, Response string }
	if err := json.Unmarshal(text, &all); err != nil || len(all) < 5 {
		t.Fatalf("%d conversations: %v", len(all), err)
	}
	const head = 9 // "KRFH", the version, the body's length
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			var asked sharing.HookCall
			r := start(t, armer(func(_ context.Context, call sharing.HookCall) error {
				asked = call
				switch name { // as the agent did that was recorded
				case "retry":
					return fmt.Errorf("agent is not ready: no driver has been found yet: %w", sharing.ErrUnavailable)
				case "refused":
					return fmt.Errorf("container %q was made without its grant: %w", call.ContainerID,
						sharing.ErrDenied)
				}
				return nil
			}), nil)
			conn := r.dial(t)
			if _, err := io.WriteString(conn, c.Request); err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(conn)
			if err != nil || len(answer) < head || string(answer[:5]) != c.Response[:5] {
				t.Fatalf("answered %q, %v", answer, err)
			}
			if err := r.stop(); err != nil { // asked is written by then
				t.Fatal(err)
			}
			var q struct {
				Container  string
				PID        int
				Ask, Grant string
			}
			if err := json.Unmarshal([]byte(c.Request[head:]), &q); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(sharing.HookCall{ContainerID: q.Container, PID: q.PID, Amount: q.Ask, Grant: q.Grant},
				asked); d != "" {
				t.Errorf("understood (-want +got):\n%s", d)
			}
			was, is := map[string]any{}, map[string]any{}
			if err := json.Unmarshal([]byte(c.Response[head:]), &was); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(answer[head:], &is); err != nil {
				t.Fatalf("answered %q: %v", answer, err)
			}
			for key, value := range was { // fields that it does not know are nothing to it
				if key != "version" && is[key] != value {
					t.Errorf("answered %s: %v, the first agent %v", key, is[key], value)
				}
			}
			if v, ok := is["version"].(string); !ok || !strings.HasPrefix(v, "v") {
				t.Errorf("its version is %v", is["version"])
			}
		})
	}
}
