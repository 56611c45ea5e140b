// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/internal/cli/explain"
	"github.com/kerf-gpu/kerf/internal/kube/jobs"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// followEvery is how often a Job is looked at.
	followEvery = time.Second
	// patience is how long a pod may wait before it is said why, and again when the reason has changed.
	patience = 5 * time.Second
)

// follow waits for the pod, says why it waits, copies what it writes, and returns the exit status of the command.
func (r *jobRun) follow(ctx context.Context) (int, error) {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	since, said, copied := time.Now(), "", false
	for {
		pod, err := r.job.Pod(ctx)
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case errors.Is(err, sharing.ErrUnavailable):
			notice(r.app, "cannot look at the pod: "+err.Error())
		case err != nil:
			return 0, err
		case pod == nil:
			if why, failed, err := r.job.Failed(ctx); err != nil || failed {
				return 0, errors.Join(err, errors.New(why))
			}
		case started(pod) && !copied:
			if copied, err = r.copyLog(ctx, pod); err != nil {
				return 0, err
			}
			if copied {
				continue // it has ended, or is about to
			}
		case ended(pod) != nil:
			return r.result(pod)
		case !started(pod) && time.Since(since) > patience:
			if why := r.waits(ctx, pod); why != "" && why != said {
				said = why
				notice(r.app, "pod "+pod.Name+" waits: "+why)
			}
			since = time.Now()
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// started is true once the container has run.
func started(p *corev1.Pod) bool {
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == jobContainer {
			return s.State.Running != nil || s.State.Terminated != nil && !s.State.Terminated.StartedAt.IsZero()
		}
	}
	return false
}

func ended(p *corev1.Pod) *corev1.ContainerStateTerminated {
	return jobs.Ended(p, jobContainer, ExitRefused)
}

// result is the exit status of a command that has ended, and what it could not say itself.
func (r *jobRun) result(p *corev1.Pod) (int, error) {
	end := ended(p)
	if end.ExitCode != 0 && (end.Reason != "Error" || end.Message != "") {
		notice(r.app, fmt.Sprintf("pod %s ended: %s %s", p.Name, end.Reason, end.Message))
	}
	return int(end.ExitCode), nil
}

// copyLog copies what the container writes until it ends. It is not done where the log is not there yet.
func (r *jobRun) copyLog(ctx context.Context, p *corev1.Pod) (done bool, err error) {
	log, err := r.api.Stream(ctx, jobs.LogPath(p), url.Values{"container": {jobContainer}, "follow": {"true"}})
	if err != nil {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if ended(p) == nil && (errors.Is(err, sharing.ErrInvalid) || errors.Is(err, sharing.ErrUnavailable)) {
			return false, nil
		}
		return false, fmt.Errorf("read the log of pod %s: %w", p.Name, err)
	}
	defer func() { _ = log.Close() }()
	if _, err := io.Copy(r.app.Out, log); err != nil && ctx.Err() == nil {
		notice(r.app, "the log of pod "+p.Name+" broke off: "+err.Error())
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return true, nil
}

// waits returns why the pod does not run yet. It prefers kubelet's reason, then the scheduler's evaluation, then the
// newest event.
func (r *jobRun) waits(ctx context.Context, p *corev1.Pod) string {
	for _, s := range p.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil && w.Reason != "" && w.Reason != "ContainerCreating" &&
			w.Reason != "PodInitializing" {
			return w.Reason + ": " + w.Message
		}
	}
	if p.Spec.NodeName == "" {
		if x, err := explain.Pod(ctx, r.api, p.Namespace, p.Name); err == nil && x.PendingReason != "" {
			return x.PendingReason
		}
	}
	events, err := survey.Events(ctx, r.api, p.Namespace, p.Name)
	if err != nil || len(events) == 0 {
		return ""
	}
	last := events[len(events)-1]
	return last.Reason + ": " + last.Message
}
