// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// anonymously makes a request to the scheduler's port through the API server, which passes no user's credentials on.
func (e *testCase) anonymously(pod, method, path string) int {
	e.Helper()
	_, err := e.client.CoreV1().RESTClient().Verb(method).Namespace(kerfNamespace).Resource("pods").
		Name("https:" + pod + ":10259").SubResource("proxy").Suffix(path).DoRaw(background())
	if status, rejected := errors.AsType[*apierrors.StatusError](err); rejected {
		return int(status.Status().Code)
	}
	if err != nil {
		e.Fatalf("%s of /%s: %v", method, path, err)
	}
	return http.StatusOK
}

// Without credentials the scheduler says that it lives, and nothing more. No request changes anything.
func TestSchedulerRejectsAnonymousRequests(t *testing.T) {
	e := withScheduler(t)
	pods, err := e.client.CoreV1().Pods(kerfNamespace).List(background(), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=" + schedulerName,
	})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("%d pods of the scheduler: %v", len(pods.Items), err)
	}
	pod := pods.Items[0].Name
	for _, path := range []string{"livez", "readyz", "healthz"} {
		if code := e.anonymously(pod, http.MethodGet, path); code != http.StatusOK {
			t.Errorf("GET /%s: %d", path, code)
		}
	}
	for _, path := range []string{"metrics", "configz", "debug/pprof/heap", "debug/flags/v", "statusz", "flagz", ""} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
			if code := e.anonymously(pod, method, path); code != http.StatusForbidden &&
				code != http.StatusUnauthorized {
				t.Errorf("%s /%s: %d, want that it is rejected", method, path, code)
			}
		}
	}
}
