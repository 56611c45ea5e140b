// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package servemetrics

import (
	"net"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kerf-gpu/kerf/internal/serve"
	"github.com/kerf-gpu/kerf/internal/serve/limit"
)

// TestListeners shows what a share holds and rejected.
func TestListeners(t *testing.T) {
	web := serve.NewShare(limit.Share{Name: "http", Bounds: limit.Bounds{Conns: 1, PeerConns: 1, Requests: 1,
		PeerRequests: 1, Bytes: 9, PeerBytes: 9}})
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := web.Listen(inner, serve.Rules{})
	defer l.Close()
	var conn net.Conn
	for range 2 { // the second takes the place of the first
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if conn, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := conn.(*serve.Conn).Begin(limit.Request); !ok {
		t.Error("a first request is rejected")
	}
	if _, ok := conn.(*serve.Conn).Begin(limit.Request); ok {
		t.Error("a second request is taken")
	}
	conn.(*serve.Conn).Reserve(7)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(New(map[string]*serve.Share{"http": web}))
	want := `# HELP kerf_listener_answer_bytes Bytes of answers that wait for their readers.
# TYPE kerf_listener_answer_bytes gauge
kerf_listener_answer_bytes{listener="http"} 7
# HELP kerf_listener_connections Open connections of the listener.
# TYPE kerf_listener_connections gauge
kerf_listener_connections{listener="http"} 1
# HELP kerf_listener_rejected_total Connections, requests and answers that exceeded the bounds of the listener, by kind (connection, idle_connection, request, answer).
# TYPE kerf_listener_rejected_total counter
kerf_listener_rejected_total{kind="answer",listener="http"} 0
kerf_listener_rejected_total{kind="connection",listener="http"} 0
kerf_listener_rejected_total{kind="idle_connection",listener="http"} 1
kerf_listener_rejected_total{kind="request",listener="http"} 1
# HELP kerf_listener_requests Requests in flight of the listener, streams excluded.
# TYPE kerf_listener_requests gauge
kerf_listener_requests{listener="http"} 1
# HELP kerf_listener_streams Open streams of the listener.
# TYPE kerf_listener_streams gauge
kerf_listener_streams{listener="http"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	_ = conn.Close()
}
