// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodejob examines the files of a node of a cluster with a Job on that node, with the rights of the user.
package nodejob

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/kube/jobs"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/doctor/preset"
)

const (
	// pollEvery is how often the Job is read.
	pollEvery = 500 * time.Millisecond
	// logBytes is how much of the pod's log is read.
	logBytes = 1 << 20
	// saidBytes is how much of the log of a failed program an error has.
	saidBytes = 500
	// failedCreations is how many attempts to create the pod must fail. The first can fail in a new namespace.
	failedCreations = 2
)

// Options say what to examine.
type Options struct {
	Node string
	// Runtime is the container runtime that the Node reports: containerd:// or cri-o:// with a version.
	Runtime string
	// Namespace is that of the Job; empty for kerf-system if it exists, else default.
	Namespace string
	// Image has the program kerf.
	Image string
	// Paths are absolute paths of the node.
	Paths []string
	// Say tells the user of the Job: that it was created, and that it could not be removed.
	Say func(string)
}

// Run runs the Job, returns what it found, and removes it. The error says why the files were not examined: the Job was
// not created, it cannot run, or ctx or Window ended. The Job is removed after errors, too.
func Run(ctx context.Context, api *access.Client, o Options) (preset.Files, error) {
	if o.Namespace == "" {
		var err error
		if o.Namespace, err = namespace(ctx, api); err != nil {
			return preset.Files{}, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, Window, fmt.Errorf("no result after %s: %w", Window,
		sharing.ErrUnavailable))
	defer cancel()
	// The command chooses the name, so that it can remove the Job also if it gets no answer.
	name := "kerf-doctor-" + strings.ToLower(rand.Text()[:8])
	job, err := jobs.Create(ctx, api, o.Namespace, spec(name, o))
	if err == nil || errors.Is(err, sharing.ErrUnavailable) {
		defer func() {
			// If this fails, the cluster removes the Job after its end.
			if err := job.Remove(ctx); err != nil {
				o.Say(err.Error())
			}
		}()
	}
	if err != nil {
		return preset.Files{}, err //nolint:wrapcheck // it says what it did
	}
	o.Say(fmt.Sprintf("job %s of namespace %s examines node %s", job.Name, job.Namespace, o.Node))
	pod, err := wait(ctx, job)
	if err != nil {
		return preset.Files{}, fmt.Errorf("run job %s of namespace %s: %w", job.Name, job.Namespace, err)
	}
	return result(ctx, job, pod)
}

// namespace is where the Job runs: Kerf's, whose pods may mount files of the node, or the default before the
// installation.
func namespace(ctx context.Context, api *access.Client) (string, error) {
	var n corev1.Namespace
	err := api.Get(ctx, "/api/v1/namespaces/"+command.SystemNamespace, nil, &n)
	switch {
	case errors.Is(err, sharing.ErrNotFound), err == nil && n.Status.Phase == corev1.NamespaceTerminating:
		return corev1.NamespaceDefault, nil
	case err != nil:
		return "", fmt.Errorf("read namespace %s: %w", command.SystemNamespace, err)
	}
	return command.SystemNamespace, nil
}

// wait returns the pod of the Job after its end. A pod that cannot start is an error, with the reason.
func wait(ctx context.Context, job jobs.Job) (*corev1.Pod, error) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	waits, known := "", (*corev1.Pod)(nil)
	for {
		pod, err := job.Pod(ctx)
		if pod != nil {
			known = pod
		}
		switch {
		case ctx.Err() != nil: // below
		case errors.Is(err, sharing.ErrUnavailable):
			waits = err.Error()
		case err != nil:
			return nil, err //nolint:wrapcheck // it says what it did
		case pod == nil:
			if err := unable(ctx, job); err != nil && ctx.Err() == nil {
				return nil, err
			}
			waits = "the Job has no pod"
		case jobs.Ended(pod, container, 1) != nil:
			return pod, nil
		default:
			var stuck bool
			if waits, stuck = waiting(pod); stuck {
				return nil, errors.New(waits)
			}
		}
		select {
		case <-ctx.Done():
			return nil, stopped(ctx, job, known, waits)
		case <-tick.C:
		}
	}
}

// stopped is why the context ended, and why the pod had not ended by then.
func stopped(ctx context.Context, job jobs.Job, pod *corev1.Pod, waits string) error {
	cause := context.Cause(ctx)
	if _, ok := errors.AsType[*command.InterruptedError](cause); ok {
		return cause //nolint:wrapcheck // the signal is the whole error
	}
	if pod != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pollEvery*10)
		defer cancel()
		if all, err := survey.Events(ctx, job.API, job.Namespace, pod.Name); err == nil && len(all) > 0 {
			last := all[len(all)-1]
			waits = last.Reason + ": " + last.Message
		}
	}
	if waits == "" {
		return cause //nolint:wrapcheck // it says what it did
	}
	return fmt.Errorf("%s: %w", waits, cause)
}

// unable says why the Job has no pod: it failed, or the API server rejects its pod. Nil means that a pod can come.
func unable(ctx context.Context, job jobs.Job) error {
	reason, failed, err := job.Failed(ctx)
	switch {
	case errors.Is(err, sharing.ErrUnavailable):
		return nil // the next attempt can succeed
	case err != nil:
		return err //nolint:wrapcheck // it says what it did
	case failed:
		return errors.New(reason)
	}
	all, err := survey.EventsOf(ctx, job.API, job.Namespace, "Job", job.Name)
	if err != nil {
		return nil //nolint:nilerr // without a right to events, the deadline ends the wait
	}
	count := 0
	for _, e := range all {
		if e.Reason == "FailedCreate" {
			if count += int(e.Count); count >= failedCreations {
				return fmt.Errorf("the Job cannot create its pod: %s", e.Message)
			}
		}
	}
	return nil
}

// waiting says why the container does not run yet. stuck is true if it does not start without a change.
func waiting(pod *corev1.Pod) (reason string, stuck bool) {
	for _, s := range pod.Status.ContainerStatuses {
		w := s.State.Waiting
		if w == nil || w.Reason == "" {
			continue
		}
		reason = strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		switch w.Reason {
		case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName":
			return reason + "; name an image that the node can pull with --image", true
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return reason, true
		}
		return reason, false
	}
	return "", false
}

// result reads what the program wrote.
func result(ctx context.Context, job jobs.Job, pod *corev1.Pod) (preset.Files, error) {
	var found preset.Files
	end := jobs.Ended(pod, container, 1)
	if end.ContainerID == "" && end.StartedAt.IsZero() { // it never ran, as after a rejection by kubelet
		return found, fmt.Errorf("pod %s did not run: %s %s", pod.Name, end.Reason, end.Message)
	}
	text, err := job.API.Text(ctx, jobs.LogPath(pod), map[string][]string{"container": {container}}, logBytes)
	switch {
	case end.ExitCode != 0: // also without a log, as if the image does not have the program
		return found, fmt.Errorf("program %s ended with status %d: %s %s %q", program, end.ExitCode, end.Reason,
			end.Message, text[:min(len(text), saidBytes)])
	case err != nil:
		return found, fmt.Errorf("read the log of pod %s: %w", pod.Name, err)
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return preset.Files{}, fmt.Errorf("read the log of pod %s: %w", pod.Name, err)
	}
	return found, nil
}
