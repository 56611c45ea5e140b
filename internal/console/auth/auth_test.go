// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kerf-gpu/kerf/internal/console/auth"
)

// clock is a time that tests move.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func newClock() *clock { return &clock{time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)} }

// visit sends a request with cookies to Login, and returns the answer.
// answer is what a login returns.
type answer struct {
	StatusCode int
	Status     string
	cookies    []*http.Cookie
}

func (a answer) Cookies() []*http.Cookie { return a.cookies }

func visit(a auth.Authenticator, r *http.Request) answer {
	w := httptest.NewRecorder()
	a.Login(w, r)
	res := w.Result()
	_ = res.Body.Close() // It is in memory.
	return answer{res.StatusCode, res.Status, res.Cookies()}
}

func with(cookies []*http.Cookie) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api/me", nil)
	for _, c := range cookies {
		r.AddCookie(c)
	}
	return r
}

func TestLocalTokenWorksOnce(t *testing.T) {
	c := newClock()
	l := auth.NewLocal(c.now)
	token := l.Token()
	if got := visit(l, httptest.NewRequest(http.MethodGet, "/login?token=wrong", nil)); got.StatusCode !=
		http.StatusForbidden || len(got.Cookies()) > 0 {
		t.Errorf("wrong token: %s", got.Status)
	}
	first := visit(l, httptest.NewRequest(http.MethodGet, "/login?token="+token, nil))
	if first.StatusCode != http.StatusSeeOther || len(first.Cookies()) != 1 {
		t.Fatalf("first use: %s", first.Status)
	}
	cookie := first.Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("cookie: %+v", cookie)
	}
	for _, again := range []string{token, ""} {
		if got := visit(l, httptest.NewRequest(http.MethodGet, "/login?token="+again, nil)); got.StatusCode !=
			http.StatusForbidden {
			t.Errorf("second use of %q: %s", again, got.Status)
		}
	}
	v := l.Viewer(with(first.Cookies()))
	if v == nil {
		t.Fatal("the session has no viewer")
	}
	if scope, err := v.Scope(t.Context(), nil); err != nil || !scope.All {
		t.Errorf("scope %+v: %v", scope, err)
	}
	if l.Viewer(with(nil)) != nil || l.Viewer(with([]*http.Cookie{{Name: cookie.Name, Value: "x"}})) != nil {
		t.Error("a request without the session has a viewer")
	}
	if c.at = c.at.Add(9 * time.Hour); l.Viewer(with(first.Cookies())) != nil {
		t.Error("the session does not end")
	}
}

// server answers reviews. A token is that of the user of its name. rights are what the user or a group may list.
type server struct {
	mu     sync.Mutex
	tokens map[string]string
	groups []string
	rights map[string][]string
	asked  int
	fails  bool
}

func (s *server) may(who []string, right string) bool {
	return slices.ContainsFunc(who, func(w string) bool { return slices.Contains(s.rights[w], right) })
}

func (s *server) create(_ context.Context, path string, object, into any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails {
		return errors.New("away")
	}
	s.asked++
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	var in struct {
		Spec struct {
			Token, User        string
			Groups             []string
			ResourceAttributes struct{ Namespace, Verb, Group, Resource string }
		}
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	answer := map[string]any{}
	switch {
	case strings.HasSuffix(path, "tokenreviews"):
		name := s.tokens[in.Spec.Token]
		answer = map[string]any{"authenticated": name != "", "user": map[string]any{"username": name,
			"groups": s.groups}}
	case strings.HasSuffix(path, "subjectaccessreviews"):
		a := in.Spec.ResourceAttributes
		answer = map[string]any{"allowed": a.Verb == "list" && s.may(append(in.Spec.Groups, in.Spec.User),
			a.Resource+"/"+a.Namespace)}
	}
	text, err = json.Marshal(map[string]any{"status": answer})
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func login(token string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader(url.Values{"token": {token}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

func TestUsersOfACluster(t *testing.T) {
	api := &server{tokens: map[string]string{"t-admin": "admin", "t-ann": "ann", "t-no-one": "no-one"},
		rights: map[string][]string{"admin": {"gpunodes/", "pods/"}, "ann": {"gpunodes/", "pods/team-a"}}}
	namespaces := []string{"team-a", "team-b"}
	for _, c := range []struct {
		token string
		code  int
		all   bool
		sees  []string
	}{
		{"t-admin", http.StatusSeeOther, true, nil},
		{"t-ann", http.StatusSeeOther, false, []string{"team-a"}},
		{"t-no-one", http.StatusForbidden, false, nil},
		{"stolen", http.StatusForbidden, false, nil},
		{"", http.StatusForbidden, false, nil},
	} {
		a := auth.NewCluster(api.create, newClock().now)
		got := visit(a, login(c.token))
		if got.StatusCode != c.code {
			t.Errorf("%q: %s, want %d", c.token, got.Status, c.code)
		}
		v := a.Viewer(with(got.Cookies()))
		if (v != nil) != (c.code == http.StatusSeeOther) {
			t.Errorf("%q: viewer %v", c.token, v)
		}
		if v == nil {
			continue
		}
		scope, err := v.Scope(t.Context(), namespaces)
		if sees := slices.Sorted(maps.Keys(scope.Namespaces)); err != nil || scope.All != c.all || !slices.Equal(sees,
			c.sees) {
			t.Errorf("%q: scope %+v: %v", c.token, scope, err)
		}
	}
}

func TestBearer(t *testing.T) {
	api := &server{tokens: map[string]string{"t": "ann"}, rights: map[string][]string{"ann": {"gpunodes/"}}}
	a := auth.NewCluster(api.create, newClock().now)
	r := httptest.NewRequest(http.MethodGet, "/api/me", nil)
	r.Header.Set("Authorization", "Bearer t")
	if v := a.Viewer(r); v == nil || v.Name != "ann" {
		t.Errorf("viewer %v", v)
	}
	r.Header.Set("Authorization", "Bearer other")
	if a.Viewer(r) != nil {
		t.Error("a wrong token has a viewer")
	}
}
