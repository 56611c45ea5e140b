// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package unserved_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kerf-gpu/kerf/internal/kube/unserved"
)

// olderServer answers as an API server that serves nothing that is asked for.
func olderServer(t *testing.T) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	c := &rest.Config{Host: server.URL}
	c.Wrap(unserved.Wrap)
	return c
}

func TestListIsEmpty(t *testing.T) {
	client, err := kubernetes.NewForConfig(olderServer(t))
	if err != nil {
		t.Fatal(err)
	}
	claims, err := client.ResourceV1().ResourceClaims("team-a").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(claims.Items) != 0 {
		t.Errorf("list of an unserved kind: %v items, error %v", claims, err)
	}
}

func TestOtherRequestsStay(t *testing.T) {
	config := olderServer(t)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	crds, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	nodes := schema.GroupVersionResource{Group: "kerf.dev", Version: "v1alpha1", Resource: "gpunodes"}
	for name, do := range map[string]func() error{
		"get of an object": func() error {
			_, err := client.ResourceV1().ResourceClaims("team-a").Get(t.Context(), "c", metav1.GetOptions{})
			return err
		},
		"creation": func() error {
			_, err := client.ResourceV1().ResourceClaims("team-a").Create(t.Context(), &resourceapi.ResourceClaim{},
				metav1.CreateOptions{})
			return err
		},
		"list of a core kind": func() error {
			_, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
			return err
		},
		"list of a kind of Kerf": func() error {
			_, err := crds.Resource(nodes).List(t.Context(), metav1.ListOptions{})
			return err
		},
	} {
		if err := do(); !apierrors.IsNotFound(err) {
			t.Errorf("%s: error %v, want not found", name, err)
		}
	}
}

// TestInformerSyncs is what kube-scheduler needs to become ready.
func TestInformerSyncs(t *testing.T) {
	client, err := kubernetes.NewForConfig(olderServer(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Resource().V1().DeviceClasses().Informer()
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	defer cancel()
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			t.Errorf("informer of %v did not sync", kind)
		}
	}
	if n := len(informer.GetStore().List()); n != 0 {
		t.Errorf("%d objects, want none", n)
	}
}

// forbidding is an API server whose roles allow no list. Its discovery has only the kinds of this map.
func forbidding(t *testing.T, discovery map[string]string) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/apis/") || strings.Count(r.URL.Path, "/") > 3 {
			http.Error(w, "forbidden", http.StatusForbidden)
			return
		}
		kinds, ok := discovery[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"kind":"APIResourceList","resources":%s}`, kinds)
	}))
	t.Cleanup(server.Close)
	c := &rest.Config{Host: server.URL}
	c.Wrap(unserved.Wrap)
	return c
}

// TestForbiddenList is what roles of an older Kubernetes version answer for a kind that it does not have.
func TestForbiddenList(t *testing.T) {
	const group = "/apis/resource.k8s.io/v1"
	for name, c := range map[string]struct {
		discovery map[string]string
		empty     bool
	}{
		"no such group":                {nil, true},
		"no such kind in the group":    {map[string]string{group: `[{"name":"deviceclasses"}]`}, true},
		"the kind is served":           {map[string]string{group: `[{"name":"resourceclaims"}]`}, false},
		"the list of kinds is unknown": {map[string]string{group: `no list`}, false},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := kubernetes.NewForConfig(forbidding(t, c.discovery))
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.ResourceV1().ResourceClaims("team-a").List(t.Context(), metav1.ListOptions{})
			if c.empty && err != nil || !c.empty && !apierrors.IsForbidden(err) {
				t.Errorf("list: error %v, want an empty list: %t", err, c.empty)
			}
			if _, err = client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("list of a core kind: error %v, want forbidden", err)
			}
		})
	}
}

// reply is a server without a network.
type reply struct {
	status int
	err    error
}

func (r reply) RoundTrip(*http.Request) (*http.Response, error) {
	if r.err != nil {
		return nil, r.err
	}
	return &http.Response{StatusCode: r.status, Body: io.NopCloser(strings.NewReader("body"))}, nil
}

func TestWatchEnds(t *testing.T) {
	for name, c := range map[string]struct {
		query  string
		cancel time.Duration
		want   time.Duration
	}{
		"at the client's time":    {"watch=true&timeoutSeconds=30", time.Hour, 30 * time.Second},
		"at the transport's time": {"watch=true&timeoutSeconds=600", time.Hour, time.Minute},
		"without a time":          {"watch=true", time.Hour, time.Minute},
		"with its request":        {"watch=true", time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.cancel)
				defer cancel()
				resp := get(ctx, t, &unserved.Transport{Next: reply{status: 404}, Watch: time.Minute}, c.query)
				defer func() { _ = resp.Body.Close() }()
				began := time.Now()
				if n, err := io.Copy(io.Discard, resp.Body); n != 0 || err != nil {
					t.Errorf("watch: %d bytes, error %v", n, err)
				}
				if took := time.Since(began); took != c.want {
					t.Errorf("watch ended after %v, want %v", took, c.want)
				}
			})
		})
	}
}

func get(ctx context.Context, t *testing.T, transport http.RoundTripper, query string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/apis/resource.k8s.io/v1/deviceclasses?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestAnswersOfTheServerPass(t *testing.T) {
	for _, status := range []int{200, 403, 500} {
		resp := get(t.Context(), t, &unserved.Transport{Next: reply{status: status}}, "")
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != status || string(body) != "body" || err != nil {
			t.Errorf("status %d became %d with body %q, error %v", status, resp.StatusCode, body, err)
		}
	}
	lost := errors.New("connection lost")
	req := httptest.NewRequest(http.MethodGet, "http://server/apis/apps/v1/deployments", nil)
	resp, err := (&unserved.Transport{Next: reply{err: lost}}).RoundTrip(req)
	if resp != nil {
		_ = resp.Body.Close()
	}
	if !errors.Is(err, lost) {
		t.Errorf("error %v, want %v", err, lost)
	}
}
