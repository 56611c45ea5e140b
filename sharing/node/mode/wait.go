// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package mode

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/allocator"
	"github.com/kerf-gpu/kerf/sharing/ledger"
)

// Record notes how an attempt to grant for a pod ended. If no GPU had room, and a manager can switch GPUs, need is
// called without a lock, and remembered where demand may switch GPUs. The result is err, with what keeps the GPUs that
// could switch for the pod.
func (s *Switcher) Record(uid string, err error, need func() Need) error {
	switch {
	case err == nil:
		s.Forget(uid)
		return nil
	case !isNoFit(err) || !s.managed():
		return err
	}
	n := need()
	s.look(func(now sight) {
		old, before := now.needs[uid]
		if !now.turnsAny() || !before && len(now.needs) >= mostNeeds {
			return
		}
		if before {
			n.Since = old.Since
		}
		now.needs[uid] = n
		s.remember(uid, n)
		err = because(err, waitsFor(now.plan(time.Now()), n.Who))
	})
	return err
}

func isNoFit(err error) bool {
	_, is := errors.AsType[*allocator.NoFit](err)
	return is
}

// turnsAny reports whether demand may switch a GPU.
func (s sight) turnsAny() bool {
	return s.manager != nil && slices.ContainsFunc(s.GPUs,
		func(v ledger.View) bool { return s.manager.ModeSwitchable(v.GPU.UUID) })
}

// managed reports whether there is a MIG manager.
func (s *Switcher) managed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.manager != nil
}

// because adds to a refusal what keeps GPUs from switching.
func because(err error, why string) error {
	no, is := errors.AsType[*allocator.NoFit](err)
	if !is || why == "" {
		return err
	}
	more := *no
	more.Summary += "; a GPU could change its mode for it, but " + why
	return &more
}

func (s *Switcher) remember(key string, n Need) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.needs[key] = n
	s.soon()
}

// Forget forgets the need of a pod that is gone.
func (s *Switcher) Forget(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.needs, uid)
}

// Await calls try, and if no GPU has room, again after GPUs have switched. It gives up if none will, and after some
// time. need is called without a lock.
func (s *Switcher) Await(ctx context.Context, need func() Need, try func() error) error {
	err := try()
	if !isNoFit(err) || !s.managed() {
		return err
	}
	key, waits, n := "process "+s.newID(), false, need()
	s.look(func(now sight) {
		if waits = now.turnsAny() && len(now.needs) < mostNeeds; waits {
			s.remember(key, n)
		}
	})
	if !waits {
		return err
	}
	defer s.Forget(key)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		changed := s.node.Changed()
		var hope bool
		var why string
		s.look(func(now sight) { hope, why = now.hope(key, time.Now()) })
		if !hope {
			if last := try(); !isNoFit(last) {
				return last
			}
			return because(err, why)
		}
		s.soon()
		select {
		case <-ctx.Done():
			return err
		case <-changed:
		case <-time.After(every):
		}
		last := try()
		if last != nil && (isNoFit(last) || errors.Is(last, sharing.ErrUnavailable)) {
			continue
		}
		return last
	}
}

// Expects reports whether a GPU switches for a pod whose need Record has noted, or is about to.
func (s *Switcher) Expects(uid string) (yes bool) {
	s.look(func(now sight) { yes, _ = now.hope(uid, time.Now()) })
	return yes
}
