// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package jobs creates a Job of one pod, and reports how it goes on, with the rights of the user.
package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/sharing"
)

// removeWindow bounds the removal of a Job.
const removeWindow = 30 * time.Second

// Job is a Job of a cluster.
type Job struct {
	API             *access.Client
	Namespace, Name string
}

func (j Job) list() string {
	return fmt.Sprintf("/apis/batch/v1/namespaces/%s/jobs", url.PathEscape(j.Namespace))
}

func (j Job) path() string { return j.list() + "/" + url.PathEscape(j.Name) }

// Create creates the Job in a namespace. Its errors are those of access.Client.Get. After an error the cluster can have
// the Job if object has a name: the answer can be lost.
func Create(ctx context.Context, api *access.Client, namespace string, object *batchv1.Job) (Job, error) {
	j := Job{API: api, Namespace: namespace, Name: object.Name}
	var made batchv1.Job
	if err := api.Do(ctx, http.MethodPost, j.list(), nil, &access.Body{Type: access.JSON, Value: object},
		&made); err != nil {
		return j, fmt.Errorf("create the Job in namespace %s: %w", namespace, err)
	}
	j.Name = made.Name
	return j, nil
}

// Remove deletes the Job and its pod, also after parent has ended. A missing Job is no error.
func (j Job) Remove(parent context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), removeWindow)
	defer cancel()
	err := j.API.Do(ctx, http.MethodDelete, j.path(), url.Values{"propagationPolicy": {"Background"}}, nil, nil)
	if err != nil && !errors.Is(err, sharing.ErrNotFound) {
		return fmt.Errorf("remove job %s of namespace %s: %w; remove it with kubectl delete job", j.Name, j.Namespace,
			err)
	}
	return nil
}

// Pod is the newest pod of the Job; nil if there is none.
func (j Job) Pod(ctx context.Context) (*corev1.Pod, error) {
	var found *corev1.Pod
	path := "/api/v1/namespaces/" + url.PathEscape(j.Namespace) + "/pods"
	err := j.API.List(ctx, path, url.Values{"labelSelector": {batchv1.JobNameLabel + "=" + j.Name}},
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

// Failed says whether the Job has failed, and why. A quota or a policy can prevent its pod. A client can delete the
// Job.
func (j Job) Failed(ctx context.Context) (reason string, failed bool, err error) {
	var read batchv1.Job
	err = j.API.Get(ctx, j.path(), nil, &read)
	switch {
	case errors.Is(err, sharing.ErrNotFound):
		return "job " + j.Name + " was deleted by another client", true, nil
	case err != nil:
		return "", false, fmt.Errorf("read job %s: %w", j.Name, err)
	}
	for _, c := range read.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return "job " + j.Name + " failed: " + c.Message, true, nil
		}
	}
	return "", false, nil
}

// LogPath is where the API server has the log of a pod.
func LogPath(p *corev1.Pod) string {
	return "/api/v1/namespaces/" + url.PathEscape(p.Namespace) + "/pods/" + url.PathEscape(p.Name) + "/log"
}

// Ended is how a container of a pod ended; nil if it did not. A pod that ended without the container has an end with
// this status.
func Ended(p *corev1.Pod, container string, status int32) *corev1.ContainerStateTerminated {
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == container && s.State.Terminated != nil {
			return s.State.Terminated
		}
	}
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return &corev1.ContainerStateTerminated{ExitCode: status, Reason: p.Status.Reason, Message: p.Status.Message}
	}
	return nil
}
