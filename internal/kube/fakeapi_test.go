// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

const node = "node-1"

// api is as much of an API server as the Client uses. Its answers can be made those of a broken one.
type api struct {
	mu      sync.Mutex
	server  *httptest.Server
	version int
	pods    map[string]*corev1.Pod
	watches map[chan metav1.WatchEvent]bool
	events  map[string]*corev1.Event
	patches int
	gets    map[string]int
	// denied refuses deletions and what is applied.
	denied bool
	// kinds are known, applied is what is there by its path, and puts counts the requests.
	kinds bool
	// uid is the Node's.
	uid     string
	applied map[string]map[string]any
	puts    int
	// broken answers in place of the server, where it is set.
	broken http.HandlerFunc
}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{applied: map[string]map[string]any{}, pods: map[string]*corev1.Pod{},
		watches: map[chan metav1.WatchEvent]bool{}, events: map[string]*corev1.Event{}, gets: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/pods", a.list)
	mux.HandleFunc("GET /api/v1/namespaces/{ns}/pods/{name}", a.get)
	mux.HandleFunc("GET /api/v1/nodes/"+node, a.getNode)
	mux.HandleFunc("GET /api/v1/namespaces/{name}", a.getNamespace)
	mux.HandleFunc("PATCH /apis/", a.apply)
	mux.HandleFunc("DELETE /api/v1/namespaces/{ns}/pods/{name}", a.delete)
	mux.HandleFunc("POST /api/v1/namespaces/{ns}/events", a.event)
	mux.HandleFunc("PATCH /api/v1/namespaces/{ns}/events/{name}", a.count)
	a.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		broken := a.broken
		a.mu.Unlock()
		if broken != nil {
			broken(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	// As a real one: connections that many requests share, and that stay open.
	a.server.EnableHTTP2 = true
	a.server.StartTLS()
	t.Cleanup(a.server.Close)
	return a
}

// away ends all watches and lets every request fail by h; nil heals.
func (a *api) away(h http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.broken = h
	if h != nil {
		a.cut()
	}
}

func (a *api) cut() {
	for ch := range a.watches {
		close(ch)
		delete(a.watches, ch)
	}
}

// put makes or changes a pod, and remove deletes it; watchers get it.
func (a *api) put(p *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key, kind := p.Namespace+"/"+p.Name, "MODIFIED"
	if before := a.pods[key]; before == nil || before.UID != p.UID {
		kind = "ADDED"
		if before != nil {
			a.tell("DELETED", before)
		}
	}
	a.pods[key] = a.tell(kind, p)
}

func (a *api) remove(namespace, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[namespace+"/"+name]
	delete(a.pods, namespace+"/"+name)
	a.tell("DELETED", p)
}

func (a *api) tell(kind string, p *corev1.Pod) *corev1.Pod {
	a.version++
	p = p.DeepCopy()
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	p.ResourceVersion = strconv.Itoa(a.version)
	raw, _ := json.Marshal(p)
	for ch := range a.watches {
		if p.Spec.NodeName == node {
			e := metav1.WatchEvent{Type: kind}
			e.Object.Raw = raw
			ch <- e
		}
	}
	return p
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func status(w http.ResponseWriter, code int32, reason metav1.StatusReason, d *metav1.StatusDetails) {
	answer(w, int(code), metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: code, Reason: reason,
		Details: d,
	})
}

func (a *api) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("fieldSelector") != "spec.nodeName="+node || q.Get("sendInitialEvents") != "" {
		status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, nil)
		return
	}
	a.mu.Lock()
	if q.Get("watch") != "" {
		if q.Get("resourceVersion") != strconv.Itoa(a.version) {
			// What lies between is not kept: the client must list again.
			a.mu.Unlock()
			status(w, http.StatusGone, metav1.StatusReasonExpired, nil)
			return
		}
		ch := make(chan metav1.WatchEvent, 100)
		a.watches[ch] = true
		a.mu.Unlock()
		a.watch(w, r, ch)
		return
	}
	defer a.mu.Unlock()
	out := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	out.ResourceVersion = strconv.Itoa(a.version)
	for _, p := range a.pods {
		if p.Spec.NodeName == node {
			out.Items = append(out.Items, *p)
		}
	}
	answer(w, http.StatusOK, out)
}

func (a *api) watch(w http.ResponseWriter, r *http.Request, ch chan metav1.WatchEvent) {
	w.Header().Set("Content-Type", "application/json")
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	for {
		select {
		case e, ok := <-ch:
			if !ok {
				return
			}
			_ = json.NewEncoder(w).Encode(e)
			_ = flush.Flush()
		case <-r.Context().Done():
			a.mu.Lock()
			delete(a.watches, ch)
			a.mu.Unlock()
			return
		}
	}
}

func (a *api) get(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ns, name := r.PathValue("ns"), r.PathValue("name")
	a.gets[name]++
	p := a.pods[ns+"/"+name]
	if p == nil {
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, &metav1.StatusDetails{Name: name, Kind: "pods"})
		return
	}
	answer(w, http.StatusOK, p)
}

func (a *api) nodeUID(uid string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.uid = uid
}

func (a *api) getNode(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer(w, http.StatusOK, &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: node,
			UID: types.UID(a.uid)},
	})
}

// getNamespace knows one namespace, "labelled".
func (a *api) getNamespace(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := r.PathValue("name")
	switch {
	case a.denied:
		status(w, http.StatusForbidden, metav1.StatusReasonForbidden, nil)
	case name != "labelled":
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, nil)
	default:
		answer(w, http.StatusOK, &corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kerf.dev/allow-host-paths": "true"}},
		})
	}
}

// apply does what the API server does with objects of custom kinds and with Leases: a status is written where its
// object is.
func (a *api) apply(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	var o map[string]any
	q := r.URL.Query()
	whole, isStatus := strings.CutSuffix(r.URL.Path, "/status")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.puts++
	_, there := a.applied[whole]
	switch {
	case a.denied:
		status(w, http.StatusForbidden, metav1.StatusReasonForbidden, nil)
	case json.Unmarshal(data, &o) != nil || r.Header.Get("Content-Type") != "application/apply-patch+yaml" ||
		q.Get("fieldManager") != "kerf-agent" || q.Get("force") != "true" || q.Get("fieldValidation") != "Strict":
		status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, nil)
	case !a.kinds, isStatus && !there:
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, nil)
	case isStatus:
		a.applied[whole]["status"] = o["status"]
		answer(w, http.StatusOK, o)
	default:
		delete(o, "status")
		a.applied[whole] = o
		answer(w, http.StatusOK, o)
	}
}

// delete does what the API server does with a UID as precondition; denied is for an agent without the right.
func (a *api) delete(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, &metav1.DeleteOptions{})
	o, ok := obj.(*metav1.DeleteOptions)
	if err != nil || !ok || o.Preconditions == nil || o.Preconditions.UID == nil || o.GracePeriodSeconds != nil {
		status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, nil)
		return
	}
	ns, name := r.PathValue("ns"), r.PathValue("name")
	a.mu.Lock()
	p, denied := a.pods[ns+"/"+name], a.denied
	a.mu.Unlock()
	d := &metav1.StatusDetails{Name: name, Kind: "pods"}
	switch {
	case denied:
		status(w, http.StatusForbidden, metav1.StatusReasonForbidden, d)
	case p == nil:
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, d)
	case p.UID != *o.Preconditions.UID:
		status(w, http.StatusConflict, metav1.StatusReasonConflict, d)
	default:
		a.remove(ns, name)
		answer(w, http.StatusOK, p)
	}
}

func (a *api) event(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	e, ok := obj.(*corev1.Event)
	if err != nil || !ok || e.Namespace != r.PathValue("ns") || e.InvolvedObject.Namespace != "" &&
		e.InvolvedObject.Namespace != e.Namespace {
		status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, nil)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	e.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}
	e.ResourceVersion = strconv.Itoa(a.version)
	a.events[e.Name] = e
	answer(w, http.StatusCreated, e)
}

func (a *api) count(w http.ResponseWriter, r *http.Request) {
	var patch struct {
		Count int32 `json:"count"`
	}
	err := json.NewDecoder(r.Body).Decode(&patch)
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.events[r.PathValue("name")]
	if err != nil || e == nil {
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, &metav1.StatusDetails{Name: r.PathValue("name"),
			Kind: "events"})
		return
	}
	e.Count = patch.Count
	a.patches++
	answer(w, http.StatusOK, e)
}

// client opens a Client on the API and, where run is true, runs it for the test's length.
func (a *api) client(t *testing.T, run bool) *Client {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(
		`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],`+
			`"clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],"users":[{"name":"u","user":{}}]}`, a.server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Open(Options{Kubeconfig: file, Node: node,
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	if run {
		a.run(t, c)
	}
	return c
}

// run joins the Client at the test's end, before the server closes.
func (a *api) run(t *testing.T, c *Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func pod(uid, name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "team", Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main"}}},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

// uid makes a UID of the API server's form.
func uid(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func fails(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "etcd is not there", http.StatusInternalServerError)
}

// proxied is the 404 of something that is no API server.
func proxied(w http.ResponseWriter, r *http.Request) {
	http.Error(w, "no such page: "+strings.ToUpper(r.URL.Path), http.StatusNotFound)
}
