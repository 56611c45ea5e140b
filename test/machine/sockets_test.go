// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// get asks the agent's HTTP socket.
func (m *machine) get(method, path string) (int, string) {
	m.t.Helper()
	client := http.Client{Timeout: *patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", m.dir+"/http.sock")
		}}}
	req, err := http.NewRequestWithContext(m.t.Context(), method, "http://agent"+path, http.NoBody)
	if err != nil {
		m.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		m.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// The agent lives without a driver and is not ready; nothing but what is read is answered.
func TestProbes(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4", noDriver: true, noAgent: true})
	m.startAgent()
	eventually(t, "HTTP socket", func() error { return connectStream(m.dir + "/http.sock") })
	if code, body := m.get("GET", "/healthz"); code != 200 {
		t.Errorf("/healthz without a driver: %d %s", code, body)
	}
	// the socket is there before the agent first searches it
	eventually(t, "/readyz that names the library it looked for", func() error {
		code, body := m.get("GET", "/readyz")
		if code != 503 {
			t.Fatalf("/readyz without a driver: %d %s", code, body)
		}
		if !strings.Contains(body, "NVML") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	m.startDriver()
	m.ready()
	if code, body := m.get("GET", "/readyz"); code != 200 {
		t.Errorf("/readyz: %d %s", code, body)
	}
	if code, body := m.get("GET", "/metrics"); code != 200 || !strings.Contains(body, "kerf_agent_ready 1") {
		t.Errorf("/metrics: %d", code)
	}
	for _, ask := range []string{"GET /", "GET /debug/pprof/", "GET /debug/vars", "POST /metrics", "PUT /readyz",
		"DELETE /metrics"} {
		method, path, _ := strings.Cut(ask, " ")
		if code, _ := m.get(method, path); code != 404 && code != 405 {
			t.Errorf("%s: %d, want 404 or 405", ask, code)
		}
	}
}

func connectStream(path string) error {
	c, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	return c.Close()
}

// Data that is no protocol at all, and silent callers, disturb no other caller.
func TestGarbageOnTheSockets(t *testing.T) {
	t.Parallel()
	m := newMachine(t, setup{hardware: "t4x4"})
	r := m.run(flags("--memory 1GiB"), hold())
	r.granted()
	before := held(m.state())
	rnd := rand.New(rand.NewPCG(1, 2))
	garbage := make([]byte, 1<<16)
	for i := range garbage {
		garbage[i] = byte(rnd.Uint32())
	}
	inputs := [][]byte{
		nil, {0}, garbage, []byte("GET / HTTP/1.1\r\n\r\n"), []byte(strings.Repeat("A", 1<<20)),
		[]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), garbage...),
	}
	var silent []net.Conn
	for _, socket := range []string{"kerf.sock", "http.sock"} {
		for i := range 60 {
			c, err := net.Dial("unix", m.dir+"/"+socket)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetWriteDeadline(time.Now().Add(2 * time.Second)) // it need not read what it does not understand
			if _, err := c.Write(inputs[i%len(inputs)]); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Logf("%s does not read input %d to its end", socket, i%len(inputs))
			}
			if i%3 == 0 {
				silent = append(silent, c)
				continue
			}
			_ = c.Close()
		}
	}
	m.wantSame(before, []*run{r})
	m.run(flags("--memory 1GiB"), hold()).granted()
	for _, c := range silent {
		_ = c.Close()
	}
	// The driver's device files are open to everybody, too.
	for i := range 4 {
		fd := fmt.Sprintf("%s/dev/nvidia%d", m.sim, i)
		for range 20 {
			if err := sendPacket(fd, garbage[:1+rnd.IntN(8000)]); err != nil {
				t.Fatalf("%s: %v", fd, err)
			}
		}
	}
	checkInvariants(t, m)
}
