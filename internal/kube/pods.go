// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kerf-gpu/kerf/internal/kube/podspec"
	"github.com/kerf-gpu/kerf/sharing"
)

// pods are the node's pods as last reported. It is the reflector's store: only the reflector's goroutine calls Add,
// Update, Delete, Replace and Resync. An informer's store would keep whole pods, because it takes only objects with
// metadata, and could not wake those that wait for a pod.
type pods struct {
	mu     sync.Mutex
	byUID  map[string]sharing.Pod
	byName map[string]string // namespace/name to UID: a name can pass to another pod between two checks
	synced bool
	// changed is closed at the next change; nil while no goroutine waits.
	changed chan struct{}
	tell    []func(uid string)
}

func newPods() *pods {
	return &pods{byUID: make(map[string]sharing.Pod), byName: make(map[string]string)}
}

// Add takes a pod in, or what is new of it.
func (s *pods) Add(obj any) error { return s.Update(obj) }

// Update takes a pod in, or what is new of it.
func (s *pods) Update(obj any) error {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return unexpected(obj)
	}
	s.mu.Lock()
	gone := s.put(podspec.Convert(p), nil)
	s.wake()
	s.mu.Unlock()
	s.say(gone)
	return nil
}

// Delete forgets a pod.
func (s *pods) Delete(obj any) error {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return unexpected(obj)
	}
	s.mu.Lock()
	gone := s.drop(string(p.UID), nil)
	s.mu.Unlock()
	s.say(gone)
	return nil
}

// Replace takes the whole list: what is not in it is gone.
func (s *pods) Replace(list []any, _ string) error {
	now := make([]sharing.Pod, 0, len(list))
	there := make(map[string]bool, len(list))
	for _, obj := range list {
		p, ok := obj.(*corev1.Pod)
		if !ok {
			return unexpected(obj)
		}
		now = append(now, podspec.Convert(p))
		there[string(p.UID)] = true
	}
	s.mu.Lock()
	var gone []string
	for uid := range s.byUID {
		if !there[uid] {
			gone = s.drop(uid, gone)
		}
	}
	for _, p := range now {
		gone = s.put(p, gone)
	}
	s.synced = true
	s.wake()
	s.mu.Unlock()
	s.say(gone)
	return nil
}

// Resync has nothing to do: there is no queue.
func (s *pods) Resync() error { return nil }

func unexpected(obj any) error {
	return fmt.Errorf("read a pod: got a %T: %w", obj, sharing.ErrInvalid)
}

// put takes a pod in, and adds to gone whom that shows to be gone.
func (s *pods) put(p sharing.Pod, gone []string) []string {
	name := p.Namespace + "/" + p.Name
	if before, ok := s.byName[name]; ok && before != p.UID {
		gone = s.drop(before, gone)
	}
	if p.Terminal && !s.byUID[p.UID].Terminal {
		gone = append(gone, p.UID)
	}
	s.byUID[p.UID], s.byName[name] = p, p.UID
	return gone
}

// drop forgets a pod. A terminal one has been reported already.
func (s *pods) drop(uid string, gone []string) []string {
	p, ok := s.byUID[uid]
	if !ok {
		return gone
	}
	delete(s.byUID, uid)
	if name := p.Namespace + "/" + p.Name; s.byName[name] == uid {
		delete(s.byName, name)
	}
	if p.Terminal {
		return gone
	}
	return append(gone, uid)
}

// wake lets those who wait look again; the caller holds mu.
func (s *pods) wake() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

func (s *pods) onGone(f func(uid string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell = append(s.tell, f)
}

func (s *pods) say(gone []string) {
	if len(gone) == 0 {
		return
	}
	s.mu.Lock()
	tell := s.tell
	s.mu.Unlock()
	for _, uid := range gone {
		for _, f := range tell {
			f(uid)
		}
	}
}

func (s *pods) asking() (all []sharing.Pod, synced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.byUID {
		if !p.Terminal && slices.ContainsFunc(p.Containers,
			func(c sharing.PodContainer) bool { return len(c.Limits) > 0 }) {
			all = append(all, p)
		}
	}
	return all, s.synced
}

func (s *pods) isSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// get returns the pod, and when it is not there a channel that is closed at the next change.
func (s *pods) get(uid string) (p sharing.Pod, ok, synced bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok = s.byUID[uid]; ok {
		return p, true, s.synced, nil
	}
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return p, false, s.synced, s.changed
}

// waitSynced returns true when the pods have been read once, and false when ctx ended before.
func (s *pods) waitSynced(ctx context.Context) bool {
	for {
		_, _, synced, changed := s.get("")
		if synced {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (s *pods) wait(ctx context.Context, uid string) (sharing.Pod, bool, error) {
	for {
		p, ok, synced, changed := s.get(uid)
		if ok {
			return p, true, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if !synced {
				return sharing.Pod{}, false, fmt.Errorf("look up pod %q: the API server has not been read yet: %w", uid,
					sharing.ErrUnavailable)
			}
			return sharing.Pod{}, false, nil
		}
	}
}

// owner is this node's object, as the owner of what the agent writes: when the Node goes, its GPUNode and Lease go.
type owner struct {
	mu sync.Mutex
	// uid is that of the Node, as it was read last; empty before.
	uid types.UID
	// written is the uid with which the GPUNode was written last.
	written types.UID
	// renewed has a word when the Node is another one than before, of the same name.
	renewed chan struct{}
}

func newOwner() *owner { return &owner{renewed: make(chan struct{}, 1)} }

// saw notes the UID of the Node. If the Node was replaced, the API server deletes what the former one owned.
func (o *owner) saw(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if uid == "" || uid == o.uid {
		return
	}
	o.uid = uid
	select {
	case o.renewed <- struct{}{}:
	default:
	}
}

// of adds the owner to an object's metadata, where it is known.
func (o *owner) of(node string, metadata map[string]any) types.UID {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.uid != "" {
		metadata["ownerReferences"] = []map[string]any{{"apiVersion": "v1", "kind": "Node", "name": node,
			"uid": string(o.uid)}}
	}
	return o.uid
}

// wrote notes with which owner the GPUNode was written.
func (o *owner) wrote(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.written = uid
}

// changed is true while the GPUNode was not written with the owner that is known now.
func (o *owner) changed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.uid != o.written
}

// Renewed receives a value whenever this node's object was replaced, so that its dependents are written again. The
// first read of the node counts as well.
func (c *Client) Renewed() <-chan struct{} { return c.owner.renewed }
