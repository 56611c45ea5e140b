// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
)

// helperActivate, before an agent's directory and a FIFO, makes the helper a client of the node API. It grants raceCap,
// writes a byte to the FIFO, activates the grant, says what came of it, and lives until its input ends.
// testdata/racer.c, which is preloaded into it, takes GPU memory meanwhile.
const helperActivate = "activate"

// activated is what the helper says of its activation.
type activated struct{ ID, Error string }

func activate(dir, fifo string) int {
	said := activated{}
	if err := activateIn(dir, fifo, &said); err != nil {
		said.Error = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil {
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func activateIn(dir, fifo string, said *activated) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := nodeclient.New(dir)
	if err != nil {
		return err
	}
	defer client.Close()
	grant, err := client.Reserve(ctx, &nodeapi.ReserveRequest{MemoryBytes: raceCap})
	if err != nil {
		return fmt.Errorf("not even reserved: %w", err)
	}
	said.ID = grant.GetId()
	if err := os.WriteFile(fifo, []byte("g"), 0); err != nil {
		return err
	}
	_, err = client.Activate(ctx, &nodeapi.ActivateRequest{Id: said.ID})
	return err
}
