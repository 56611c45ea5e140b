// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kerf-gpu/kerf/sharing"
)

// Get returns which ids of Kerf's resources the containers of one pod hold, as List does for all pods. Unlike List it
// only reads: kubelet clears nothing away for it. The pod is the one that has the name now; kubelet does not say its UID.
//
// It takes 5 s at most. Its errors are those of List, and sharing.ErrNotFound where kubelet knows no pod of that name:
// it has none, or has not heard of it yet, as in its first moments. It is sharing.ErrUnsupported where kubelet has no
// such call: before 1.27, and where it is switched off, as it is by default before 1.34.
func (c *Client) Get(ctx context.Context, namespace, pod string) (map[sharing.ContainerRef]map[string][]string, error) {
	var resp *podresources.GetPodResourcesResponse
	err := c.ask(ctx, func(ctx context.Context) (err error) {
		resp, err = c.lister.Get(ctx, &podresources.GetPodResourcesRequest{PodNamespace: namespace, PodName: pod})
		return err
	})
	fail := func(err error) (map[sharing.ContainerRef]map[string][]string, error) {
		return nil, fmt.Errorf("get the resources of pod %q at %q: %w", namespace+"/"+pod, c.socket, err)
	}
	if err != nil {
		return fail(spoken(err, namespace, pod))
	}
	if p := resp.GetPodResources(); p.GetNamespace() != namespace || p.GetName() != pod {
		return fail(fmt.Errorf("the answer is of %q: %w", p.GetNamespace()+"/"+p.GetName(), sharing.ErrInvalid))
	}
	ids, err := holdings([]*podresources.PodResources{resp.GetPodResources()})
	if err != nil {
		return fail(err)
	}
	return ids, nil
}

// spoken is plain for what kubelet's Get says in words alone: it gives these two errors no code, and the words are the same
// in every version that has the call. Other words are no answer.
func spoken(err error, namespace, pod string) error {
	if s := status.Convert(err); s.Code() == codes.Unknown {
		switch {
		case s.Message() == fmt.Sprintf("pod %s in namespace %s not found", pod, namespace):
			return fmt.Errorf("%w: %w", sharing.ErrNotFound, err)
		case strings.HasSuffix(s.Message(), "Get method disabled"):
			return fmt.Errorf("%w: %w", sharing.ErrUnsupported, err)
		}
	}
	return plain(err)
}
