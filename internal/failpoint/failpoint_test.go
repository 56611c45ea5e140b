// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package failpoint

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
)

// recorder notes what a Set does; its exit returns.
type recorder struct{ did []string }

func (r *recorder) actions() Actions {
	return Actions{
		Exit:  func(p string) { r.did = append(r.did, "exit "+p) },
		Sleep: func(d time.Duration) { r.did = append(r.did, "sleep "+d.String()) },
	}
}

func TestEval(t *testing.T) {
	tests := map[string]struct {
		spec string
		eval string // points evaluated, in order
		errs string // "-" for nil, "e" for an injected error
		did  []string
	}{
		"nothing armed":    {spec: "a=exit", eval: "b b", errs: "--"},
		"exit":             {spec: "a=exit", eval: "a", errs: "e", did: []string{"exit a"}},
		"error":            {spec: "a=error(no space)", eval: "a a", errs: "ee"},
		"off":              {spec: "a=off", eval: "a", errs: "-"},
		"sleep":            {spec: "a=sleep(50ms)", eval: "a", errs: "-", did: []string{"sleep 50ms"}},
		"counted then off": {spec: "a=2*error(x)", eval: "a a a", errs: "ee-"},
		"chain": {spec: "a=2*off->1*error(x)->sleep(1s)", eval: "a a a a a", errs: "--e--",
			did: []string{"sleep 1s", "sleep 1s"}},
		"two points": {spec: "a=error(x); b/c.d_e-1 = 1*error(y)", eval: "b/c.d_e-1 a b/c.d_e-1", errs: "ee-"},
		"separators in text": {
			spec: "a=1*error(2*off->exit;b=off)->off;b=error(b)", eval: "a a b", errs: "e-e",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var r recorder
			s, err := Parse(tc.spec, r.actions())
			if err != nil {
				t.Fatal(err)
			}
			var errs strings.Builder
			for p := range strings.FieldsSeq(tc.eval) {
				switch err := s.Eval(p); {
				case err == nil:
					errs.WriteByte('-')
				case errors.Is(err, ErrInjected) && errors.Is(err, sharing.ErrUnavailable):
					errs.WriteByte('e')
				default:
					t.Errorf("error %v is not ErrInjected", err)
				}
			}
			if errs.String() != tc.errs {
				t.Errorf("errors %s, want %s", errs.String(), tc.errs)
			}
			if d := cmp.Diff(tc.did, r.did); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestErrorText(t *testing.T) {
	s, err := Parse("a.b=error(disk full)", Actions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Eval("a.b").Error(), `failpoint "a.b": disk full: injected (unavailable)`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNilSetIsOff(t *testing.T) {
	for _, spec := range []string{"", "  \n"} {
		s, err := Parse(spec, Actions{})
		if s != nil || err != nil {
			t.Errorf("Parse(%q) = %v, %v", spec, s, err)
		}
		if err := errors.Join(s.Eval("a"), s.Check()); err != nil {
			t.Error(err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, spec := range []string{
		"a", "=off", "a=", "A=off", "a b=off", "a=off;", ";a=off", "a=off;a=exit", "a=on", "a=off()", "a=exit(1)",
		"a=error", "a=error()", "a=error(x", "a=error(x))", "a=error(x)y", "a=sleep", "a=sleep()", "a=sleep(5)",
		"a=sleep(-1s)", "a=sleep(0s)", "a=0*off", "a=-1*off", "a=x*off", "a=*off", "a=99999999999*off",
		"a=off->exit", "a=2*off->", "a=->off", "a=2*2*off", "a=off->2*exit",
	} {
		s, err := Parse(spec, Actions{Exit: func(string) {}})
		var fe *sharing.FieldError
		if s != nil || !errors.As(err, &fe) || fe.Remedy == "" {
			t.Errorf("Parse(%q) = %v, %v; want a FieldError with a remedy", spec, s, err)
		}
	}
	if _, err := Parse("a=exit", Actions{}); !errors.Is(err, sharing.ErrInvalid) {
		t.Errorf("exit without a way to exit: %v, want ErrInvalid", err)
	}
}

func TestCheckNamesUnknownPoints(t *testing.T) {
	s, err := Parse("b=off;a=off", Actions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check("a", "b", "c"); err != nil {
		t.Error(err)
	}
	if err := s.Check("a"); !errors.Is(err, sharing.ErrInvalid) || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("%v, want ErrInvalid that names b", err)
	}
}

func TestCountIsExactUnderConcurrency(t *testing.T) {
	s, err := Parse("a=100*error(x)", Actions{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var failed atomic.Int64
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if s.Eval("a") != nil {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if failed.Load() != 100 {
		t.Errorf("%d errors, want 100", failed.Load())
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a=2*off->exit;b=error(x;y->z)")
	f.Add("a=sleep(50ms)")
	f.Add("a=(;)")
	f.Fuzz(func(t *testing.T, spec string) {
		s, err := Parse(spec, Actions{Exit: func(string) {}, Sleep: func(time.Duration) {}})
		if err != nil {
			if s != nil || !errors.Is(err, sharing.ErrInvalid) {
				t.Errorf("Parse(%q) = %v, %v", spec, s, err)
			}
			return
		}
		if s == nil {
			if strings.TrimSpace(spec) != "" {
				t.Errorf("Parse(%q) is off", spec)
			}
			return
		}
		for name := range s.points {
			for range 3 {
				if err := s.Eval(name); err != nil && !errors.Is(err, ErrInjected) {
					t.Error(fmt.Errorf("eval %q: %w", name, err))
				}
			}
		}
	})
}
