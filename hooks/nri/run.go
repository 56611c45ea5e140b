// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

// run is one call of Plugin.Run: what its connections have in common.
type run struct {
	Options
	jobs   *jobs
	exempt map[string]bool
	missed missed
	// syncing has a token while the node processes a list: one list after the other.
	syncing chan struct{}
	// unread is true after the API server was found not read.
	unread atomic.Bool

	mu   sync.Mutex
	said string // the last reported condition
}

// say tells a change of the condition.
func (r *run) say(sentence string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.said == sentence {
		return
	}
	r.said = sentence
	if r.Condition != nil {
		r.Condition(sentence)
	}
}

// eval is the named failpoint.
func (r *run) eval(name string) error {
	if r.Failpoints == nil {
		return nil
	}
	if err := r.Failpoints.Eval(name); err != nil {
		return fmt.Errorf("kerf: %w", err)
	}
	return nil
}

// pod looks a pod up, for at most a part of the time that is left. A pod that is not found is no error: its
// grants are made container by container.
func (r *run) pod(ctx context.Context, box sandbox, limit time.Duration) (sharing.Pod, bool) {
	if !box.fromAPI() {
		return sharing.Pod{}, false
	}
	wait := min(lookUp, limit*2/3)
	if r.unread.Load() {
		wait = min(wait, glance)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	pod, ok, err := r.Pods.Pod(ctx, box.uid)
	r.unread.Store(err != nil)
	if err != nil || !ok {
		r.Log.Warn("failed to look up pod, will reserve its grants per container", "pod", box.String(), "pod_uid",
			box.uid, "error", err)
	}
	return pod, ok && err == nil
}

// jobs are the requests in hand and the work that outlives them.
type jobs struct {
	ctx    context.Context //nolint:containedctx // work outlives its request, and ends with the run
	cancel context.CancelFunc

	mu      sync.Mutex
	stopped bool
	wg      sync.WaitGroup
}

func newJobs(ctx context.Context) *jobs {
	j := &jobs{}
	j.ctx, j.cancel = context.WithCancel(ctx)
	return j
}

// enter counts one more; false after stop. The caller calls j.wg.Done.
func (j *jobs) enter() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stopped {
		return false
	}
	j.wg.Add(1)
	return true
}

// stop ends all and waits for it.
func (j *jobs) stop() {
	j.mu.Lock()
	j.stopped = true
	j.mu.Unlock()
	j.cancel()
	j.wg.Wait()
}

func errStopping() error {
	return fmt.Errorf("kerf: the agent is stopping: %w", sharing.ErrUnavailable)
}

// within does the work and waits at most limit for it. Unfinished work goes on; late receives its result, unless late
// is nil. The error of that case wraps sharing.ErrUnavailable.
func within[T any](ctx context.Context, j *jobs, limit time.Duration, what string,
	work func(context.Context) (T, error), late func(error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	if !j.enter() {
		return none, errStopping()
	}
	defer j.wg.Done()
	if !j.enter() {
		return none, errStopping()
	}
	done, left := make(chan result), make(chan struct{})
	go func() { //nolint:contextcheck // the work outlives its request on purpose
		defer j.wg.Done()
		jctx, cancel := context.WithTimeout(j.ctx, jobLimit)
		defer cancel()
		var r result
		r.value, r.err = work(jctx)
		select {
		case done <- r:
		case <-left:
			if late != nil {
				late(r.err)
			}
		}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.value, r.err
	case <-timer.C:
		close(left)
		return none, fmt.Errorf("kerf: %s is not done after %s; it goes on, and the next try finds it done: %w", what,
			limit.Round(time.Millisecond), sharing.ErrUnavailable)
	case <-ctx.Done():
		close(left)
		return none, fmt.Errorf("kerf: %s: the container runtime gave up: %w", what, ctx.Err())
	case <-j.ctx.Done():
		close(left)
		return none, errStopping()
	}
}

// share is the time for a request: three quarters of the runtime's timeout, and of what is left of this request. So the
// answer arrives in time.
func share(ctx context.Context, timeout time.Duration) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(end))
	}
	return max(timeout, 0) * 3 / 4
}
