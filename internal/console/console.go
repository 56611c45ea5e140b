// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package console serves the web console: static files, one stream of the state, and answers to questions.
//
// It is read-only: no request changes anything in a cluster or on a machine. Every answer but the static files needs a
// viewer, and has only what that viewer may see. Pages load nothing from elsewhere, and no script or style that is not
// a file of the console.
package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/internal/console/auth"
	"github.com/kerf-gpu/kerf/internal/console/heap"
	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/internal/console/source"
	"github.com/kerf-gpu/kerf/internal/console/stream"
	"github.com/kerf-gpu/kerf/internal/console/web"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// readTime bounds the time of a request's header and body.
	readTime = 10 * time.Second
	// answerTime bounds the time to find an answer that is no stream, and writeTime the time to send it.
	answerTime = 2 * time.Minute
	writeTime  = 30 * time.Second
	// stopTime is how long answers may take after a stop.
	stopTime = 3 * time.Second
	// maxHeader and maxBody bound a request, in bytes.
	maxHeader = 96 << 10
	maxBody   = 2 << 20
	// maxQuestions bounds the answers that are computed at a time, and maxReads those that wait for another server.
	maxQuestions = 2
	maxReads     = 8
)

// policy is the content security policy. Trusted types forbid scripts to write HTML.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; " +
	"trusted-types 'none'"

// Options make a Server.
type Options struct {
	Source source.Source
	Auth   auth.Authenticator
	// Hosts are the names in the Host header that are answered; none answers every name. They keep web pages of others
	// from reaching a console on this machine under their name.
	Hosts []string
	// CertFile and KeyFile make the console speak TLS.
	CertFile, KeyFile string
	Log               *slog.Logger
}

// Server is the console. Make one with New.
type Server struct {
	o   Options
	hub *stream.Broadcaster
	// questions and reads have a slot for each answer at a time.
	questions, reads chan struct{}
}

// New makes a Server.
func New(o Options) *Server {
	return &Server{o: o, hub: stream.NewBroadcaster(time.Now), questions: make(chan struct{}, maxQuestions),
		reads: make(chan struct{}, maxReads)}
}

// Broadcaster is the server's state.
func (s *Server) Broadcaster() *stream.Broadcaster { return s.hub }

// Run reads the source and answers on l until ctx ends. It closes l. It keeps the garbage of the process small.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	g, ctx := errgroup.WithContext(ctx)
	h := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: readTime, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)} // errors of viewers are theirs
	g.Go(func() error { heap.Bound(ctx); return nil })
	g.Go(func() error {
		if err := s.o.Source.Run(ctx, s.hub); err != nil {
			return fmt.Errorf("read the state: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		serve := func() error { return h.Serve(l) }
		if s.o.CertFile != "" {
			serve = func() error { return h.ServeTLS(l, s.o.CertFile, s.o.KeyFile) }
		}
		if err := serve(); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve the console on %s: %w", l.Addr(), err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		if err := h.Shutdown(stop); err != nil {
			return h.Close()
		}
		return nil
	})
	return g.Wait()
}

// Handler answers the console's requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", web.Files())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /login", s.login)
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("GET /api/stream", s.viewed(s.stream))
	mux.HandleFunc("GET /api/me", s.viewed(s.answer(s.me)))
	mux.HandleFunc("GET /api/advice", s.viewed(s.answer(s.advice)))
	mux.HandleFunc("GET /api/teams", s.viewed(s.answer(s.teams)))
	mux.HandleFunc("GET /api/history", s.viewed(s.answer(s.history)))
	mux.HandleFunc("GET /api/events", s.viewed(s.answer(s.events)))
	mux.HandleFunc("GET /api/config", s.viewed(s.answer(s.config)))
	mux.HandleFunc("POST /api/config", s.viewed(s.answer(s.compare)))
	mux.HandleFunc("POST /api/whatif", s.viewed(s.answer(s.whatIf)))
	return s.guarded(mux)
}

// guarded sets the headers of every answer, and rejects requests of other sites.
func (s *Server) guarded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Content-Security-Policy", policy)
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Referrer-Policy", "no-referrer")
		head.Set("Cross-Origin-Opener-Policy", "same-origin")
		head.Set("Cross-Origin-Resource-Policy", "same-origin")
		head.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		switch site := r.Header.Get("Sec-Fetch-Site"); {
		case !s.named(r.Host):
			http.Error(w, "the console has another name", http.StatusForbidden)
		case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost:
			http.Error(w, "the console is read-only", http.StatusMethodNotAllowed)
		case site == "cross-site" && r.Method == http.MethodPost, site == "same-site":
			http.Error(w, "the request comes from another site", http.StatusForbidden)
		default:
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			if r.Method == http.MethodPost { // a stream has no such bound
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTime))
			}
			h.ServeHTTP(w, r)
		}
	})
}

func (s *Server) named(host string) bool {
	if len(s.o.Hosts) == 0 {
		return true
	}
	for _, name := range s.o.Hosts {
		if strings.EqualFold(host, name) {
			return true
		}
	}
	return false
}

func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	s.o.Auth.Login(w, r)
}

// viewed rejects requests without a viewer.
func (s *Server) viewed(h func(http.ResponseWriter, *http.Request, *auth.Viewer)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := s.o.Auth.Viewer(r)
		if v == nil {
			http.Error(w, "log in first", http.StatusUnauthorized)
			return
		}
		h(w, r, v)
	}
}

// stream sends the state and its deltas. After the rights of a viewer ended, a browser does not retry its answer.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, v *auth.Viewer) {
	if _, err := s.scope(r.Context(), v); err != nil {
		refuse(w, err)
		return
	}
	err := s.hub.Serve(w, r, func(ctx context.Context) (model.Scope, error) { return s.scope(ctx, v) })
	if err != nil && !errors.Is(err, sharing.ErrDenied) { // a session that ends is no failure
		s.o.Log.Warn("failed to stream the state", "viewer", v.Name, "error", err)
	}
}

func (s *Server) scope(ctx context.Context, v *auth.Viewer) (model.Scope, error) {
	return v.Scope(ctx, s.hub.Namespaces())
}

// refuse sends the error of a scope that cannot be found.
func refuse(w http.ResponseWriter, err error) {
	code := http.StatusServiceUnavailable
	if errors.Is(err, sharing.ErrDenied) {
		code = http.StatusUnauthorized
	}
	http.Error(w, err.Error(), code)
}
