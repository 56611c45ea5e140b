// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/kerf-gpu/kerf/internal/atomicfile"
	"github.com/kerf-gpu/kerf/internal/libkerf"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/caps/client"
)

// contextsSchema is the version of the file in which the sizes of contexts are kept.
const contextsSchema = 1

// contextsFile is what it holds: sizes by kind of GPU.
type contextsFile struct {
	Schema int                      `json:"schema"`
	Sizes  map[string]sharing.Bytes `json:"sizes"`
}

// contextKinds says what kind of GPU each is: those of one model have contexts of one size with one driver. Without a
// driver nothing is known. It needs the lock.
func (r *Runtime) contextKinds() map[sharing.GPUID]string {
	out := map[sharing.GPUID]string{}
	if r.att == nil {
		return out
	}
	for _, v := range r.ledger.GPUs() {
		out[v.GPU.UUID] = v.GPU.Model + ", driver " + r.att.Driver.Version()
	}
	return out
}

// learnContexts takes over what a look says of the size of contexts. Each process puts that much aside before it makes
// one, which the driver's list shows only later: many may start at once, and could fill the cap meanwhile. It is true
// where something has changed.
func (r *Runtime) learnContexts(seen client.Result) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed, kinds := false, r.contextKinds()
	for gpu, least := range seen.Least {
		kind := kinds[gpu]
		if kind == "" {
			continue
		}
		if r.contexts[kind] == nil {
			r.contexts[kind] = &client.ContextSize{}
		}
		before := r.contexts[kind].Bytes()
		r.contexts[kind].Note(seen.Contexts[gpu], least)
		changed = changed || r.contexts[kind].Bytes() != before
	}
	return changed
}

// contextSizes is what one context takes of each GPU, as far as that is known. It needs the lock.
func (r *Runtime) contextSizes() map[sharing.GPUID]sharing.Bytes {
	out := map[sharing.GPUID]sharing.Bytes{}
	for gpu, kind := range r.contextKinds() {
		if c := r.contexts[kind]; c != nil && c.Bytes() > 0 {
			out[gpu] = c.Bytes()
		}
	}
	return out
}

// tellContexts has processes put aside what is known now. It comes after the overheads were put right: who waits for the
// size finds the room that the first context did not take. A region of before, whose size an agent knew that is gone,
// keeps that.
func (r *Runtime) tellContexts(all []*kept, learnt bool) {
	r.mu.Lock()
	sizes := r.contextSizes()
	r.mu.Unlock()
	for _, k := range all {
		r.keep(k, func(open *libkerf.Region) error {
			for _, gpu := range k.gpus {
				if size, known := sizes[gpu]; known {
					if err := open.SetContext(gpu, size); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	if !learnt {
		return
	}
	if err := r.saveContexts(); err != nil {
		r.log.Warn("sizes of contexts not kept", "error", err.Error())
	}
}

// saveContexts writes down what is known, where a size is new or has changed by more than a sixteenth.
func (r *Runtime) saveContexts() error {
	if r.opt.ContextsPath == "" {
		return nil
	}
	r.mu.Lock()
	sizes, worth := map[string]sharing.Bytes{}, false
	for kind, c := range r.contexts {
		now, was := c.Bytes(), r.contextsKept[kind]
		sizes[kind] = now
		worth = worth || now > was+was/16 || now+now/16 < was
	}
	r.mu.Unlock()
	if !worth {
		return nil
	}
	data, err := json.MarshalIndent(contextsFile{contextsSchema, sizes}, "", "  ")
	if err == nil {
		err = atomicfile.Write(r.opt.ContextsPath, append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep sizes of contexts: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.contextsKept = sizes
	return nil
}

// loadContexts reads what an earlier agent knew. A file that cannot be read says nothing: the sizes are learnt anew. It
// needs the lock.
func (r *Runtime) loadContexts() {
	if r.opt.ContextsPath == "" {
		return
	}
	var f contextsFile
	data, err := os.ReadFile(r.opt.ContextsPath)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil || f.Schema != contextsSchema {
		r.log.Warn("sizes of contexts are learnt anew", "file", r.opt.ContextsPath, "schema", f.Schema, "error", fmt.Sprint(err))
		return
	}
	for kind, size := range f.Sizes {
		if size > 0 {
			r.contexts[kind] = &client.ContextSize{}
			r.contexts[kind].Note([]sharing.Bytes{size}, 0)
		}
	}
	r.contextsKept = f.Sizes
}
