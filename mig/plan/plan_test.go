// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/mig"
	"github.com/kerf-gpu/kerf/mig/plan"
	"github.com/kerf-gpu/kerf/sharing"
)

// have reads instances: "3g.40gb@4 pod-a" is ours and in use, "3g.40gb@4" idle, with "foreign" in front not
// ours, with "half" without a compute instance, with "two" with two.
func have(t *testing.T, table *mig.Table, list []string) []plan.Instance {
	var out []plan.Instance
	for i, s := range list {
		in := plan.Instance{GI: i + 1, Managed: true, CIs: []int{0}, Ready: true}
		for word := range strings.FieldsSeq(s) {
			switch {
			case word == "foreign":
				in.Managed = false
			case word == "half":
				in.CIs, in.Ready = nil, false
			case word == "two":
				in.CIs, in.Ready = []int{0, 1}, false
			case strings.Contains(word, "@"):
				in.Place = place(t, table, word)
			default:
				in.Users = append(in.Users, word)
			}
		}
		out = append(out, in)
	}
	return out
}

// place reads "3g.40gb@4", or "3g.40gb" for any start.
func place(t *testing.T, table *mig.Table, s string) mig.Place {
	name, start, given := strings.Cut(s, "@")
	p, err := table.Lookup("test", name)
	if err != nil {
		t.Fatal(err)
	}
	at := mig.Place{Profile: p.ID, Start: plan.Any}
	if given {
		if _, err := fmt.Sscan(start, &at.Start); err != nil {
			t.Fatal(err)
		}
	}
	return at
}

func want(t *testing.T, table *mig.Table, list []string) []plan.Wish {
	var out []plan.Wish
	for i, s := range list {
		p := place(t, table, s)
		out = append(out, plan.Wish{Profile: p.Profile, Start: p.Start, For: fmt.Sprintf("new-%d", i+1)})
	}
	return out
}

// written writes a plan as an admin would.
func written(table *mig.Table, p plan.Plan) []string {
	at := func(place mig.Place) string { return fmt.Sprintf("%s@%d", table.Name(place.Profile), place.Start) }
	var out []string
	for _, s := range p.Steps {
		out = append(out, fmt.Sprintf("%s %s", s.Op, at(s.Place)))
	}
	for _, a := range p.Answers {
		line := a.State.String()
		if a.State != plan.Never && a.State != plan.Unmanaged {
			line += " " + at(a.Place)
		}
		if a.BlockedBy != nil {
			line += " for " + strings.Join(a.BlockedBy, ",")
		}
		if a.Reason != "" {
			line += ": " + a.Reason
		}
		out = append(out, line)
	}
	for _, l := range p.Left {
		out = append(out, "left "+at(l.Place)+" for "+strings.Join(l.BlockedBy, ","))
	}
	return out
}

func TestMake(t *testing.T) {
	tests := map[string]struct {
		have, wish []string
		exact      bool
		want       []string
	}{
		"nothing is wanted": {have: []string{"1g.10gb@6"}},
		"on an empty GPU": {wish: []string{"3g.40gb"}, want: []string{"create-gi 3g.40gb@4", "create-ci 3g.40gb@4",
			"made 3g.40gb@4"}},
		"next to one that is in use": {have: []string{"3g.40gb@4 pod-a"}, wish: []string{"2g.20gb"},
			want: []string{"create-gi 2g.20gb@2", "create-ci 2g.20gb@2", "made 2g.20gb@2"}},
		"a warm one is there": {have: []string{"1g.10gb@0", "1g.10gb@6 pod-a"}, wish: []string{"1g.10gb"},
			want: []string{"ready 1g.10gb@0"}},
		"a half made one is there": {have: []string{"half 1g.10gb@0"}, wish: []string{"1g.10gb"},
			want: []string{"create-ci 1g.10gb@0", "made 1g.10gb@0"}},
		"one cut in two is there": {have: []string{"two 7g.80gb@0"}, wish: []string{"7g.80gb"},
			want: []string{"destroy-ci 7g.80gb@0", "destroy-ci 7g.80gb@0", "create-ci 7g.80gb@0", "made 7g.80gb@0"}},
		"an idle one gives way, and the fewer of them": {have: []string{"1g.10gb@0", "1g.10gb@1", "1g.20gb@6"},
			wish: []string{"3g.40gb"},
			want: []string{"destroy-ci 1g.20gb@6", "destroy-gi 1g.20gb@6", "create-gi 3g.40gb@4", "create-ci 3g.40gb@4",
				"made 3g.40gb@4"}},
		"the only engine is in an idle one elsewhere": {have: []string{"1g.10gb+me@0"}, wish: []string{"1g.10gb+me@6"},
			want: []string{"destroy-ci 1g.10gb+me@0", "destroy-gi 1g.10gb+me@0", "create-gi 1g.10gb+me@6",
				"create-ci 1g.10gb+me@6", "made 1g.10gb+me@6"}},
		"full": {have: []string{"4g.40gb@0 pod-a", "3g.40gb@4 pod-b"}, wish: []string{"1g.10gb"},
			want: []string{"waits 1g.10gb@3 for pod-a: full: 1g.10gb takes 1 of 7 compute slices; 0 are free"}},
		"fragmented": {have: []string{"1g.10gb@0 pod-a", "1g.10gb@4 pod-b"}, wish: []string{"4g.40gb"},
			want: []string{
				"waits 4g.40gb@0 for pod-a: fragmented: 4g.40gb takes 4 of 8 memory units from 0; 6 are free " +
					"(1-3,5-7)"}},
		"who waits keeps the place": {have: []string{"7g.80gb@0 pod-a"}, wish: []string{"4g.40gb", "4g.40gb"},
			want: []string{"waits 4g.40gb@0 for pod-a: full: 4g.40gb takes 4 of 7 compute slices; 0 are free",
				"waits 4g.40gb@0 for new-1,pod-a: full: 4g.40gb takes 4 of 7 compute slices; 0 are free"}},
		"foreign ones stay, idle or not": {have: []string{"foreign 1g.10gb@0", "foreign 1g.10gb@4 someone"},
			wish: []string{"3g.40gb"},
			want: []string{"foreign: fragmented: 3g.40gb takes 4 of 8 memory units from 0,4; 6 are free (1-3,5-7); " +
				"in the way are instances that Kerf did not make: 1g.10gb at 0, 1g.10gb at 4"}},
		"a start that is taken": {have: []string{"1g.10gb@5 pod-a"}, wish: []string{"1g.10gb@5"},
			want: []string{"waits 1g.10gb@5 for pod-a: 1g.10gb at 5 is taken"}},
		"a start that there is not": {wish: []string{"4g.40gb@4"}, want: []string{"never: 4g.40gb cannot begin at 4"}},
		"a layout counts what is in use, and gives back what is idle": {exact: true,
			have: []string{"1g.10gb@6 pod-a", "2g.20gb@0", "1g.20gb@2 pod-b"}, wish: []string{"1g.10gb", "1g.10gb"},
			want: []string{"destroy-ci 2g.20gb@0", "destroy-gi 2g.20gb@0", "create-gi 1g.10gb@5", "create-ci 1g.10gb@5",
				"ready 1g.10gb@6", "made 1g.10gb@5", "left 1g.20gb@2 for pod-b"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			table := table(t, "h100x8")
			p, err := plan.Make(plan.Request{Table: table, Values: mig.NewValues(table, nil), Have: have(t, table,
				tt.have),
				Wishes: want(t, table, tt.wish), Exact: tt.exact})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, written(table, p)); d != "" {
				t.Errorf("plan (-want +got):\n%s", d)
			}
		})
	}
}

// As many wishes as possible, on a GPU that is all busy: each waits for a user, the last ones for wishes that wait
// themselves, and none reports unmanaged instances as its reason.
func TestAllWishesWait(t *testing.T) {
	for name, tc := range map[string]struct{ small, whole string }{"h100x8": {"1g.10gb", "7g.80gb"},
		"b200x8": {"1g.23gb", "7g.180gb"}} {
		table := table(t, name)
		var busy, wishes []string
		for i := range 7 {
			busy = append(busy, fmt.Sprintf("%s@%d pod-%d", tc.small, i, i))
		}
		for range plan.MaxWishes - 1 {
			wishes = append(wishes, tc.small)
		}
		wishes = append(wishes, tc.whole)
		p, err := plan.Make(plan.Request{Table: table, Have: have(t, table, busy), Wishes: want(t, table, wishes)})
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range p.Answers {
			if a.State != plan.Pending || len(a.BlockedBy) == 0 {
				t.Errorf("%s: wish %d: %+v", name, i, a)
			}
		}
	}
}

func TestWhatCannotBePlanned(t *testing.T) {
	table := table(t, "h100x8")
	many := make([]string, plan.MaxWishes+1)
	for i := range many {
		many[i] = "1g.10gb"
	}
	tests := map[string]struct {
		have, wish []string
		exact      bool
		want       string
	}{
		"too many": {wish: many, want: "13 MIG instances are wanted of one GPU, more than 12"},
		"a layout past the GPU": {wish: []string{"3g.40gb", "3g.40gb", "1g.10gb"}, exact: true,
			want: "takes 9 of 8 memory units"},
		"a layout whose starts collide": {wish: []string{"1g.10gb@0", "4g.40gb"}, exact: true,
			want: "the starts that are given leave no place for 4g.40gb"},
		"instances that cannot be": {have: []string{"3g.40gb@0", "1g.10gb@1"},
			want: "1g.10gb at 1 needs units 1, of which 1 are taken"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := plan.Make(plan.Request{Table: table, Have: have(t, table, tt.have), Wishes: want(t, table,
				tt.wish),
				Exact: tt.exact})
			if err == nil || !strings.Contains(err.Error(), tt.want) || len(p.Steps) > 0 {
				t.Errorf("%+v, error %v, want %q", p, err, tt.want)
			}
			if !errors.Is(err, sharing.ErrInvalid) {
				t.Errorf("%v is not invalid", err)
			}
		})
	}
}
