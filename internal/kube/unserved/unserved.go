// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package unserved lets a client run against an API server that does not serve each kind the client lists.
//
// kube-scheduler starts an informer for each kind that its Kubernetes version has. An older API server answers the
// list of an unknown kind with status 404. It answers 403 if the roles of its version do not allow the kind. The
// informer lists forever then, and the scheduler never becomes ready.
package unserved

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultWatch is how long a watch of an unserved kind lasts. Then the informer lists again, and finds a kind that
// an upgraded API server serves since.
const DefaultWatch = 5 * time.Minute

// discoveryTime is the longest time of a request for the kinds that the API server serves.
const discoveryTime = 10 * time.Second

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
	if err != nil || req.Method != http.MethodGet || !isCollection(req.URL.Path) || !t.unserved(req, resp.StatusCode) {
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

// unserved reports whether a status means that the API server does not serve the kind. An API server checks rights
// before it looks for the kind. For a 403 the list of the kinds that it serves decides, which every user may read.
func (t *Transport) unserved(req *http.Request, status int) bool {
	switch status {
	case http.StatusNotFound:
		return true
	case http.StatusForbidden:
		return t.missing(req)
	}
	return false
}

// missing reports whether the API server's list of kinds lacks the kind of a request. It is false if the list cannot
// be read.
func (t *Transport) missing(req *http.Request) bool {
	ctx, cancel := context.WithTimeout(req.Context(), discoveryTime)
	defer cancel()
	version, resource := kindOf(req.URL.Path)
	list := req.Clone(ctx)
	list.URL.Path, list.URL.RawPath, list.URL.RawQuery = version, "", ""
	list.Header.Set("Accept", "application/json")
	resp, err := t.Next.RoundTrip(list)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	var served metav1.APIResourceList
	switch resp.StatusCode {
	case http.StatusNotFound:
		return true
	case http.StatusOK:
		err = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&served)
		return err == nil && !slices.ContainsFunc(served.APIResources,
			func(r metav1.APIResource) bool { return r.Name == resource })
	}
	return false
}

// kindOf splits the path of a collection into the path of its API group and version, and the name of its kind.
func kindOf(path string) (version, resource string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	return "/" + strings.Join(parts[:3], "/"), parts[len(parts)-1]
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
