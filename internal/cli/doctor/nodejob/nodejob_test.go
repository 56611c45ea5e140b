// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodejob

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/clitest"
)

// cluster answers with these pods and events of a namespace. onPods is called at each read of the pods.
func cluster(t *testing.T, pods, events string, onPods func()) (*clitest.Cluster, *access.Client) {
	t.Helper()
	f := clitest.StartCluster(t, func(*command.App) []*cobra.Command { return nil })
	f.On = func(w http.ResponseWriter, method, path, body string) bool {
		switch {
		case method == http.MethodPost, method == http.MethodDelete:
			_, _ = io.WriteString(w, body)
		case strings.HasSuffix(path, "/pods"):
			onPods()
			_, _ = io.WriteString(w, pods)
		case strings.HasSuffix(path, "/events"):
			_, _ = io.WriteString(w, events)
		default:
			return false
		}
		return true
	}
	api, err := access.Open(access.Options{File: f.Config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	return f, api
}

// At its deadline, the wait ends with the last event of the pod. The Job is removed.
func TestRunEnds(t *testing.T) {
	const pods = `{"items":[{"metadata":{"name":"p","namespace":"ops"}}]}`
	for name, tt := range map[string]struct{ pods, events, want string }{
		"with an event": {pods, `{"items":[{"reason":"FailedMount","message":"no folder"}]}`,
			"FailedMount: no folder: too late"},
		"without an event": {pods, `{"items":[]}`, "of namespace ops: too late"},
		"without a pod":    {`{"items":[]}`, `{"items":[]}`, "was deleted by another client"},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		reads := 0
		f, api := cluster(t, tt.pods, tt.events, func() {
			if reads++; reads == 2 {
				cancel(errors.New("too late"))
			}
		})
		_, err := Run(ctx, api, Options{Node: "gpu-1", Namespace: "ops", Say: func(string) {}})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
		const jobs = "DELETE /apis/batch/v1/namespaces/ops/jobs/"
		if wrote := f.Writes(); len(wrote) != 2 || !strings.HasPrefix(wrote[1], jobs) {
			t.Errorf("%s: wrote %q", name, wrote)
		}
	}
}

// If the answer to the creation is lost, the Job is removed all the same. After a rejection there is nothing to remove.
func TestRunRemovesWhatItMayHaveCreated(t *testing.T) {
	for status, removed := range map[int]bool{http.StatusInternalServerError: true, http.StatusForbidden: false,
		http.StatusUnprocessableEntity: false} {
		f, api := cluster(t, "", "", func() {})
		f.On = func(w http.ResponseWriter, method, _, _ string) bool {
			if method == http.MethodPost {
				w.WriteHeader(status)
			}
			return method == http.MethodPost
		}
		said := ""
		_, err := Run(t.Context(), api, Options{Node: "gpu-1", Namespace: "ops", Say: func(s string) { said += s }})
		if wrote := f.Writes(); err == nil || (len(wrote) == 2 && strings.HasPrefix(wrote[1], "DELETE ")) != removed {
			t.Errorf("%d: %v, wrote %q, said %s", status, err, wrote, said)
		}
	}
}

// A missing right to read kerf-system is not taken for a missing namespace.
func TestNamespaceThatMayNotBeRead(t *testing.T) {
	f, api := cluster(t, "", "", func() {})
	f.On = func(w http.ResponseWriter, _, _, _ string) bool {
		w.WriteHeader(http.StatusForbidden)
		return true
	}
	if _, err := Run(t.Context(), api, Options{Node: "gpu-1"}); !errors.Is(err, sharing.ErrDenied) ||
		len(f.Writes()) != 0 {
		t.Errorf("%v, wrote %q", err, f.Writes())
	}
}
