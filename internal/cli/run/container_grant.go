// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"strings"

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
	"github.com/kerf-gpu/kerf/hooks/oci"
	"github.com/kerf-gpu/kerf/internal/cdi"
	"github.com/kerf-gpu/kerf/sharing"
)

// containerGrant is a grant as it is put into an OCI spec. The GPUs' device files and libraries are those of
// the node's CDI specs.
func containerGrant(resp *nodev1.ClaimResponse) (oci.Grant, error) {
	in, id := resp.GetContainer(), resp.GetGrant().GetId()
	out := oci.Grant{ID: id, HookPath: in.GetHookPath(), Socket: in.GetHookSocket(), Env: in.GetEnv(), Note: in.GetNote()}
	for _, s := range in.GetAsks() {
		a, err := sharing.ParseAsk(s)
		if err != nil {
			return oci.Grant{}, fmt.Errorf("grant %q: %w", id, err)
		}
		out.Asks = append(out.Asks, a)
	}
	for _, m := range in.GetMounts() {
		out.Mounts = append(out.Mounts, sharing.Mount{Source: m.GetSource(), Target: m.GetTarget(), ReadOnly: m.GetReadOnly()})
	}
	dirs := in.GetCdiDirs()
	if len(in.GetCdiDevices()) == 0 || len(dirs) == 0 {
		return oci.Grant{}, fmt.Errorf("grant %q: the agent names no GPU, or no directory of CDI specs: %w", id, sharing.ErrUnavailable)
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
			return nil, fmt.Errorf("the agent names the device %q, which is no GPU of %s: %w", name, sharing.CDIGPU, sharing.ErrInvalid)
		}
		gpus = append(gpus, gpu)
	}
	return gpus, nil
}
