// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package caps

import (
	"context"
	"errors"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
)

// Lister is what watching needs of the driver. *nvml.Library is one.
type Lister interface {
	Processes(ctx context.Context, gpu sharing.GPUID) ([]nvml.Process, error)
}

// ProbeWatch tells whether the driver lists the processes of this GPU, so that shares of it can be watched
// (level reactive). It does not promise that the driver tells each one's memory: a lease of which it does not
// shows level unknown while that is so.
func ProbeWatch(ctx context.Context, door Lister, gpu sharing.GPU) Support {
	if gpu.MIG {
		return Support{Answer: NotSupported, Reason: "no share is given of a GPU in MIG mode", Remedy: "turn MIG mode off"}
	}
	_, err := door.Processes(ctx, gpu.UUID.Device())
	switch {
	case err == nil:
		return Support{Answer: Supported}
	case errors.Is(err, sharing.ErrUnsupported):
		return Support{Answer: NotSupported, Reason: "the driver does not list the processes of this GPU: " + err.Error(), Remedy: "use a driver that does"}
	}
	return couldNotTell("its processes could not be listed", err)
}
