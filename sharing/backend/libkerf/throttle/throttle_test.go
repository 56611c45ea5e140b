// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package throttle

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/backend/libkerf/compute"
)

// account is a budget in memory.
type account struct {
	mu               sync.Mutex
	balance, charged time.Duration
	ran              time.Duration
	share            compute.Share
	known            bool
	launches         uint64
	turn             compute.LaunchState
	refills          int
	err              error
}

func (a *account) Settle(ran time.Duration, used compute.Share, known bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ran, a.share, a.known = a.ran+ran, used, known
	return a.err
}

func (a *account) Read() (Counts, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Counts{Balance: a.balance, Charged: a.charged, Launches: a.launches}, a.err
}

func (a *account) AddTokens(add time.Duration, turn compute.LaunchState) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.balance += add
	a.turn = turn
	a.refills++
	return a.err
}

func (a *account) spend(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.balance, a.charged = a.balance-d, a.charged+d
	a.launches++
}

// source tells what its samples were until a quarter of a second before the moment at which it is asked.
type source struct {
	attachments []Attachment
	used        map[compute.ID]int
	err         error
	now         time.Time
	since       []time.Time // that it was asked for
}

const late = 250 * time.Millisecond

func (s *source) Attachments() (compute.Mode, []Attachment) { return compute.Strict, s.attachments }

func (s *source) Changed() <-chan struct{} { return nil }

func (s *source) Used(_ context.Context, _ sharing.GPURef, since time.Time) (Use, error) {
	s.since = append(s.since, since)
	use := Use{To: s.now.Add(-late), Percent: s.used}
	for _, percent := range s.used {
		use.Busy += percent
	}
	return use, s.err
}

// step lets a second pass before a step with a question, and Every before any other.
func (s *source) step(t *testing.T, p *Throttle, ask bool) {
	t.Helper()
	if s.now.IsZero() {
		s.now = time.Unix(1000, 0)
	}
	passed := Every
	if ask {
		passed = UsedEvery
	}
	s.now = s.now.Add(passed)
	p.step(t.Context(), s.now, Every, ask)
}

func attachment(gpu sharing.GPURef, id compute.ID, percent sharing.Percent, a *account) Attachment {
	return Attachment{GPU: gpu, Grant: compute.Grant{ID: id, Percent: percent}, Account: a}
}

func pacer(s *source) *Throttle { return &Throttle{Source: s, Log: slog.New(slog.DiscardHandler)} }

func TestEachGPUByItself(t *testing.T) {
	a, b, c := &account{}, &account{}, &account{}
	s := &source{attachments: []Attachment{attachment(sharing.GPURef{UUID: "GPU-0"}, "a", 10, a),
		attachment(sharing.GPURef{UUID: "GPU-0"}, "b", 50, b), attachment(sharing.GPURef{UUID: "GPU-1"}, "a", 80, c)}}
	s.step(t, pacer(s), false)
	for i, want := range map[*account]time.Duration{a: 2 * time.Millisecond, b: 10 * time.Millisecond,
		c: 16 * time.Millisecond} {
		if i.balance != want || i.refills != 1 {
			t.Errorf("%v after %d refills, want %v", i.balance, i.refills, want)
		}
	}
}

// One that fails costs the others nothing, and gets its own again when it works.
func TestFailingAccount(t *testing.T) {
	a, b := &account{err: sharing.ErrUnavailable}, &account{}
	s := &source{attachments: []Attachment{attachment(sharing.GPURef{UUID: "GPU-0"}, "a", 10, a),
		attachment(sharing.GPURef{UUID: "GPU-0"}, "b", 50, b)}}
	p := pacer(s)
	s.step(t, p, false)
	if a.balance != 0 || a.refills != 0 || b.balance != 10*time.Millisecond {
		t.Errorf("%v and %v", a.balance, b.balance)
	}
	a.err = nil
	s.step(t, p, false)
	if a.balance != 2*time.Millisecond || b.balance != 20*time.Millisecond {
		t.Errorf("then %v and %v", a.balance, b.balance)
	}
}

// What the driver says again and again counts more than what was charged; where it says nothing, charges stand.
func TestDriverSetsRight(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want time.Duration // that is charged for a second of a tenth
	}{"answered": {nil, 200 * time.Millisecond}, "not answered": {errors.New("no"), 100 * time.Millisecond}} {
		a := &account{}
		s := &source{attachments: []Attachment{attachment(sharing.GPURef{UUID: "GPU-0"}, "a", 10, a)},
			used: map[compute.ID]int{"a": 10}, err: tt.err}
		p := pacer(s)
		s.step(t, p, false)
		for range 60 {
			a.spend(200 * time.Millisecond) // twice what was used
			s.step(t, p, true)
		}
		a.balance = -time.Second
		for range 50 {
			s.step(t, p, false)
		}
		if got := a.balance + time.Second; got < tt.want*95/100 || got > tt.want*105/100 {
			t.Errorf("%s: %v added, want %v", name, got, tt.want)
		}
	}
}

// The driver is asked for the time after its last sample, and never twice for time of which it did not tell.
func TestAsksForUnreportedTime(t *testing.T) {
	s := &source{attachments: []Attachment{attachment(sharing.GPURef{UUID: "GPU-0"}, "a", 10, &account{})},
		used: map[compute.ID]int{"a": 5}}
	p := pacer(s)
	s.step(t, p, false)
	began := s.now
	s.step(t, p, true)
	s.step(t, p, true)
	s.err = errors.New("no")
	s.step(t, p, true)
	s.err = nil
	s.step(t, p, true)
	sec := func(n int, before time.Duration) time.Time { return began.Add(time.Duration(n)*time.Second - before) }
	if d := cmp.Diff([]time.Time{began, sec(1, late), sec(2, late), sec(3, 0)}, s.since); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// What ran is what was charged, at the rate that is known by then.
func TestSettles(t *testing.T) {
	a := &account{}
	s := &source{attachments: []Attachment{attachment(sharing.GPURef{UUID: "GPU-0"}, "a", 10, a)},
		used: map[compute.ID]int{"a": 10}}
	p := pacer(s)
	s.step(t, p, false)
	for _, err := range []error{nil, errors.New("no"), nil} {
		s.err = err
		before := a.ran
		a.spend(40 * time.Millisecond)
		s.step(t, p, false)
		a.spend(60 * time.Millisecond)
		if a.ran != before {
			t.Errorf("%v before the driver was asked", a.ran)
		}
		if s.step(t, p, true); a.ran != before+100*time.Millisecond {
			t.Errorf("%v ran, want %v", a.ran, before+100*time.Millisecond)
		}
	}
	for range 100 {
		a.spend(200 * time.Millisecond)
		s.step(t, p, true)
	}
	before := a.ran
	a.spend(200 * time.Millisecond)
	if s.step(t, p, true); a.ran-before < 95*time.Millisecond || a.ran-before > 105*time.Millisecond {
		t.Errorf("%v ran of 200 ms that were charged, want half", a.ran-before)
	}
}

// The share that an attachment used is what the samples of the last ten seconds say. Without samples it is unknown.
func TestReportsUsage(t *testing.T) {
	a := &account{}
	s := &source{attachments: []Attachment{attachment(sharing.GPURef{UUID: "GPU-0"}, "a", 10, a)},
		used: map[compute.ID]int{"a": 20}}
	p := pacer(s)
	s.step(t, p, false)
	if s.step(t, p, true); a.known {
		t.Errorf("known after a second: %+v", a.share)
	}
	for range 9 {
		s.step(t, p, true)
	}
	if !a.known || math.Abs(a.share.Percent-20) > 0.01 || a.share.Least > 20 {
		t.Errorf("%+v, %v", a.share, a.known)
	}
	s.err = errors.New("no")
	for i := range 11 {
		if s.step(t, p, true); i < 3 && (!a.known || math.Abs(a.share.Percent-20) > 0.01) {
			t.Errorf("%+v, %v after %d seconds of silence", a.share, a.known, i+1)
		}
	}
	if a.known {
		t.Errorf("%+v after ten seconds of silence", a.share)
	}
}

// An attachment that comes with a history is not judged by it.
func TestHistoryDoesNotCount(t *testing.T) {
	a := &account{charged: time.Hour}
	s := &source{attachments: []Attachment{attachment(sharing.GPURef{UUID: "GPU-0"}, "a", 10, a)}}
	s.step(t, pacer(s), true)
	if a.balance != 2*time.Millisecond {
		t.Errorf("%v", a.balance)
	}
}

// changing is a source with attachments that the test changes.
type changing struct {
	mu sync.Mutex
	source
	looks   int // how often the attachments were asked for
	changed chan struct{}
}

func (c *changing) Attachments() (compute.Mode, []Attachment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	return c.source.Attachments()
}

func (c *changing) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// change changes the attachments, and returns how often they were asked for before.
func (c *changing) change(to ...Attachment) (looks int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	looks = c.looks
	c.attachments, c.looks, c.changed = to, 0, make(chan struct{})
	return looks
}

// Without an attachment it waits for a change. With one, it refills until there is none.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := &account{}, &changing{changed: make(chan struct{})}
		has := func() (refills int, balance time.Duration) {
			synctest.Wait()
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.refills, a.balance
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- (&Throttle{Source: s, Log: slog.New(slog.DiscardHandler)}).Run(ctx)
		}()
		time.Sleep(time.Hour)
		if looks := s.change(attachment(sharing.GPURef{UUID: "GPU-0"}, "a", 50, a)); looks != 1 {
			t.Errorf("asked %d times for attachments while there was none, want 1", looks)
		}
		if refills, balance := has(); refills != 1 || balance != 0 {
			t.Errorf("%d refills of %v when it came, want 1 of nothing: it was not there before", refills, balance)
		}
		time.Sleep(10 * Every)
		refills, balance := has()
		if refills < 8 || refills > 14 || balance <= 0 {
			t.Errorf("%d refills of %v in %v", refills, balance, 10*Every)
		}
		s.change()
		time.Sleep(time.Hour)
		if after, _ := has(); after != refills {
			t.Errorf("%d refills after the end of the attachment", after-refills)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
