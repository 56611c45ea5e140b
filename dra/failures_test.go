// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// conditioned is a plugin in a folder, with what it reports.
func conditioned(t *testing.T, client *fake.Clientset) (*Plugin, <-chan error) {
	t.Helper()
	reports := make(chan error, 64)
	opt, dir := plugin(&preparer{}).opt, socketDir(t)
	opt.Client, opt.Registry, opt.Plugins = client, dir, filepath.Join(dir, "plugins")
	opt.Condition = func(err error) { reports <- err }
	return New(opt), reports
}

// TestFatalFailureEndsRun: the agent starts the plugin again after its server has failed.
func TestFatalFailureEndsRun(t *testing.T) {
	p, reports := conditioned(t, fake.NewClientset())
	done := make(chan error)
	go func() { done <- p.Run(t.Context()) }()
	if err := <-reports; err != nil {
		t.Fatalf("it started, and reports %v", err)
	}
	failed := errors.New("accept: too many open files")
	p.HandleError(t.Context(), failed, "DRA gRPC server failed")
	if err := <-done; !errors.Is(err, failed) {
		t.Errorf("Run ended with %v", err)
	}
	if err := <-reports; !errors.Is(err, failed) || !strings.Contains(err.Error(), "DRA gRPC server failed") {
		t.Errorf("reported %v", err)
	}
}

// TestFailedPublicationIsReported: the library reports in the background that the API server rejects ResourceSlices.
func TestFailedPublicationIsReported(t *testing.T) {
	client := fake.NewClientset()
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "resourceslices"}, "", nil)
	client.PrependReactor("create", "resourceslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, denied
	})
	client.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, denied
	})
	p, reports := conditioned(t, client)
	done := make(chan error)
	go func() { done <- p.Run(t.Context()) }()
	if err := <-reports; err != nil {
		t.Fatalf("it started, and reports %v", err)
	}
	if err := <-reports; !apierrors.IsForbidden(err) {
		t.Errorf("reported %v", err)
	}
	p.HandleError(t.Context(), errors.New("end of the test"), "test")
	<-done
}

// TestFailureEndsWithAQuietPublication: what failed is published again, and the condition stays until that brings no
// failure. What the same devices fail with again waits for other devices.
func TestFailureEndsWithAQuietPublication(t *testing.T) {
	var reported []error
	f := failures{report: func(err error) { reported = append(reported, err) }, noted: make(chan struct{}, 1)}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	next := func(what string, after time.Duration, again bool, wait time.Duration) {
		t.Helper()
		now = now.Add(after)
		if gotAgain, gotWait := f.next(now); gotAgain != again || gotWait != wait {
			t.Errorf("%s: %t, %s, want %t, %s", what, gotAgain, gotWait, again, wait)
		}
	}
	failed := errors.Join(errors.New("no API server"), kubeletplugin.ErrRecoverable)
	next("no failure", 0, false, 0)
	f.note(failed, now)
	f.serving() // does not hide it
	next("failed", time.Second, false, retryTime-time.Second)
	next("time to retry", retryTime, true, 0)
	f.published(now)
	next("tried", time.Second, false, retryTime-time.Second)
	f.note(failed, now)
	next("failed again", retryTime, true, 0)
	f.published(now)
	next("quiet", retryTime, false, 0)
	next("later", time.Hour, false, 0)
	if len(reported) != 3 || reported[0] == nil || reported[1] == nil || reported[2] != nil {
		t.Errorf("reported %v", reported)
	}
	dropped := &resourceslice.DroppedFieldsError{PoolName: "node-1",
		DesiredSlice: &resourceapi.ResourceSlice{}, ActualSlice: &resourceapi.ResourceSlice{}}
	f.note(errors.Join(dropped, kubeletplugin.ErrRecoverable), now)
	next("dropped fields", time.Hour, false, 0)
	f.published(now)
	next("other devices", retryTime, false, 0)
	if len(reported) != 5 || reported[4] != nil || f.fatal() != nil {
		t.Errorf("reported %v, fatal %v", reported, f.fatal())
	}
	f.note(errors.New("server failed"), now)
	if next("fatal", time.Hour, false, 0); f.fatal() == nil {
		t.Error("it is not fatal")
	}
	f.begin()
	if next("a new start", 0, false, 0); f.fatal() != nil {
		t.Error("a new start has the failure of the last one")
	}
}
