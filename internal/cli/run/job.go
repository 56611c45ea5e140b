// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/mountns"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/translate"
)

const (
	// jobContainer is the container of the command, and jobsPath where the Jobs of a namespace are.
	jobContainer = "main"
	jobsPath     = "/apis/batch/v1/namespaces/%s/jobs"
	// jobKept is how long an ended Job stays if no command removes it.
	jobKept = 24 * time.Hour
)

// jobOptions are the flags of run for a Job of a cluster.
type jobOptions struct {
	scheduler, account string
	keep, detach       bool
}

// onlyForJobs are the flags that mean nothing on one machine, onlyForMachines those that mean nothing in a cluster.
func onlyForJobs() []string     { return []string{"scheduler", "service-account", "keep", "detach"} }
func onlyForMachines() []string { return []string{"volume", "containerd-socket", "status-file"} }

func (o *jobOptions) define(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.scheduler, "scheduler", "kerf-scheduler",
		"in a cluster: schedulerName of the pod; empty for the default scheduler")
	f.StringVar(&o.account, "service-account", "", "in a cluster: service account of the pod")
	f.BoolVar(&o.keep, "keep", false, "in a cluster: keep the Job at the end and on ctrl-C")
	f.BoolVar(&o.detach, "detach", false, "in a cluster: create the Job, print its name and return")
}

// runJob runs the command in a Job of the cluster, and returns its exit status as a *command.Failure, or nil for 0.
func runJob(a *command.App, c *cobra.Command, o *runOptions, args []string) error {
	request, err := o.check(c, args)
	for _, name := range onlyForMachines() {
		if command.Changed(c, name) {
			err = errors.Join(err, sharing.Invalid("--"+name, "",
				"leave it out, or name a machine's agent with --run-dir",
				"is for one machine alone"))
		}
	}
	if o.image.ref == "" {
		err = errors.Join(err, sharing.Invalid("--image", "", "name the image that has the command",
			"is missing: in a cluster a command runs in a container"))
	}
	var words translate.Words
	if err == nil {
		words, err = translate.Of(request)
	}
	var api *access.Client
	if err == nil {
		api, err = a.Cluster()
	}
	if err != nil {
		return command.Exit(exitRefused, err)
	}
	defer api.Close()
	if !o.quiet {
		for _, s := range words.Said {
			notice(a, s)
		}
	}
	r := &jobRun{app: a, api: api, options: o}
	ctx, signals := command.Catch(c.Context())
	defer signals.Release()
	if err := r.create(ctx, job(o, words, args, a.Environ())); err != nil {
		return r.stopped(ctx, err)
	}
	if o.job.detach {
		_, err := fmt.Fprintf(a.Out, "job.batch/%s\n", r.name)
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
func job(o *runOptions, words translate.Words, args, environ []string) *batchv1.Job {
	never, ttl := int32(0), int32(jobKept/time.Second)
	limits := corev1.ResourceList{}
	for name, value := range words.Limits {
		limits[corev1.ResourceName(name)] = resource.MustParse(value) // digits: translate wrote them
	}
	container := corev1.Container{
		Name: jobContainer, Image: o.image.ref, Command: args, WorkingDir: o.image.dir,
		Resources: corev1.ResourceRequirements{Limits: limits},
		ImagePullPolicy: map[string]corev1.PullPolicy{"always": corev1.PullAlways,
			"never": corev1.PullNever}[o.image.pull],
	}
	for _, e := range o.image.environment(environ) {
		name, value, _ := strings.Cut(e, "=")
		container.Env = append(container.Env, corev1.EnvVar{Name: name, Value: value})
	}
	meta := metav1.ObjectMeta{GenerateName: "kerf-run-",
		Labels: map[string]string{"app.kubernetes.io/managed-by": "kerf-run"}}
	if o.name != "" {
		meta.GenerateName, meta.Name = "", o.name
	}
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: meta,
		Spec: batchv1.JobSpec{
			BackoffLimit: &never, TTLSecondsAfterFinished: &ttl,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels, Annotations: words.Annotations},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, SchedulerName: o.job.scheduler,
					ServiceAccountName: o.job.account,
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
	options *runOptions
	// name is the Job's, as the cluster gave it.
	name string
}

func (r *jobRun) path() string { return fmt.Sprintf(jobsPath, url.PathEscape(r.api.Namespace)) }

func (r *jobRun) create(ctx context.Context, j *batchv1.Job) error {
	var made batchv1.Job
	if err := r.api.Do(ctx, http.MethodPost, r.path(), nil, &access.Body{Type: access.JSON, Value: j},
		&made); err != nil {
		return fmt.Errorf("make the Job in namespace %s: %w", r.api.Namespace, err)
	}
	r.name = made.Name
	return nil
}

// remove removes the Job and its pod, also after the command was asked to end, unless it is to be kept.
func (r *jobRun) remove(parent context.Context) error {
	if r.options.job.keep {
		notice(r.app, "job "+r.name+" stays; remove it with: kubectl delete job "+r.name+" -n "+r.api.Namespace)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), removeWindow)
	defer cancel()
	err := r.api.Do(ctx, http.MethodDelete, r.path()+"/"+url.PathEscape(r.name),
		url.Values{"propagationPolicy": {"Background"}}, nil, nil)
	if err != nil && !errors.Is(err, sharing.ErrNotFound) {
		return fmt.Errorf("remove job %s of namespace %s: %w; remove it with kubectl delete job", r.name,
			r.api.Namespace, err)
	}
	return nil
}

// stopped is the failure for an error, or for the signal that asked for the end.
func (r *jobRun) stopped(ctx context.Context, err error) error {
	if stopped, ok := errors.AsType[*command.InterruptedError](context.Cause(ctx)); ok {
		return command.Exit(stopped.Code(), stopped)
	}
	if f, ok := errors.AsType[*command.Failure](err); ok {
		return f
	}
	return command.Exit(exitRefused, err)
}

// withEnv is base with the variables of more, which win, at the end in their order by name.
func withEnv(base []string, more map[string]string) []string {
	out := make([]string, 0, len(base)+len(more))
	for _, e := range base {
		name, _, _ := strings.Cut(e, "=")
		if _, ours := more[name]; !ours {
			out = append(out, e)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		out = append(out, name+"="+more[name])
	}
	return out
}

const (
	preloadFile = "/etc/ld.so.preload"
	preloadEnv  = "LD_PRELOAD"
	// libkerf is the name of the backend whose grants need the library.
	libkerf = "libkerf"
)

// preloadFileFree reports whether the loader's file can be mounted over without a loss: it is empty, or does not exist
// in a folder that does.
func preloadFileFree(path string) bool {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		folder, err := os.Stat(filepath.Dir(path))
		return err == nil && folder.IsDir()
	}
	return err == nil && len(bytes.TrimSpace(text)) == 0
}

// showLibrary mounts what makes the library hold the command; the other GPUs are hidden already if masked.
func showLibrary(armed *nodeapi.ActivateResponse, masked bool) error {
	if len(armed.GetMounts()) == 0 {
		return nil
	}
	if !masked {
		if err := mountns.Mask(nil); err != nil {
			return err
		}
	}
	var mounts []sharing.Mount
	for _, m := range armed.GetMounts() {
		if m.GetTarget() == preloadFile {
			if err := mountns.Place(preloadFile); err != nil {
				return err
			}
		}
		mounts = append(mounts, sharing.Mount{Source: m.GetSource(), Target: m.GetTarget(), ReadOnly: m.GetReadOnly()})
	}
	return mountns.Bind(mounts)
}

// preloading is the command's environment with the library in front of what it preloads.
func preloading(env []string, armed *nodeapi.ActivateResponse, byEnv bool, had string) []string {
	if armed.GetPreload() == "" || !byEnv {
		return env
	}
	value := armed.GetPreload()
	if had != "" {
		value += ":" + had
	}
	return withEnv(env, map[string]string{preloadEnv: value})
}
