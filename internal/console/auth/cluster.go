// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kerf-gpu/kerf/internal/console/model"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// scopeTime is how long an answer of the API server counts.
	scopeTime = time.Minute
	// reviewsAtOnce bounds the questions to the API server at a time.
	reviewsAtOnce = 8
	// mostToken bounds a token, in bytes.
	mostToken = 64 << 10
)

// Create posts an object to the API server and reads the answer.
type Create func(ctx context.Context, path string, object, into any) error

// Cluster is for the users of a cluster. Make one with NewCluster.
type Cluster struct {
	create   Create
	now      func() time.Time
	sessions *sessions

	mu       sync.Mutex
	bearers  map[string]*Viewer
	reviewed map[string]time.Time
}

// NewCluster is an authenticator that asks the API server.
func NewCluster(create Create, now func() time.Time) *Cluster {
	return &Cluster{create: create, now: now, sessions: newSessions(now), bearers: map[string]*Viewer{},
		reviewed: map[string]time.Time{}}
}

// Viewer implements Authenticator. A request has a session, or a bearer token.
func (c *Cluster) Viewer(r *http.Request) *Viewer {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		return c.sessions.viewer(r)
	}
	c.mu.Lock()
	v, at := c.bearers[hash(token)], c.reviewed[hash(token)]
	c.mu.Unlock()
	if v != nil && c.now().Sub(at) < scopeTime {
		return v
	}
	v, err := c.review(r.Context(), token)
	if err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.bearers) >= mostSessions {
		clear(c.bearers)
		clear(c.reviewed)
	}
	c.bearers[hash(token)], c.reviewed[hash(token)] = v, c.now()
	return v
}

// Login implements Authenticator. The token is in the form.
func (c *Cluster) Login(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "post the token", http.StatusMethodNotAllowed)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostToken)
	v, err := c.review(r.Context(), strings.TrimSpace(r.PostFormValue("token")))
	if err != nil {
		text, code := "the API server cannot be asked; try again later", http.StatusServiceUnavailable
		if errors.Is(err, sharing.ErrDenied) {
			text, code = "the token is not valid, or its user may not list gpunodes.kerf.dev", http.StatusForbidden
		}
		http.Error(w, text, code)
		return
	}
	c.sessions.begin(w, r, v)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// user is who a token belongs to.
type user struct {
	Username string              `json:"username"`
	UID      string              `json:"uid,omitempty"`
	Groups   []string            `json:"groups,omitempty"`
	Extra    map[string][]string `json:"extra,omitempty"`
}

// tokenReview is what the console writes and reads of a TokenReview.
type tokenReview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Token string `json:"token"`
	} `json:"spec"`
	Status struct {
		Authenticated bool `json:"authenticated"`
		User          user `json:"user"`
	} `json:"status"`
}

// review asks the API server whose token it is. The error wraps sharing.ErrDenied if no user has it, or if the user may
// not list GPUNodes.
func (c *Cluster) review(ctx context.Context, token string) (*Viewer, error) {
	if token == "" {
		return nil, fmt.Errorf("review token: it is empty: %w", sharing.ErrDenied)
	}
	who, err := c.userOf(ctx, token)
	if err != nil {
		return nil, err
	}
	scopes := &scopes{create: c.create, now: c.now, user: who, token: token, owner: c}
	if err := scopes.mayLogIn(ctx); err != nil {
		return nil, err
	}
	return &Viewer{Name: who.Username, Scope: scopes.scope, Events: scopes.events}, nil
}

func (c *Cluster) userOf(ctx context.Context, token string) (user, error) {
	var asked, answer tokenReview
	asked.APIVersion, asked.Kind, asked.Spec.Token = "authentication.k8s.io/v1", "TokenReview", token
	if err := c.create(ctx, "/apis/authentication.k8s.io/v1/tokenreviews", asked, &answer); err != nil {
		return user{}, fmt.Errorf("review token: %w (%w)", err, sharing.ErrUnavailable)
	}
	if !answer.Status.Authenticated {
		return user{}, fmt.Errorf("review token: it is not valid: %w", sharing.ErrDenied)
	}
	return answer.Status.User, nil
}

// attributes are what a SubjectAccessReview is about.
type attributes struct {
	Namespace string `json:"namespace,omitempty"`
	Verb      string `json:"verb"`
	Group     string `json:"group,omitempty"`
	Resource  string `json:"resource"`
}

// accessReview is what the console writes and reads of a SubjectAccessReview.
type accessReview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		ResourceAttributes attributes          `json:"resourceAttributes"`
		User               string              `json:"user"`
		UID                string              `json:"uid,omitempty"`
		Groups             []string            `json:"groups,omitempty"`
		Extra              map[string][]string `json:"extra,omitempty"`
	} `json:"spec"`
	Status struct {
		Allowed bool `json:"allowed"`
	} `json:"status"`
}

// scopes knows what one user may see.
type scopes struct {
	create Create
	now    func() time.Time
	token  string
	owner  *Cluster

	mu sync.Mutex
	// user is renewed with the answers: groups can change.
	user  user
	at    time.Time
	asked map[attributes]bool
	all   bool
}

// mayLogIn is nil if the user may list GPUNodes. The error wraps sharing.ErrDenied if not.
func (s *scopes) mayLogIn(ctx context.Context) error {
	allowed, err := s.allowed(ctx, attributes{Group: sharing.Domain, Resource: "gpunodes", Verb: "list"})
	if err == nil && !allowed {
		err = fmt.Errorf("review user %s: may not list gpunodes.kerf.dev: %w", s.user.Username, sharing.ErrDenied)
	}
	return err
}

// renew asks again for the token, its user and the right to list GPUNodes, if the answers are old.
func (s *scopes) renew(ctx context.Context) error {
	if s.now().Sub(s.at) < scopeTime {
		return nil
	}
	who, err := s.owner.userOf(ctx, s.token)
	if err != nil {
		return err
	}
	s.user = who
	if err := s.mayLogIn(ctx); err != nil {
		return err
	}
	all, err := s.allowed(ctx, pods(""))
	if err != nil {
		return err
	}
	s.at, s.all, s.asked = s.now(), all, map[attributes]bool{}
	return nil
}

// pods is the right to list pods in a namespace, or in all for an empty one.
func pods(namespace string) attributes {
	return attributes{Namespace: namespace, Resource: "pods", Verb: "list"}
}

// scope implements Viewer.Scope. It asks again after a while, for the token as well.
func (s *scopes) scope(ctx context.Context, namespaces []string) (model.Scope, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.renew(ctx); err != nil {
		return model.Scope{}, err
	}
	if s.all {
		return model.Scope{All: true}, nil
	}
	if err := s.ask(ctx, namespaces); err != nil {
		return model.Scope{}, err
	}
	out := model.Scope{Namespaces: map[string]bool{}}
	for _, n := range namespaces {
		if s.asked[pods(n)] {
			out.Namespaces[n] = true
		}
	}
	return out, nil
}

// events implements Viewer.Events.
func (s *scopes) events(ctx context.Context, namespace string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.renew(ctx); err != nil {
		return false, err
	}
	right := attributes{Namespace: namespace, Resource: "events", Verb: "list"}
	if may, known := s.asked[right]; known {
		return may, nil
	}
	may, err := s.allowed(ctx, right)
	if err == nil {
		s.asked[right] = may
	}
	return may, err
}

// ask asks for the namespaces whose answer is not known.
func (s *scopes) ask(ctx context.Context, namespaces []string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(reviewsAtOnce)
	answers := make([]bool, len(namespaces))
	for i, n := range namespaces {
		if may, known := s.asked[pods(n)]; known {
			answers[i] = may
			continue
		}
		g.Go(func() error {
			var err error
			answers[i], err = s.allowed(ctx, pods(n))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, n := range namespaces {
		s.asked[pods(n)] = answers[i]
	}
	return nil
}

func (s *scopes) allowed(ctx context.Context, a attributes) (bool, error) {
	var asked, answer accessReview
	asked.APIVersion, asked.Kind, asked.Spec.ResourceAttributes = "authorization.k8s.io/v1", "SubjectAccessReview", a
	asked.Spec.User, asked.Spec.UID, asked.Spec.Groups, asked.Spec.Extra = s.user.Username, s.user.UID, s.user.Groups,
		s.user.Extra
	if err := s.create(ctx, "/apis/authorization.k8s.io/v1/subjectaccessreviews", asked, &answer); err != nil {
		return false, fmt.Errorf("review access of user %s: %w (%w)", s.user.Username, err, sharing.ErrUnavailable)
	}
	return answer.Status.Allowed, nil
}
