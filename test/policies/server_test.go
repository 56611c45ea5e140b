// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"flag"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

var kubeconfig = flag.String("kubeconfig", "", "try the policies on this API server, as its administrator")

// Everything is tried on an API server. The end-to-end suite has one, and runs this on it.
func TestOnAPIServer(t *testing.T) {
	if *kubeconfig == "" {
		t.Skip("it needs an API server, with -kubeconfig=FILE")
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tried, err := Run(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d tried", tried)
}
