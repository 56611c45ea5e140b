// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/hooks/oci"
	"github.com/kerf-gpu/kerf/internal/cdi"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// restartWindow is how long an agent may take to come back; a start with many GPUs takes some seconds.
	restartWindow = 10 * time.Second
	// readyWindow is how long an agent that answers may take to become ready. It is short, since most
	// reasons for not being ready (no driver) do not pass by themselves.
	readyWindow  = 2 * time.Second
	reservePause = 200 * time.Millisecond
)

// reserveRequest is the wire form of a request.
func reserveRequest(r sharing.Request, name string) *nodeapi.ReserveRequest {
	m := r.Amounts()
	return &nodeapi.ReserveRequest{
		Name: name, MemoryBytes: m.Memory, Percent: m.Percent, GpuCount: m.GPUs, Whole: m.Whole, Mig: m.MIG,
		Models: m.Models, Uuids: m.UUIDs, MinEnforcement: m.MinLevel, PlacementPolicy: m.Place, Profile: m.Profile,
	}
}

// reserve gets a placement for this process, over a restart of the agent. It repeats the call only after one that
// certainly did nothing: the agent was not reached, or said that it is not ready. A grant whose answer was lost may
// stay reserved as long as this process lives. So then it gives up, and the end of the process releases it.
func reserve(ctx context.Context, dir string, r *nodeapi.ReserveRequest) (*nodeclient.Client, *nodeapi.Grant, error) {
	return reserveBy(ctx, dir, func(client *nodeclient.Client) (*nodeapi.Grant, error) {
		grant, err := client.Reserve(ctx, r)
		if err == nil && grant.GetId() == "" {
			err = errNoGrant
		}
		return grant, err
	})
}

// reserveContainer is reserve for a container that a hook activates.
func reserveContainer(ctx context.Context, dir string, r *nodeapi.ReserveRequest) (*nodeclient.Client,
	*nodeapi.ReserveResponse, error) {
	return reserveBy(ctx, dir, func(client *nodeclient.Client) (*nodeapi.ReserveResponse, error) {
		resp, err := client.ReserveForContainer(ctx, r)
		if err == nil && resp.GetGrant().GetId() == "" {
			err = errNoGrant
		}
		return resp, err
	})
}

var errNoGrant = fmt.Errorf("reserve: the agent's answer names no grant: %w", sharing.ErrUnavailable)

func reserveBy[T any](ctx context.Context, dir string, ask func(*nodeclient.Client) (T, error)) (*nodeclient.Client, T,
	error) {
	var none T
	start := time.Now()
	window := readyWindow
	for {
		waited, err := nodeclient.Await(ctx, dir, restartWindow-time.Since(start))
		if err != nil {
			return nil, none, err
		}
		if waited {
			window = restartWindow
		}
		client, answer, err := reserveOnce(dir, ask)
		if err == nil {
			return client, answer, nil
		}
		if errors.Is(err, nodeclient.ErrRestarting) {
			window = restartWindow
		} else if !errors.Is(err, nodeclient.ErrNotReady) {
			return nil, none, err
		}
		if time.Since(start)+reservePause > window {
			return nil, none, err
		}
		select {
		case <-ctx.Done():
			return nil, none, context.Cause(ctx)
		case <-time.After(reservePause):
		}
	}
}

// reserveOnce uses a new connection, which the client keeps on success.
func reserveOnce[T any](dir string, ask func(*nodeclient.Client) (T, error)) (*nodeclient.Client, T, error) {
	var none T
	client, err := nodeclient.New(dir)
	if err != nil {
		return nil, none, err
	}
	answer, err := ask(client)
	if err != nil {
		return nil, none, errors.Join(err, client.Close())
	}
	return client, answer, nil
}

// containerGrant is a grant as it is put into an OCI spec. The GPUs' device files and libraries are those of
// the node's CDI specs.
func containerGrant(resp *nodeapi.ReserveResponse) (oci.Grant, error) {
	in, id := resp.GetContainer(), resp.GetGrant().GetId()
	out := oci.Grant{ID: id, HookPath: in.GetHookPath(), Socket: in.GetHookSocket(), Env: in.GetEnv(),
		Annotation: in.GetAnnotation()}
	for _, s := range in.GetRequests() {
		a, err := sharing.ParseResourceRequest(s)
		if err != nil {
			return oci.Grant{}, fmt.Errorf("grant %q: %w", id, err)
		}
		out.Requests = append(out.Requests, a)
	}
	for _, m := range in.GetMounts() {
		out.Mounts = append(out.Mounts, sharing.Mount{Source: m.GetSource(), Target: m.GetTarget(),
			ReadOnly: m.GetReadOnly()})
	}
	dirs := in.GetCdiDirs()
	if len(in.GetCdiDevices()) == 0 || len(dirs) == 0 {
		return oci.Grant{}, fmt.Errorf("grant %q: the agent names no GPU, or no directory of CDI specs: %w", id,
			sharing.ErrUnavailable)
	}
	own := dirs[len(dirs)-1] // Kerf's own specs lie in the directory of the highest precedence
	var err error
	if uuid, cut := strings.CutPrefix(in.GetCdiDevices()[0], sharing.CDIMIG+"="); cut && len(in.GetCdiDevices()) == 1 {
		out.Edits, err = cdi.EditsForInstance(own, uuid)
	} else {
		var gpus []sharing.GPUID
		if gpus, err = gpusOf(in.GetCdiDevices()); err == nil {
			out.Edits, err = cdi.EditsFor(own, gpus)
		}
	}
	if err != nil {
		return oci.Grant{}, fmt.Errorf("grant %q: %w", id, err)
	}
	return out, nil
}

// gpusOf are the GPUs that CDI names mean.
func gpusOf(names []string) ([]sharing.GPUID, error) {
	var gpus []sharing.GPUID
	for _, name := range names {
		uuid, ok := strings.CutPrefix(name, sharing.CDIGPU+"=")
		gpu, err := sharing.ParseGPUID("CDI device", uuid)
		if !ok || err != nil {
			return nil, fmt.Errorf("the agent names the device %q, which is no GPU of %s: %w", name, sharing.CDIGPU,
				sharing.ErrInvalid)
		}
		gpus = append(gpus, gpu)
	}
	return gpus, nil
}
