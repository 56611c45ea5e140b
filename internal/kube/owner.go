// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

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

// saw notes the UID of the Node. Where the Node was made anew, the API server deletes what the former one owned.
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
		metadata["ownerReferences"] = []map[string]any{{"apiVersion": "v1", "kind": "Node", "name": node, "uid": string(o.uid)}}
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

// Renewed has a word whenever this node's object is another one than before, so that what it owned is to be written anew. The
// first reading of the node counts as well.
func (c *Client) Renewed() <-chan struct{} { return c.owner.renewed }
