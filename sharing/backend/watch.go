// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"
	"fmt"

	"github.com/kerf-gpu/kerf/internal/nvml"
	"github.com/kerf-gpu/kerf/sharing"
)

// Lister is what watching needs of the driver. *nvml.Library is one.
type Lister interface {
	Processes(ctx context.Context, gpu sharing.GPUID) ([]nvml.Process, error)
}

// PIDSpace is the number of the pid namespace that this program is in; Err is why it could not be read. Initial is that
// of the machine, in which all processes are.
type PIDSpace struct {
	Own, Initial uint64
	Err          error
}

// support is why the processes of the machine cannot be seen from here.
func (s PIDSpace) support() Support {
	switch {
	case s.Err != nil:
		return Unknown("the pid namespace of the agent could not be read", s.Err)
	case s.Own != s.Initial:
		return Support{
			Answer: NotSupported,
			Reason: fmt.Sprintf(
				"the agent is in a private PID namespace (pid:[%d]): the driver leaves out all processes that are "+
					"not in it", s.Own),
			Remedy: "run the agent in the machine's pid namespace; in a pod, set hostPID: true",
		}
	}
	return Support{Answer: Supported}
}

// ProbeWatch tells whether the driver lists the processes of this GPU, so that shares of it can be watched
// (level reactive). It does not promise that the driver tells each one's memory: an attachment of which it does not
// shows level unknown while that is so.
func ProbeWatch(ctx context.Context, door Lister, space PIDSpace, gpu sharing.GPU) Support {
	if gpu.MIG {
		return Support{Answer: NotSupported, Reason: "no share is given of a GPU in MIG mode",
			Remedy: "turn MIG mode off"}
	}
	if s := space.support(); !s.OK() {
		return s
	}
	_, err := door.Processes(ctx, gpu.UUID)
	switch {
	case err == nil:
		return Support{Answer: Supported}
	case errors.Is(err, sharing.ErrUnsupported):
		return Support{Answer: NotSupported, Reason: "the driver does not list the processes of this GPU: " +
			err.Error(), Remedy: "use a driver that does"}
	}
	return Unknown("its processes could not be listed", err)
}
