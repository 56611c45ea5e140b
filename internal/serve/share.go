// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/kerf-gpu/kerf/internal/serve/limit"
	"github.com/kerf-gpu/kerf/sharing"
)

// Share is what some listeners of a program have in common. Its methods may be called at once from several goroutines.
type Share struct {
	name   string
	bounds limit.Bounds
	// freed has a token after a connection was closed.
	freed chan struct{}

	mu       sync.Mutex
	state    *limit.State
	open     map[limit.ConnID]*Conn
	rejected Rejected
}

// Rejected counts what a Share did not take since it was made.
type Rejected struct {
	// Conns were closed at once. Evicted were idle, and closed for new connections.
	Conns, Evicted uint64
	// Requests were in excess of the requests or streams that a peer or the Share may have. Answers were in excess of
	// the bytes.
	Requests, Answers uint64
}

// NewShare makes a Share. Make the Shares of a program with a Plan.
func NewShare(s limit.Share) *Share {
	return &Share{
		name: s.Name, bounds: s.Bounds, freed: make(chan struct{}, 1),
		state: limit.New(s.Bounds), open: map[limit.ConnID]*Conn{},
	}
}

// Name is the Share's name, for metrics.
func (s *Share) Name() string { return s.name }

// Stats returns what the Share holds now, and what it rejected.
func (s *Share) Stats() (limit.Totals, Rejected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Totals(), s.rejected
}

// admit takes a connection. It returns nil, and closes c, if there is no room. crowded is true if c or another
// connection had to be closed.
func (s *Share) admit(c net.Conn, peer string, value any) (taken *Conn, crowded bool) {
	s.mu.Lock()
	id, evicted, ok := s.state.Open(peer)
	if !ok {
		s.rejected.Conns++
		s.mu.Unlock()
		_ = c.Close() // nothing was written to it
		return nil, true
	}
	taken = &Conn{Conn: c, share: s, id: id, peer: peer, value: value}
	s.open[id] = taken
	victim := s.open[evicted]
	if victim != nil {
		s.rejected.Evicted++
	}
	s.mu.Unlock()
	if victim != nil {
		_ = victim.Close() // its peer notices
	}
	return taken, victim != nil
}

// full reports whether no further connection fits.
func (s *Share) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Totals().Conns >= s.bounds.Conns
}

func (s *Share) close(id limit.ConnID) {
	s.mu.Lock()
	delete(s.open, id)
	s.state.Close(id)
	s.mu.Unlock()
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

func (s *Share) begin(id limit.ConnID, k limit.Kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := s.state.Begin(id, k)
	if !ok {
		s.rejected.Requests++
	}
	return ok
}

func (s *Share) end(id limit.ConnID, k limit.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.End(id, k)
}

func (s *Share) hold(id limit.ConnID, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := s.state.Reserve(id, n)
	if !ok {
		s.rejected.Answers++
	}
	return ok
}

func (s *Share) free(id limit.ConnID, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Free(id, n)
}

// Encoded is a message in its wire format. One Encoded can go to any number of readers.
type Encoded struct{ parts mem.BufferSlice }

// NewEncoded makes a message of parts, whose fields add up as those of one message. The parts must not change
// afterwards.
func NewEncoded(parts ...[]byte) *Encoded {
	e := &Encoded{}
	for _, p := range parts {
		e.parts = append(e.parts, mem.SliceBuffer(p)) // without a count of users: nothing frees it
	}
	return e
}

// With is e with further fields. It shares the bytes of e.
func (e *Encoded) With(part []byte) *Encoded {
	return &Encoded{parts: append(slices.Clip(e.parts), mem.SliceBuffer(part))}
}

// Len is the size of the message in bytes.
func (e *Encoded) Len() int { return e.parts.Len() }

// Bytes is a copy of the message.
func (e *Encoded) Bytes() []byte { return e.parts.Materialize() }

// codec is gRPC's own, and sends what is Encoded as it is.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ok := v.(*Encoded); ok {
		return e.parts, nil
	}
	return c.CodecV2.Marshal(v)
}

// Rendered answers with what h writes once h has ended, so that a slow reader occupies bytes, which are counted, and
// nothing of h. At most atOnce calls of h run at a time; the others wait.
func Rendered(h http.Handler, atOnce int) http.Handler {
	slots := make(chan struct{}, atOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := &page{header: http.Header{}, code: http.StatusOK}
		select {
		case slots <- struct{}{}:
			page.render(h, r, slots)
		case <-r.Context().Done():
			return // the peer is gone
		}
		conn := ConnOf(r.Context())
		if conn == nil {
			http.Error(w, "the connection is not counted", http.StatusInternalServerError)
			return
		}
		free, ok := conn.Reserve(page.body.Len())
		if !ok {
			busy(w, "too many answers wait for their readers")
			return
		}
		defer free()
		maps.Copy(w.Header(), page.header)
		w.Header().Set("Content-Length", strconv.Itoa(page.body.Len()))
		w.WriteHeader(page.code)
		_, _ = w.Write(page.body.Bytes()) // a reader that left
	})
}

// page is an answer in memory.
type page struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (p *page) render(h http.Handler, r *http.Request, slots <-chan struct{}) {
	defer func() { <-slots }()
	h.ServeHTTP(p, r)
}

// Header implements http.ResponseWriter.
func (p *page) Header() http.Header { return p.header }

// WriteHeader implements http.ResponseWriter.
func (p *page) WriteHeader(code int) { p.code = code }

// Write implements http.ResponseWriter.
func (p *page) Write(b []byte) (int, error) { return p.body.Write(b) }

// Plan makes the Shares of a program. Together they leave reserve file descriptors of RLIMIT_NOFILE to the rest of the
// program. The error wraps sharing.ErrExhausted if the limit is too low for that.
func Plan(shares []limit.Share, reserve int) (map[string]*Share, error) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return nil, fmt.Errorf("read limit on open files: %w (%w)", err, sharing.ErrUnavailable)
	}
	const most = 1 << 20 // far more than all shares; the subtraction does not wrap
	fitted, err := limit.Fit(shares, int(min(files.Cur, most))-reserve)
	if err != nil {
		return nil,
			fmt.Errorf("%w; raise the limit on open files (ulimit -n, LimitNOFILE=), which is %d and leaves %d for "+
				"other files", err, files.Cur, reserve)
	}
	out := make(map[string]*Share, len(fitted))
	for _, s := range fitted {
		out[s.Name] = NewShare(s)
	}
	return out, nil
}
