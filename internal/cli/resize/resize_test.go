// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/nodeclient/fakenode"
	"github.com/kerf-gpu/kerf/test/clitest"
)

func TestResize(t *testing.T) {
	grants := []*nodeapi.Grant{
		{Id: "k-1", Name: "train", Level: "driver", MemoryBytes: 10 << 30},
		{Id: "k-2", PodNamespace: "ml", PodName: "llm", Container: "main", Level: "driver", MemoryBytes: 20 << 30},
		{Id: "k-3", PodNamespace: "ml", PodName: "twice", Container: "main"},
		{Id: "k-4", PodNamespace: "ml", PodName: "twice", Container: "main"},
	}
	for name, tc := range map[string]struct {
		args    []string
		none    bool
		code    int
		asked   string // the id that the agent is asked to change
		out, in string
	}{
		"by name": {args: []string{"train", "--memory", "12GiB"}, asked: "k-1",
			out: "train: 12GiB, was 10GiB (level driver)\n"},
		"by id": {args: []string{"k-2", "--memory", "12GiB"}, asked: "k-2",
			out: "ml/llm/main: 12GiB, was 20GiB (level driver)\n"},
		"not for all": {args: []string{"train", "--memory", "13GiB"}, asked: "k-1",
			out: "train: 13GiB, was 10GiB (level driver)\nnote: pid 7 keeps 10GiB\n"},
		"by pod": {args: []string{"ml/llm/main", "--memory", "12GiB"}, asked: "k-2",
			out: "ml/llm/main: 12GiB, was 20GiB (level driver)\n"},
		"unknown": {args: []string{"absent", "--memory", "12GiB"}, code: 1, in: "there are train, ml/llm/main"},
		"no grants": {args: []string{"absent", "--memory", "12GiB"}, none: true, code: 1,
			in: "this node has no grants"},
		"two of a name": {args: []string{"ml/twice/main", "--memory", "12GiB"}, code: 1, in: "by its id"},
		"refused": {args: []string{"train", "--memory", "99GiB"}, code: 1, asked: "k-1",
			in: "10GiB free of 79GiB, 99GiB requested"},
		"no amount": {args: []string{"train"}, code: 2, in: "--memory is missing"},
		"no grant":  {args: []string{"--memory", "1GiB"}, code: 2, in: "accepts 1 arg"},
		"former":    {args: []string{"train", "12GiB"}, code: 2, in: "accepts 1 arg"},
		"no size":   {args: []string{"train", "--memory", "12Gb"}, code: 2, in: `unknown unit "Gb"`},
		"zero":      {args: []string{"train", "--memory", "0"}, code: 2, in: "is zero"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, asked := t.TempDir(), ""
			s := (&fakenode.Server{OnResize: func(r *nodeapi.ResizeRequest) (*nodeapi.ResizeResponse, error) {
				asked = r.GetId()
				if r.GetMemoryBytes() > 79<<30 {
					return nil, status.Error(codes.ResourceExhausted, "10GiB free of 79GiB, 99GiB requested")
				}
				if r.GetMemoryBytes() == 13<<30 {
					return &nodeapi.ResizeResponse{Grant: &nodeapi.Grant{Id: asked, Level: "driver",
						LevelReason: "pid 7 keeps 10GiB", MemoryBytes: r.GetMemoryBytes()}}, nil
				}
				return &nodeapi.ResizeResponse{Grant: &nodeapi.Grant{Id: asked, Level: "driver",
					MemoryBytes: r.GetMemoryBytes()}}, nil
			}}).Start(t, dir)
			p := clitest.Node(true)
			for _, g := range grants {
				if !tc.none {
					p.Grants = append(p.Grants, proto.CloneOf(g))
				}
			}
			s.Show(p)
			k := clitest.New(nil)
			code, _ := k.App.Execute(append([]string{"--run-dir", dir, "resize"}, tc.args...), Commands)
			if code != tc.code || asked != tc.asked || k.Out.String() != tc.out ||
				!strings.Contains(k.ErrOut.String(), tc.in) {
				t.Errorf("exit %d, requested %q, %q, %q; want %d, %q, %q, with %q", code, asked, k.Out.String(),
					k.ErrOut.String(), tc.code, tc.asked, tc.out, tc.in)
			}
		})
	}
}
