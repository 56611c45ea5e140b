// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"

	"github.com/kerf-gpu/kerf/sharing/config"
)

// lastGood keeps a copy of the document in force in a ConfigMap of its own, and takes it from there where a scheduler starts
// while the document has mistakes. Like the profiles' amounts it is written by the scheduler that leads alone, and it is not
// made here: it belongs to who installed Kerf.
type lastGood struct{ owned }

// look writes the copy where it is another, or takes it where a document was refused and none is in force.
func (l lastGood) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	l.rules.mu.Lock()
	hash, refused := l.rules.hash, l.rules.refusal != nil
	data := make(map[string]string, len(l.rules.files))
	for _, f := range l.rules.files {
		data[f.Name] = string(f.Data)
	}
	l.rules.mu.Unlock()
	switch {
	case hash == "" && refused:
		return l.restore(ctx)
	case hash == "" || !l.rules.Leads(l.host):
		return nil
	}
	_, err := l.write(ctx, data, hash)
	return err
}

// restore puts the copy in force unless a document is by now. Who has changed it has not made it the last good one.
func (l lastGood) restore(ctx context.Context) error {
	m, err := l.read(ctx)
	if err != nil {
		return err
	}
	found := candidate(l.String(), config.FilesOf(m.Data))
	switch {
	case len(found.Files) == 0:
		return fmt.Errorf("%s has no document yet", l)
	case found.Hash != m.Annotations[hashAnnotation]:
		return fmt.Errorf("%s is not what a scheduler wrote: its document has the sha256 %s, and its annotation says %q", l, found.Hash, m.Annotations[hashAnnotation])
	case found.Err != nil:
		return found.Err
	}
	l.rules.put(ctx, found, true)
	return nil
}
