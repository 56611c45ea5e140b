// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/sharing"
)

// TestStartReadsBack: a container with a grant starts only if its limits are as granted. A container without one is not
// asked for.
func TestStartReadsBack(t *testing.T) {
	c := newContainerd(t).start()
	b := plug(t, c.socket(), &fakeNode{}).serving(t)
	good, bad, plain, noted := containerOf("good", guarded()...), containerOf("bad", guarded()...), containerOf("web"),
		containerOf("noted")
	// of a runtime that tells of no CDI device
	noted.Annotations = map[string]string{sharing.GrantAnnotation: injection().Annotation}
	b.starts.refuse[bad.Id] = fmt.Errorf("GPU %s has limit none (cap 10GiB): %w", gpu0, sharing.ErrConflict)
	b.starts.refuse[plain.Id] = sharing.ErrConflict
	pod := podOf("train")
	if err := c.startContainer(pod, good); err != nil {
		t.Errorf("limits as granted: %v", err)
	}
	if err := c.startContainer(pod, plain); err != nil {
		t.Errorf("without a grant: %v", err)
	}
	if err := c.startContainer(pod, noted); err != nil {
		t.Errorf("with a note: %v", err)
	}
	err := c.startContainer(pod, bad)
	if err == nil {
		t.Fatal("a container starts whose limit was raised")
	}
	for _, word := range []string{"kerf: pod default/train", `container "bad"`, "limit none (cap 10GiB)",
		"kubelet tries again"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
	if want := []string{good.Id, noted.Id, bad.Id}; !slices.Equal(b.starts.asked, want) {
		t.Errorf("requested %q, want %q", b.starts.asked, want)
	}
}
