// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/kerf-gpu/kerf/sharing"
)

// handlers are the requests of NRI that the plugin takes. Its exported methods are the subscription.
type handlers struct{ s *session }

// limit is the time that a request has.
func (h *handlers) limit(ctx context.Context) time.Duration {
	return share(ctx, time.Duration(h.s.timeout.Load()))
}

// Configure learns about the runtime. Zero subscribes to all that handlers has methods for.
func (h *handlers) Configure(_ context.Context, _, runtime, version string) (api.EventMask, error) {
	s := h.s
	if s.givenUp.Load() {
		return 0, fmt.Errorf("kerf: the registration was given up: %w", sharing.ErrUnavailable)
	}
	nri := s.stub.RuntimeNRIVersion()
	if t := s.stub.RequestTimeout(); t > 0 {
		s.timeout.Store(int64(t))
	}
	s.blind.Store(blind(runtime, nri))
	if runtime != runtimeContainerd {
		s.edits = s.Edits
	}
	s.Log.Info("registered with NRI", "runtime", runtime, "runtime_version", version, "nri_version", nri,
		"request_timeout", time.Duration(s.timeout.Load()).String())
	return 0, nil
}

// Synchronize passes on what the runtime has. It comes once per connection, while no container is being made.
func (h *handlers) Synchronize(ctx context.Context, pods []*api.PodSandbox,
	containers []*api.Container) ([]*api.ContainerUpdate, error) {
	s := h.s
	if s.trunk.over() {
		// When the connection ends, the stub forgets the parts of a list that it has. It then takes a last part that is
		// already here for the whole list.
		return nil, fmt.Errorf("kerf: the connection has ended: %w", sharing.ErrUnavailable)
	}
	seen := seenOf(pods, containers)
	_, err := within(ctx, s.jobs, h.limit(ctx), "taking in the containers there are",
		func(ctx context.Context) (struct{}, error) {
			select {
			case s.syncing <- struct{}{}:
			case <-ctx.Done():
				return struct{}{}, ctx.Err()
			}
			defer func() { <-s.syncing }()
			return struct{}{}, s.Node.SyncRuntime(ctx, seen)
		}, nil)
	switch {
	case err != nil:
		s.tell(fmt.Sprintf("failed to read the container runtime's list of containers: %v", err), false)
		return nil, err
	case s.blind.Load() != "":
		s.tell(s.blind.Load(), true)
	default:
		s.tell("", true)
	}
	s.Log.Info("synchronized with the container runtime", "pods", len(pods), "containers", len(containers))
	if s.jobs.enter() {
		go func() {
			defer s.jobs.wg.Done()
			s.findMissed(s.jobs.ctx, pods, containers)
		}()
	}
	return nil, nil
}

// RunPodSandbox holds the pod's grants, before its images are pulled and its containers made.
func (h *handlers) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	s, box, limit := h.s, sandboxOf(pod), h.limit(ctx)
	late := func(err error) {
		s.Log.Warn("reserved the grants of a pod too late", "pod", box.String(), "error", err)
	}
	_, err := within(ctx, s.jobs, limit, "reserving GPUs for pod "+box.String(),
		func(ctx context.Context) (struct{}, error) {
			return struct{}{}, s.grant(ctx, box, limit)
		}, late)
	if err != nil {
		s.Log.Warn("rejected pod", "pod", box.String(), "pod_uid", box.uid, "error", err)
	}
	return err
}

func (s *session) grant(ctx context.Context, box sandbox, limit time.Duration) error {
	if err := s.eval(pointRunPod); err != nil {
		return err
	}
	pod, ok := s.pod(ctx, box, limit)
	if !ok {
		return nil
	}
	asks, err := podAsks(pod, box)
	if err != nil {
		return refused(box, nil, err)
	}
	if len(asks) == 0 {
		return nil
	}
	if err := s.Node.ReservePod(ctx, asks); err != nil {
		return refused(box, asks, err)
	}
	return nil
}

// CreateContainer gives a guarded container its grant, and hides the GPUs from all others.
func (h *handlers) CreateContainer(ctx context.Context, pod *api.PodSandbox,
	c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	s, box, limit := h.s, sandboxOf(pod), h.limit(ctx)
	late := func(err error) {
		s.Log.Warn("injected the grant of a container too late", "pod", box.String(), "container", c.GetName(),
			"container_id",
			c.GetId(), "error", err)
		// The container runtime knows that this container failed, and sends no further event for it.
		s.Node.ContainerRemoved(c.GetId())
	}
	adjust, err := within(ctx, s.jobs, limit, "giving container "+c.GetName()+" of pod "+box.String()+" its GPUs",
		func(ctx context.Context) (*api.ContainerAdjustment, error) {
			return s.create(ctx, box, c, limit)
		}, late)
	if err != nil {
		s.Log.Warn("rejected container", "pod", box.String(), "container", c.GetName(), "container_id", c.GetId(),
			"error", err)
		return nil, nil, err
	}
	return adjust, nil, nil
}

func (s *session) create(ctx context.Context, box sandbox, c *api.Container,
	limit time.Duration) (*api.ContainerAdjustment, error) {
	if err := s.eval(pointCreate); err != nil {
		return nil, err
	}
	admitted, err := sharing.AdmittedBy(cdiNames(c))
	if err != nil {
		return nil, refused(box, nil, fmt.Errorf("container %q: %w", c.GetName(), err))
	}
	if err := s.HostPaths.check(ctx, box.namespace, c, min(lookUp, limit*2/3)); err != nil {
		return nil, refused(box, nil, err)
	}
	if admitted.Admin {
		pod, _ := s.pod(ctx, box, limit)
		if err := s.Baseline.checkAdmin(ctx, pod, box, c.GetName(), min(lookUp, limit/3)); err != nil {
			return nil, refused(box, nil, err)
		}
	}
	if !admitted.Guarded {
		adjust, err := adjustOther(c, s.exempt[box.namespace])
		if err != nil {
			return nil, refused(box, nil, err)
		}
		return adjust, nil
	}
	pod, _ := s.pod(ctx, box, limit)
	ask, err := containerAsk(box, c.GetName(), pod, admitted)
	if err != nil {
		return nil, refused(box, nil, err)
	}
	if err := s.Baseline.check(ctx, pod, ask, min(lookUp, limit/3)); err != nil {
		return nil, refused(box, nil, err)
	}
	// All that share a cap are held at once: who is made first may use what is booked for the others.
	together, err := sharers(box, pod, ask)
	if err == nil && len(together) > 0 {
		err = s.Node.ReservePod(ctx, together)
	}
	if err != nil {
		return nil, refused(box, []sharing.ContainerRequest{ask}, err)
	}
	for _, a := range together {
		if a.Ref == ask.Ref {
			ask = a
		}
	}
	in, err := s.Node.Inject(ctx, ask, c.GetId())
	if err != nil {
		return nil, refused(box, []sharing.ContainerRequest{ask}, err)
	}
	if err := s.eval(pointAfterInject); err != nil {
		return nil, err
	}
	adjust, err := adjustGuarded(c, in)
	if err != nil {
		return nil, refused(box, nil, err)
	}
	if err := s.resolve(adjust, c, in); err != nil {
		return nil, refused(box, nil, err)
	}
	addView(adjust, c, s.View)
	return adjust, nil
}

// PostCreateContainer tells whether a guarded container was made with its grant: a runtime that lost patience
// during CreateContainer makes it without.
func (h *handlers) PostCreateContainer(ctx context.Context, _ *api.PodSandbox, c *api.Container) error {
	s := h.s
	if !slices.Contains(cdiNames(c), sharing.HookDevice) {
		return nil
	}
	_, err := within(ctx, s.jobs, h.limit(ctx), "telling of a container", func(context.Context) (struct{}, error) {
		s.Node.ContainerMade(c.GetId(), c.GetAnnotations()[sharing.GrantAnnotation])
		return struct{}{}, nil
	}, nil)
	return err
}

// StartContainer refuses a container with a grant whose limits are not as granted. All createRuntime hooks have run by
// now, those that other CDI devices and plugins brought among them, and the program has not.
func (h *handlers) StartContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	s, box := h.s, sandboxOf(pod)
	if c.GetAnnotations()[sharing.GrantAnnotation] == "" && !slices.Contains(cdiNames(c), sharing.HookDevice) {
		return nil
	}
	_, err := within(ctx, s.jobs, h.limit(ctx), "reading back the limits of container "+c.GetName()+" of pod "+
		box.String(), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Starts.Starting(ctx, c.GetId())
	}, nil)
	if err != nil {
		s.Log.Warn("rejected container start", "pod", box.String(), "container", c.GetName(), "container_id", c.GetId(),
			"error", err)
		return refused(box, nil, fmt.Errorf("container %q: %w", c.GetName(), err))
	}
	return nil
}

// StopContainer hints that a container ended; the node looks for itself.
func (h *handlers) StopContainer(ctx context.Context, _ *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate,
	error) {
	h.hint(ctx, c.GetId())
	return nil, nil
}

// RemoveContainer hints that a container is gone.
func (h *handlers) RemoveContainer(ctx context.Context, _ *api.PodSandbox, c *api.Container) error {
	h.hint(ctx, c.GetId())
	return nil
}

// StopPodSandbox hints that something of a pod ended. The pod itself may go on in another sandbox.
func (h *handlers) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	h.hint(ctx, pod.GetId())
	return nil
}

// RemovePodSandbox hints the same as StopPodSandbox.
func (h *handlers) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	h.hint(ctx, pod.GetId())
	return nil
}

// hint passes an id on. It fails no request: there is nothing that the runtime could do about it.
func (h *handlers) hint(ctx context.Context, id string) {
	s := h.s
	s.missed.ended(ctx, id)
	_, err := within(ctx, s.jobs, h.limit(ctx), "telling of an end", func(context.Context) (struct{}, error) {
		s.Node.ContainerRemoved(id)
		return struct{}{}, nil
	}, nil)
	if err != nil {
		s.Log.Warn("failed to report the end of a container in time", "id", id, "error", err)
	}
}
