// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package unserved lets a client run against an API server that does not serve each kind the client lists.
//
// kube-scheduler starts an informer for each kind that its Kubernetes version has. An older API server answers the
// list of an unknown kind with status 404. The informer lists forever then, and the scheduler never becomes ready.
package unserved

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// DefaultWatch is how long a watch of an unserved kind lasts. Then the informer lists again, and finds a kind that
// an upgraded API server serves since.
const DefaultWatch = 5 * time.Minute

// emptyList is a list of any kind: the decoder takes the kind from the client's type.
const emptyList = `{"metadata":{"resourceVersion":"1"},"items":[]}`

// invalid is the answer to a watch that asks for the present objects first. The informer then lists and watches.
const invalid = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,` +
	`"message":"the API server does not serve this kind: list it"}`

// Transport answers list and watch requests of kinds that the API server does not serve. A list is empty, and a
// watch has no events. It does so for API groups of Kubernetes only, so that a missing CRD is an error. Other
// answers pass unchanged.
type Transport struct {
	Next  http.RoundTripper
	Watch time.Duration // The longest time of a watch; DefaultWatch if 0.
}

// Wrap is for rest.Config.Wrap of a client.
func Wrap(next http.RoundTripper) http.RoundTripper { return &Transport{Next: next} }

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.Next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusNotFound || req.Method != http.MethodGet ||
		!isCollection(req.URL.Path) {
		return resp, err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20)) // Then the connection can be used again.
	_ = resp.Body.Close()
	query := req.URL.Query()
	switch {
	case query.Get("watch") == "":
		return answer(req, http.StatusOK, io.NopCloser(bytes.NewBufferString(emptyList))), nil
	case query.Get("sendInitialEvents") == "true":
		return answer(req, http.StatusUnprocessableEntity, io.NopCloser(bytes.NewBufferString(invalid))), nil
	}
	return answer(req, http.StatusOK, newSilence(req.Context(), t.watchTime(query))), nil
}

// watchTime is the time that the client wants a watch to last, with t.Watch as its upper bound.
func (t *Transport) watchTime(query url.Values) time.Duration {
	most := t.Watch
	if most <= 0 {
		most = DefaultWatch
	}
	seconds, err := strconv.Atoi(query.Get("timeoutSeconds"))
	if err != nil || seconds <= 0 {
		return most
	}
	return min(most, time.Duration(seconds)*time.Second)
}

// isCollection reports whether a path names all objects of a kind, in an API group of Kubernetes. A 404 for such a
// path says that the kind is not served, never that an object is missing.
func isCollection(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) < 4 || parts[0] != "apis" || !ofKubernetes(parts[1]) {
		return false
	}
	return len(parts) == 4 || len(parts) == 6 && parts[3] == "namespaces"
}

// ofKubernetes reports whether Kubernetes defines the group: its name has no dot, or the suffix .k8s.io of
// Kubernetes.
func ofKubernetes(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

func answer(req *http.Request, status int, body io.ReadCloser) *http.Response {
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: body, ContentLength: -1, Request: req,
	}
}

// silence is the body of a watch without events. It ends with its context or its time.
type silence struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func newSilence(ctx context.Context, d time.Duration) *silence {
	s := &silence{}
	s.ctx, s.cancel = context.WithTimeout(ctx, d)
	return s
}

// Read waits for the end.
func (s *silence) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, io.EOF
}

// Close ends a Read.
func (s *silence) Close() error {
	s.cancel()
	return nil
}
