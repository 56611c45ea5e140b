// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

var (
	// patience is how long to wait for what must come. It is far beyond what anything here needs.
	patience = flag.Duration("patience", 150*time.Second, "how long to wait for what must come")
	// theNode is the node that all tests use.
	theNode *node
	// theCluster is its Kubernetes.
	theCluster *cluster
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *postRender != "" {
		os.Exit(renderForSimulator(os.Stdin, os.Stdout))
	}
	if flag.Lookup("test.list").Value.String() != "" { // who asks for the names alone needs no node
		os.Exit(m.Run())
	}
	if err := setUp(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// setUp brings the node up, unless it is, and installs the agent as it is built now. It does not wait for the
// agent: that is for the tests that need it.
func setUp() error {
	var err error
	if theNode, err = openNode(); err != nil {
		return err
	}
	if err := theNode.up(); err != nil {
		return err
	}
	if theCluster, err = connect(theNode); err != nil {
		return err
	}
	if *upgradeFrom != "" || *releaseFiles != "" {
		return nil // their tests begin with another one, or with none
	}
	return theCluster.install()
}
