// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"
)

const resourceAPI = "/apis/resource.k8s.io/v1"

// resourceServer is as much of an API server as a DRA driver uses on a node: its Node, ResourceSlices, ResourceClaims.
type resourceServer struct {
	*httptest.Server

	mu      sync.Mutex
	version int
	slices  map[string]*resourcev1.ResourceSlice
	claims  map[string]*resourcev1.ResourceClaim // by namespace/name
	watches map[chan metav1.WatchEvent]bool
	faults  []string // requests that it does not understand
}

func newResourceServer(t *testing.T) *resourceServer {
	t.Helper()
	s := &resourceServer{slices: map[string]*resourcev1.ResourceSlice{}, claims: map[string]*resourcev1.ResourceClaim{},
		watches: map[chan metav1.WatchEvent]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, http.StatusOK, apiversion.Info{Major: "1", Minor: "36", GitVersion: "v1.36.0"})
	})
	mux.HandleFunc("GET /api/v1/nodes/{name}", func(w http.ResponseWriter, r *http.Request) {
		respond(w, http.StatusOK, &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Name: r.PathValue("name"), UID: "6d9a2a0e-0000-4000-8000-000000000001"}})
	})
	mux.HandleFunc("GET "+resourceAPI+"/namespaces/{namespace}/resourceclaims/{name}", s.claim)
	mux.HandleFunc("GET "+resourceAPI+"/resourceslices", s.list)
	mux.HandleFunc("POST "+resourceAPI+"/resourceslices", s.write)
	mux.HandleFunc("PUT "+resourceAPI+"/resourceslices/{name}", s.write)
	mux.HandleFunc("DELETE "+resourceAPI+"/resourceslices/{name}", s.remove)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.refuse(w, http.StatusNotFound, r.Method+" "+r.URL.String())
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// kubeconfig writes a file with which a client reaches the server.
func (s *resourceServer) kubeconfig(path string) error {
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: a\n"+
		"contexts:\n- {name: a, context: {cluster: a}}\nclusters:\n- {name: a, cluster: {server: %q}}\n", s.URL)
	return os.WriteFile(path, []byte(text), 0o600)
}

// devices are those of all slices by name.
func (s *resourceServer) devices() map[string]resourcev1.Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]resourcev1.Device{}
	for _, slice := range s.slices {
		for _, d := range slice.Spec.Devices {
			out[d.Name] = d
		}
	}
	return out
}

// counterSets are how many sets of counters the slices have.
func (s *resourceServer) counterSets() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slice := range s.slices {
		n += len(slice.Spec.SharedCounters)
	}
	return n
}

// allocate makes a claim to which one device is allocated.
func (s *resourceServer) allocate(name string, uid types.UID, driver, pool, device string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims["default/"+name] = &resourcev1.ResourceClaim{
		TypeMeta:   metav1.TypeMeta{Kind: "ResourceClaim", APIVersion: "resource.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uid, ResourceVersion: "1"},
		Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{
			Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
				{Request: "gpu", Driver: driver, Pool: pool, Device: device},
			}},
		}},
	}
}

func (s *resourceServer) claim(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	claim := s.claims[r.PathValue("namespace")+"/"+r.PathValue("name")]
	s.mu.Unlock()
	if claim == nil {
		s.refuse(w, http.StatusNotFound, "no such claim")
		return
	}
	respond(w, http.StatusOK, claim)
}

// list answers with the slices, and goes on with their changes if that is asked.
func (s *resourceServer) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("sendInitialEvents") == "true" { // clients list instead
		s.refuse(w, http.StatusUnprocessableEntity, "sendInitialEvents is not served")
		return
	}
	if query.Get("watch") != "true" {
		respond(w, http.StatusOK, s.all())
		return
	}
	changes := make(chan metav1.WatchEvent, 64)
	s.mu.Lock()
	s.watches[changes] = true
	for _, slice := range s.slices { // a client sees what it knows once more
		changes <- event("MODIFIED", slice)
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watches, changes)
	}()
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	for {
		if out.Flush() != nil {
			return
		}
		select {
		case e := <-changes:
			if json.NewEncoder(w).Encode(e) != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

func (s *resourceServer) all() *resourcev1.ResourceSliceList {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &resourcev1.ResourceSliceList{
		TypeMeta: metav1.TypeMeta{Kind: "ResourceSliceList", APIVersion: "resource.k8s.io/v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(s.version)},
	}
	for _, slice := range s.slices {
		l.Items = append(l.Items, *slice)
	}
	return l
}

func (s *resourceServer) write(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil) // JSON or protobuf
	slice, ok := object.(*resourcev1.ResourceSlice)
	if err != nil || !ok {
		s.refuse(w, http.StatusBadRequest, fmt.Sprintf("%T: %v", object, err))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	kind := "MODIFIED"
	if r.Method == http.MethodPost {
		kind = "ADDED"
		slice.Name = fmt.Sprintf("%s%d", slice.GenerateName, s.version)
		slice.UID = types.UID(fmt.Sprintf("6d9a2a0e-0000-4000-8000-%012d", s.version))
	}
	slice.TypeMeta = metav1.TypeMeta{Kind: "ResourceSlice", APIVersion: "resource.k8s.io/v1"}
	slice.ResourceVersion = fmt.Sprint(s.version)
	s.slices[slice.Name] = slice
	s.tell(event(kind, slice))
	respond(w, http.StatusOK, slice)
}

func (s *resourceServer) remove(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.PathValue("name")
	if slice := s.slices[name]; slice != nil {
		delete(s.slices, name)
		s.tell(event("DELETED", slice))
	}
	respond(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusSuccess})
}

// tell sends a change to all watches. s.mu is held.
func (s *resourceServer) tell(e metav1.WatchEvent) {
	for watch := range s.watches {
		watch <- e
	}
}

// refuse answers with an error, and keeps what the server does not know.
func (s *resourceServer) refuse(w http.ResponseWriter, code int32, text string) {
	s.mu.Lock()
	s.faults = append(s.faults, text)
	s.mu.Unlock()
	reason := metav1.StatusReasonNotFound
	if code != http.StatusNotFound {
		reason = metav1.StatusReasonInvalid
	}
	respond(w, int(code), metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: text})
}

// said are the requests that the server refused.
func (s *resourceServer) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(slices.Compact(slices.Clone(s.faults)), "\n")
}

func event(kind string, slice *resourcev1.ResourceSlice) metav1.WatchEvent {
	return metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Object: slice.DeepCopy()}}
}

func respond(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object) // the client may be gone
}
