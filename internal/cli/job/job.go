// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package job is kerf run in a cluster: it runs a command in a Job. It needs nothing of the machine that it runs on.
package job

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/kube/jobs"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/translate"
)

const (
	// jobContainer is the container of the command.
	jobContainer = "main"
	// jobKept is how long an ended Job stays if no command removes it.
	jobKept = 24 * time.Hour
)

// errSaid needs no text: the command has printed the reason.
var errSaid = errors.New("")

// Commands is kerf run for a cluster only. A machine's own grants need Linux.
func Commands(a *command.App) []*cobra.Command {
	o := &Options{}
	c := &cobra.Command{
		Use:   "run [flags] --image IMAGE -- COMMAND [ARG...]",
		Short: "Run a container on a share of a GPU of the cluster",
		Long: `Run a container in a Job of the cluster, on a share of a GPU or on whole GPUs.

kerf creates the Job, shows why its pod is pending, copies its output, and
deletes it at the end and on ctrl-C. With --keep, the Job stays. With --detach,
kerf returns at once. The command replaces the entrypoint of the image.

To run a command on this machine without a cluster, use kerf on Linux.

Exit status: that of the command; 125 if Kerf fails.`,
		Example: `  kubectl kerf run -n team --image nvcr.io/nvidia/pytorch:24.05-py3 \
    --memory 10GiB -- python train.py`,
		RunE: func(c *cobra.Command, args []string) error {
			request, err := o.Check(c, args)
			return Run(a, c, o, args, request, err)
		},
	}
	c.Flags().SetInterspersed(false)
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return command.Exit(ExitRefused, err) })
	o.Define(c, nil)
	c.Flags().StringVar(&o.Name, "name", "", "name of the Job")
	return []*cobra.Command{c}
}

// Run runs the command in a Job of the cluster, and returns its exit status as a *command.Failure, or nil for 0. The
// caller has checked the flags, with err as the result.
func Run(a *command.App, c *cobra.Command, o *Options, args []string, request sharing.Request, err error) error {
	if o.Image == "" {
		err = errors.Join(err, sharing.Invalid("--image", "", "name the image that has the command",
			"is missing: in a cluster a command runs in a container"))
	}
	var words translate.ContainerFields
	if err == nil {
		words, err = translate.Of(request)
	}
	var api *access.Client
	if err == nil {
		api, err = a.Cluster()
	}
	if err != nil {
		return command.Exit(ExitRefused, err)
	}
	defer api.Close()
	if !o.Quiet {
		for _, s := range words.Differences {
			notice(a, s)
		}
	}
	r := &jobRun{app: a, api: api, options: o}
	ctx, signals := command.Catch(c.Context())
	defer signals.Release()
	if err := r.create(ctx, job(o, words, args, a.Environ())); err != nil {
		return r.stopped(ctx, err)
	}
	if o.detach {
		_, err := fmt.Fprintf(a.Out, "job.batch/%s\n", r.job.Name)
		return command.Fail(err)
	}
	code, err := r.follow(ctx)
	if err != nil {
		return r.stopped(ctx, errors.Join(err, r.remove(c.Context())))
	}
	if err := r.remove(c.Context()); err != nil {
		notice(a, err.Error())
	}
	if code != 0 {
		return command.Exit(code, errSaid)
	}
	return nil
}

// notice prints a message apart from the command's output.
func notice(a *command.App, s string) { _, _ = fmt.Fprintf(a.ErrOut, "%s run: %s\n", a.Name(), s) }

// job is the Job that runs the command once: what fails is not tried again, since the user sees it and tries.
func job(o *Options, words translate.ContainerFields, args, environ []string) *batchv1.Job {
	never, ttl := int32(0), int32(jobKept/time.Second)
	limits := corev1.ResourceList{}
	for name, value := range words.Limits {
		limits[corev1.ResourceName(name)] = resource.MustParse(value) // digits: translate wrote them
	}
	container := corev1.Container{
		Name: jobContainer, Image: o.Image, Command: args, WorkingDir: o.Dir,
		Resources: corev1.ResourceRequirements{Limits: limits},
		ImagePullPolicy: map[string]corev1.PullPolicy{pullAlways: corev1.PullAlways,
			pullNever: corev1.PullNever}[o.Pull],
	}
	for _, e := range o.Environment(environ) {
		name, value, _ := strings.Cut(e, "=")
		container.Env = append(container.Env, corev1.EnvVar{Name: name, Value: value})
	}
	meta := metav1.ObjectMeta{GenerateName: "kerf-run-",
		Labels: map[string]string{"app.kubernetes.io/managed-by": "kerf-run"}}
	if o.Name != "" {
		meta.GenerateName, meta.Name = "", o.Name
	}
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: meta,
		Spec: batchv1.JobSpec{
			BackoffLimit: &never, TTLSecondsAfterFinished: &ttl,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels, Annotations: words.Annotations},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, SchedulerName: o.scheduler,
					ServiceAccountName: o.account,
					Containers:         []corev1.Container{container},
				},
			},
		},
	}
}

// jobRun is one Job from its making to its removal.
type jobRun struct {
	app     *command.App
	api     *access.Client
	options *Options
	job     jobs.Job
}

func (r *jobRun) create(ctx context.Context, j *batchv1.Job) (err error) {
	r.job, err = jobs.Create(ctx, r.api, r.api.Namespace, j)
	return err //nolint:wrapcheck // it says what it did
}

// remove removes the Job and its pod, also after the command was asked to end, unless it is to be kept.
func (r *jobRun) remove(parent context.Context) error {
	if r.options.keep {
		notice(r.app, "job "+r.job.Name+" stays; remove it with: kubectl delete job "+r.job.Name+" -n "+
			r.job.Namespace)
		return nil
	}
	return r.job.Remove(parent) //nolint:wrapcheck // it says what it did
}

// stopped is the failure for an error, or for the signal that asked for the end.
func (r *jobRun) stopped(ctx context.Context, err error) error {
	if stopped, ok := errors.AsType[*command.InterruptedError](context.Cause(ctx)); ok {
		return command.Exit(stopped.Code(), stopped)
	}
	if f, ok := errors.AsType[*command.Failure](err); ok {
		return f
	}
	return command.Exit(ExitRefused, err)
}
