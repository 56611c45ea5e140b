// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/cli/doctor/bundle"
	"github.com/kerf-gpu/kerf/internal/kube/access"
)

// writeBundle writes a support archive, and says what is missing in it.
func writeBundle(a *command.App, file string, fill func(to *bundle.Archive)) error {
	now := time.Now().UTC()
	to := bundle.New(now)
	to.JSON("kerf.json", map[string]string{"version": a.Version, "time": now.Format(time.RFC3339)}, nil)
	fill(to)
	if err := to.Write(file); err != nil {
		return command.Fail(err)
	}
	for _, why := range to.Left() {
		if _, err := fmt.Fprintf(a.ErrOut, "missing: %s\n", why); err != nil {
			return command.Fail(err)
		}
	}
	_, err := fmt.Fprintf(a.Out, "%s: %d files; read them before you send the archive\n", file, len(to.Names()))
	return command.Fail(err)
}

// clusterBundle adds what a cluster tells of Kerf. What cannot be read is missing.
func clusterBundle(parent context.Context, a *command.App, to *bundle.Archive) {
	err := a.WithCluster(parent, func(ctx context.Context, api *access.Client) error {
		found, err := findings(ctx, api)
		to.Text("doctor.txt", []byte(findingsText(found, false)), err)
		to.FromCluster(ctx, api)
		return nil
	})
	if err != nil {
		to.Text("cluster", nil, err)
	}
}
