// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/hooks/oci/wire"
)

// frameHead is what precedes a frame's body: "KRFH", the version, the body's length.
const frameHead = 9

// recorded are conversations of the first hook and the first agent, byte for byte. Do not generate the file again:
// hooks and agents of other versions say what it contains.
func recorded(t *testing.T) map[string]struct{ Request, Response string } {
	t.Helper()
	text, err := os.ReadFile("../wire/testdata/first.json")
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]struct{ Request, Response string }
	if err := json.Unmarshal(text, &all); err != nil || len(all) < 5 {
		t.Fatalf("%d conversations: %v", len(all), err)
	}
	return all
}

// said is a frame's body.
func said(t *testing.T, frame string) map[string]any {
	t.Helper()
	var fields map[string]any
	if len(frame) < frameHead {
		t.Fatalf("frame %q", frame)
	}
	if err := json.Unmarshal([]byte(frame[frameHead:]), &fields); err != nil {
		t.Fatalf("frame %q: %v", frame, err)
	}
	return fields
}

// TestTheFirstAgent: this hook says all that the first one said, in the same words, and obeys what the first agent
// answered.
func TestTheFirstAgent(t *testing.T) {
	for name, c := range recorded(t) {
		t.Run(name, func(t *testing.T) {
			path := socketPath(t)
			l := listen(t, path)
			got := make(chan string, 1)
			go func() {
				defer close(got)
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				frame := make([]byte, 64<<10)
				n, _ := conn.Read(frame) // a frame is one write
				got <- string(frame[:n])
				_, _ = io.WriteString(conn, c.Response)
			}()
			asked := said(t, c.Request)
			word := func(key string) string { s, _ := asked[key].(string); return s }
			pid, _ := asked["pid"].(float64)
			q := wire.Request{Container: word("container"), PID: int(pid), Amount: word("ask"), Grant: word("grant"),
				Version: word("version")}
			err := hook{dial: dial}.ask(t.Context(), path, q)
			l.Close()
			frame := <-got
			says := said(t, frame)
			if frame[:5] != c.Request[:5] {
				t.Errorf("it begins with %q, that of the first hook with %q", frame[:5], c.Request[:5])
			}
			for key, value := range asked { // fields that it does not know are nothing to the first agent
				if says[key] != value {
					t.Errorf("it says %s: %v, the first hook %v", key, says[key], value)
				}
			}
			answer := said(t, c.Response)
			reason, _ := answer["message"].(string)
			switch ok, retry := answer["ok"] == true, answer["retry"] == true; {
			case ok && err != nil, !ok && err == nil:
				t.Errorf("answered %v: %v", answer, err)
			case !ok && (isFinal(err) == retry || !strings.Contains(err.Error(), reason) || reason == ""):
				t.Errorf("answered %v: %v (final: %v)", answer, err, isFinal(err))
			}
		})
	}
}
