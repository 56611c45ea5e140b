// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nodeserver

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
)

// TestPicturesAreShared has 1,200 callers ask ten times a second for 10 s. However many they are, no more than one
// picture is made per pictureGap, and each caller sees what was there when it asked.
func TestPicturesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made, version atomic.Int64
		p := newPictures(func(context.Context) *nodeapi.GetNodeResponse {
			made.Add(1)
			v := version.Load()
			time.Sleep(3 * time.Millisecond) // what changes meanwhile is not in the picture
			return &nodeapi.GetNodeResponse{AgentVersion: strconv.FormatInt(v, 10)}
		})
		const seconds = 10
		var all sync.WaitGroup
		for i := range 1200 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 83 * time.Microsecond)
				for range 10 * seconds {
					before := version.Add(1)
					got, err := p.take(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if v, err := strconv.ParseInt(got.message.GetAgentVersion(), 10, 64); err != nil || v < before {
						t.Errorf("a caller that saw version %d gets %d (%v)", before, v, err)
						return
					}
					if got.encoded.Len() == 0 {
						t.Error("the picture is not encoded")
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		began := time.Now()
		all.Wait()
		if most := int64(time.Since(began)/pictureGap) + 1; made.Load() > most {
			t.Errorf("%d pictures in %s, want at most %d", made.Load(), time.Since(began), most)
		}
	})
}

// TestPictureOfACallerThatLeaves is made for the others.
func TestPictureOfACallerThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPictures(func(ctx context.Context) *nodeapi.GetNodeResponse {
			time.Sleep(time.Second)
			return &nodeapi.GetNodeResponse{Ready: ctx.Err() == nil}
		})
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { _, err := p.take(ctx); left <- err }()
		synctest.Wait()
		waits := make(chan error, 1)
		waiting, giveUp := context.WithCancel(t.Context())
		go func() { _, err := p.take(waiting); waits <- err }()
		synctest.Wait()
		giveUp()
		if err := <-waits; status.Code(err) != codes.Canceled {
			t.Errorf("a caller that waits and leaves: %v", err)
		}
		cancel()
		if err := <-left; err != nil {
			t.Errorf("a caller whose picture was being made: %v", err)
		}
		if got, err := p.take(t.Context()); err != nil || !got.message.GetReady() {
			t.Errorf("the picture was cut short: %v, %v", got.message, err)
		}
	})
}
