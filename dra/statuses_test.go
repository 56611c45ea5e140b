// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"context"
	"encoding/json"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	applyresource "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clientresource "k8s.io/client-go/kubernetes/typed/resource/v1"
	clienttesting "k8s.io/client-go/testing"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/dra"
)

// TestStatusHasTheUID: the API server rejects a status with the UID of another claim of that name.
func TestStatusHasTheUID(t *testing.T) {
	client := fake.NewClientset(claim())
	p := plugin(&preparer{})
	p.opt.Client = client
	if _, err := p.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{claim()}); err != nil {
		t.Fatal(err)
	}
	p.writeStatus(t.Context())
	var applied resourceapi.ResourceClaim
	for _, a := range client.Actions() {
		if patch, is := a.(clienttesting.PatchAction); is {
			if err := json.Unmarshal(patch.GetPatch(), &applied); err != nil {
				t.Fatal(err)
			}
		}
	}
	if applied.UID != uid || len(applied.Status.Devices) != 3 {
		t.Errorf("applied %+v", applied)
	}
}

// slowClient has an API server that leaves each status of a claim without an answer until release.
type slowClient struct {
	kubernetes.Interface
	asked, release chan struct{}
}

func (c slowClient) ResourceV1() clientresource.ResourceV1Interface {
	return slowResource{c.Interface.ResourceV1(), c}
}

// IsWatchListSemanticsUnSupported is that of the fake client, which informers ask for.
func (slowClient) IsWatchListSemanticsUnSupported() bool { return true }

type slowResource struct {
	clientresource.ResourceV1Interface
	c slowClient
}

func (r slowResource) ResourceClaims(namespace string) clientresource.ResourceClaimInterface {
	return slowClaims{r.ResourceV1Interface.ResourceClaims(namespace), r.c}
}

type slowClaims struct {
	clientresource.ResourceClaimInterface
	c slowClient
}

func (s slowClaims) ApplyStatus(ctx context.Context, claim *applyresource.ResourceClaimApplyConfiguration,
	opt metav1.ApplyOptions) (*resourceapi.ResourceClaim, error) {
	select {
	case s.c.asked <- struct{}{}:
	default:
	}
	<-s.c.release
	return s.ResourceClaimInterface.ApplyStatus(ctx, claim, opt)
}

// TestTaintsDoNotWaitForStatuses: a fault reaches the scheduler while the API server leaves a status unanswered.
func TestTaintsDoNotWaitForStatuses(t *testing.T) {
	c := claim()
	client := fake.NewClientset(c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "uid-node"}})
	nameSlices(client)
	slow := slowClient{client, make(chan struct{}, 1), make(chan struct{})}
	written, err := client.ResourceV1().ResourceSlices().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer written.Stop()
	opt := plugin(&preparer{}).opt
	opt.Client = slow
	var health atomic.Int32
	health.Store(int32(sharing.HealthOK))
	changed := make(chan struct{})
	opt.Devices = func() ([]dra.Device, bool) { return devices(sharing.Health(health.Load()), 1), true }
	opt.Changed = func() <-chan struct{} {
		if sharing.Health(health.Load()) == sharing.HealthOK {
			return changed
		}
		return nil
	}
	a := startAgent(t, socketDir(t), opt)
	defer close(slow.release)
	if _, err := a.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{c}); err != nil {
		t.Fatal(err)
	}
	<-slow.asked
	health.Store(int32(sharing.HealthUnhealthy))
	close(changed)
	for tooLong := time.After(time.Minute); ; {
		select {
		case e := <-written.ResultChan():
			for _, d := range e.Object.(*resourceapi.ResourceSlice).Spec.Devices {
				if len(d.Taints) > 0 {
					return
				}
			}
		case <-tooLong:
			t.Fatal("no slice has the taint")
		}
	}
}

// serialPreparer counts the calls that run at the same time.
type serialPreparer struct {
	preparer
	mu        sync.Mutex
	now, most int
}

// call lets other goroutines run until they had many turns: another call would begin meanwhile.
func (p *serialPreparer) call() {
	add := func(n int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.now += n
		p.most = max(p.most, p.now)
	}
	add(1)
	defer add(-1)
	for range 1000 {
		runtime.Gosched()
	}
}

func (p *serialPreparer) Prepare(context.Context, []dra.Claim) error {
	p.call()
	return nil
}

func (p *serialPreparer) Unprepare([]string) error {
	p.call()
	return nil
}

// TestCallsAreSerial: kubelet's calls reach the preparer one after the other. So no claim is unprepared while it is
// prepared.
func TestCallsAreSerial(t *testing.T) {
	prep := &serialPreparer{}
	opt := plugin(&prep.preparer).opt
	opt.Preparer, opt.Client = prep, fake.NewClientset(claim())
	kubelet := draapi.NewDRAPluginClient(startAgent(t, socketDir(t), opt).conn)
	claims := []*draapi.Claim{{Namespace: "team", Name: "one", Uid: uid}}
	var calls sync.WaitGroup
	for range 50 {
		calls.Go(func() {
			if _, err := kubelet.NodePrepareResources(t.Context(), &draapi.NodePrepareResourcesRequest{
				Claims: claims}); err != nil {
				t.Error(err)
			}
		})
		calls.Go(func() {
			if _, err := kubelet.NodeUnprepareResources(t.Context(), &draapi.NodeUnprepareResourcesRequest{
				Claims: claims}); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if prep.most != 1 {
		t.Errorf("%d calls at the same time", prep.most)
	}
}

// TestDeletedClaimEnds: the grants of a claim that the API server does not have any more end. kubelet may have lost it.
func TestDeletedClaimEnds(t *testing.T) {
	client := fake.NewClientset(claim())
	client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, k8sruntime.Object, error) {
		return true, nil, apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), "claim")
	})
	given := &preparer{}
	p := plugin(given)
	p.opt.Client = client
	if _, err := p.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{claim()}); err != nil {
		t.Fatal(err)
	}
	given.err = sharing.ErrUnavailable // It is tried again.
	p.writeStatus(t.Context())
	given.err, given.ended = nil, nil
	p.writeStatus(t.Context())
	if !slices.Equal(given.ended, []string{uid}) || len(p.statuses.claims) != 0 {
		t.Errorf("ended %v, still known %v", given.ended, p.statuses.claims)
	}
}
