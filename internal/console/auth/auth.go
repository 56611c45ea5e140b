// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package auth says who looks at the console, and what each viewer may see.
//
// On a workstation, a one-time token becomes the session of the one user who started the console. In a cluster, the API
// server reviews the user's token, and is asked for each namespace whether that user may list its pods. The package
// promises that a token is never logged, and that a session ends after some hours and with its token.
package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/sharing"
)

// cookieName is the session's cookie, and sessionTime how long it lasts.
const (
	cookieName  = "kerf-console"
	sessionTime = 8 * time.Hour
	// mostSessions bounds the sessions that are kept; a new one replaces the oldest.
	mostSessions = 1000
)

// Viewer is who made a request.
type Viewer struct {
	// Name is shown to the viewer.
	Name string
	// Scope is what the viewer may see now. Namespaces are those that there are.
	Scope func(ctx context.Context, namespaces []string) (model.Scope, error)
	// Events reports whether the viewer may see the events of a namespace now; nil is no.
	Events func(ctx context.Context, namespace string) (bool, error)
}

// Authenticator knows the viewers.
type Authenticator interface {
	// Viewer returns who made the request; nil before a login.
	Viewer(r *http.Request) *Viewer
	// Login handles a request to begin a session. It writes the answer.
	Login(w http.ResponseWriter, r *http.Request)
}

// sessions are by the hash of their cookie, so that what is compared depends on no secret.
type sessions struct {
	now func() time.Time

	mu  sync.Mutex
	all map[string]session
}

type session struct {
	viewer *Viewer
	ends   time.Time
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, all: map[string]session{}}
}

// begin sets the cookie of a new session.
func (s *sessions) begin(w http.ResponseWriter, r *http.Request, v *Viewer) {
	id := Token()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	oldest := ""
	for key, one := range s.all {
		if now.After(one.ends) {
			delete(s.all, key)
		} else if oldest == "" || one.ends.Before(s.all[oldest].ends) {
			oldest = key
		}
	}
	if len(s.all) >= mostSessions {
		delete(s.all, oldest)
	}
	s.all[hash(id)] = session{s.bound(v, hash(id)), now.Add(sessionTime)}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // without TLS the console serves loopback alone
		Name: cookieName, Value: id, Path: "/", HttpOnly: true, Secure: r.TLS != nil,
		SameSite: http.SameSiteStrictMode, MaxAge: int(sessionTime.Seconds())})
}

// viewer is that of the request's session; nil without one.
func (s *sessions) viewer(r *http.Request) *Viewer {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return nil
	}
	return s.of(hash(c.Value))
}

// of is the viewer of a session; nil if it has ended.
func (s *sessions) of(key string) *Viewer {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.all[key]
	if !ok || s.now().After(one.ends) {
		return nil
	}
	return one.viewer
}

// bound is the viewer until the session ends: a stream that began before sees nothing after it.
func (s *sessions) bound(v *Viewer, key string) *Viewer {
	out := *v
	out.Scope = func(ctx context.Context, namespaces []string) (model.Scope, error) {
		if s.of(key) == nil {
			return model.Scope{}, fmt.Errorf("read session: it has ended; log in again: %w", sharing.ErrDenied)
		}
		return v.Scope(ctx, namespaces)
	}
	return &out
}

// Token is a new random token.
func Token() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

func hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Local is for one user on a workstation. Make one with NewLocal.
type Local struct {
	sessions *sessions
	viewer   *Viewer

	mu    sync.Mutex
	token string
}

// NewLocal is an authenticator with a one-time token. The viewer sees all that the console reads, with the rights of
// the user who started it.
func NewLocal(now func() time.Time) *Local {
	everything := func(context.Context, []string) (model.Scope, error) { return model.Scope{All: true}, nil }
	events := func(context.Context, string) (bool, error) { return true, nil }
	return &Local{sessions: newSessions(now), viewer: &Viewer{Scope: everything, Events: events}, token: Token()}
}

// Token is the one-time token; empty once it was used.
func (l *Local) Token() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// Viewer implements Authenticator.
func (l *Local) Viewer(r *http.Request) *Viewer { return l.sessions.viewer(r) }

// Login implements Authenticator. The token is in the query, and works once.
func (l *Local) Login(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	given := r.FormValue("token")
	ok := l.token != "" && subtle.ConstantTimeCompare([]byte(given), []byte(l.token)) == 1
	if ok {
		l.token = ""
	}
	l.mu.Unlock()
	if !ok {
		http.Error(w, "the token is wrong or was used; run the command again for a new one", http.StatusForbidden)
		return
	}
	l.sessions.begin(w, r, l.viewer)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
