// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/internal/cli/explain"
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
		pod, err := r.pod(ctx)
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case errors.Is(err, sharing.ErrUnavailable):
			notice(r.app, "cannot look at the pod: "+err.Error())
		case err != nil:
			return 0, err
		case pod == nil:
			if why, failed, err := r.failed(ctx); err != nil || failed {
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

// pod is the Job's pod, nil while there is none.
func (r *jobRun) pod(ctx context.Context) (*corev1.Pod, error) {
	var found *corev1.Pod
	path := "/api/v1/namespaces/" + url.PathEscape(r.api.Namespace) + "/pods"
	err := r.api.List(ctx, path, url.Values{"labelSelector": {batchv1.JobNameLabel + "=" + r.name}},
		func(raw json.RawMessage) error {
			var p corev1.Pod
			err := json.Unmarshal(raw, &p)
			if found == nil || found.CreationTimestamp.Before(&p.CreationTimestamp) {
				found = &p
			}
			return err
		})
	return found, err //nolint:wrapcheck // it says what it did
}

// failed says whether the Job has failed without a pod. A quota or a policy can prevent the pod. A client can delete
// the Job.
func (r *jobRun) failed(ctx context.Context) (string, bool, error) {
	var j batchv1.Job
	err := r.api.Get(ctx, r.path()+"/"+url.PathEscape(r.name), nil, &j)
	switch {
	case errors.Is(err, sharing.ErrNotFound):
		return "job " + r.name + " was deleted by another client", true, nil
	case err != nil:
		return "", false, fmt.Errorf("read job %s: %w", r.name, err)
	}
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return "job " + r.name + " failed: " + c.Message, true, nil
		}
	}
	return "", false, nil
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

// ended is how the container ended; a pod that ended without it has an end too.
func ended(p *corev1.Pod) *corev1.ContainerStateTerminated {
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == jobContainer && s.State.Terminated != nil {
			return s.State.Terminated
		}
	}
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return &corev1.ContainerStateTerminated{ExitCode: ExitRefused, Reason: p.Status.Reason,
			Message: p.Status.Message}
	}
	return nil
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
	path := "/api/v1/namespaces/" + url.PathEscape(p.Namespace) + "/pods/" + url.PathEscape(p.Name) + "/log"
	log, err := r.api.Stream(ctx, path, url.Values{"container": {jobContainer}, "follow": {"true"}})
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
