// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	nodev1 "github.com/kerf-gpu/kerf/api/node/v1"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/nodeclient"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// condition is what --wait waits for: whether it holds in a picture, and what is seen of it there.
type condition func(*nodev1.GetNodeResponse) (holds bool, seen string)

// parseCondition reads the value of --wait.
func parseCondition(s string) (condition, error) {
	bad := func(problem string) (condition, error) {
		return nil, sharing.Invalid("--wait", s, "write ready, or grants=N with a whole number, such as grants=0", "%s", problem)
	}
	if s == "ready" {
		return isReady, nil
	}
	number, ok := strings.CutPrefix(s, "grants=")
	switch {
	case s == "":
		return bad("is empty")
	case !ok:
		return bad("is not a condition")
	case strings.HasPrefix(number, "-"):
		return bad("asks for a negative number of grants")
	case number == "" || strings.Trim(number, "0123456789") != "":
		return bad("has no whole number of grants")
	}
	n, err := strconv.Atoi(number)
	if err != nil {
		return bad("asks for too many grants")
	}
	return func(p *nodev1.GetNodeResponse) (bool, string) { return hasGrants(p, n) }, nil
}

func isReady(p *nodev1.GetNodeResponse) (bool, string) {
	if p.GetReady() {
		return true, "ready"
	}
	if len(p.GetNotReady()) == 0 {
		return false, "not ready"
	}
	return false, "not ready: " + strings.Join(p.GetNotReady(), "; ")
}

func hasGrants(p *nodev1.GetNodeResponse, n int) (bool, string) {
	const most = 8 // names, which is enough to know what is meant
	grants := p.GetGrants()
	var names []string
	for _, g := range grants[:min(len(grants), most)] {
		names = append(names, present.FromGrant(g).Label())
	}
	if len(grants) > most {
		names = append(names, "...")
	}
	seen := fmt.Sprintf("grants=%d", len(grants))
	if len(names) > 0 {
		seen += " (" + strings.Join(names, ", ") + ")"
	}
	return len(grants) == n, seen
}

// errHolds ends a watch whose condition holds.
var errHolds = errors.New("condition holds")

// statusWait waits until the condition holds in a picture; with an output form it then prints that picture.
func statusWait(parent context.Context, a *command.App, o *statusOptions) error {
	holds, err := parseCondition(o.wait)
	if err == nil && o.timeout <= 0 {
		err = sharing.Invalid("--timeout", o.timeout.String(), "write a time such as 10s", "is not above zero")
	}
	if err != nil {
		return command.Misused(err)
	}
	return command.Interruptible(parent, func(ctx context.Context) error {
		// No deadline on the context: the agent would learn it with the call and might end the call first, as if
		// that was what there is to see.
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer time.AfterFunc(o.timeout, func() { cancel(context.DeadlineExceeded) }).Stop()
		seen := "nothing"
		var last *nodev1.GetNodeResponse
		err := nodeclient.Follow(ctx, a.Dir, watchInterval, func(p *nodev1.GetNodeResponse) error {
			last = p
			var ok bool
			if ok, seen = holds(p); ok {
				return errHolds
			}
			return nil
		}, func(err error) error {
			seen = err.Error()
			if hopeless(err) {
				return err
			}
			return nil
		})
		var stopped *command.InterruptedError
		switch {
		case errors.Is(err, errHolds) && o.output != "":
			return command.Fail(show(a, o.output, last))
		case errors.Is(err, errHolds):
			return nil
		case errors.As(err, &stopped):
			return command.Exit(stopped.Code(), err)
		case errors.Is(err, context.DeadlineExceeded):
			return command.Fail(fmt.Errorf("%q did not come within %s; last seen: %s", o.wait, o.timeout.Round(time.Millisecond), seen))
		}
		return command.Fail(err)
	})
}

// hopeless tells errors that waiting does not mend.
func hopeless(err error) bool {
	return errors.Is(err, sharing.ErrDenied) || errors.Is(err, sharing.ErrInvalid) || errors.Is(err, sharing.ErrUnsupported)
}
