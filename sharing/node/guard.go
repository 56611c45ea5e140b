// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"path"

	"github.com/kerf-gpu/kerf/sharing/backend"
	"github.com/kerf-gpu/kerf/sharing/ledger"
	"github.com/kerf-gpu/kerf/sharing/node/guard"
	"github.com/kerf-gpu/kerf/sharing/node/lifecycle"
	"github.com/kerf-gpu/kerf/sharing/node/store"
)

// guardNode is the runtime as the guard needs it.
type guardNode struct{ r *Runtime }

// options are what the guard works with.
func (n guardNode) options() guard.Options {
	r := n.r
	o := guard.Options{
		Log: r.Log, Lists: r.sampler.Lists, Cgroups: r.opt.Cgroups, Notify: r.Notify, Conditions: r.Conditions,
		Observer: r.opt.Observer,
		Own:      path.Join(r.opt.Cgroups.Mount, r.opt.Parent), View: n.view, Changed: r.changed.wait,
		Announce: r.changed.announce,
	}
	if all := path.Dir(r.opt.Parent); all != "." {
		o.Agents = path.Join(r.opt.Cgroups.Mount, all)
	}
	return o
}

// view is what the guard sees.
func (n guardNode) view() (v guard.View) {
	n.r.Store.Read(func(l store.Reader) { v = n.viewOf(l) })
	return v
}

func (n guardNode) viewOf(l store.Reader) guard.View {
	r, grants := n.r, l.Grants()
	v := guard.View{
		Grants: make([]guard.Grant, len(grants)), Owners: r.Owners(grants), Config: r.settings.Config(),
		Pool:     r.settings.Pool(),
		Complete: r.Recovery.Get().Complete() && len(r.Conditions.Unserved()) == 0,
	}
	if r.Driver.Get() != nil {
		v.Driver = r.Driver.Get().Driver
	}
	for _, page := range l.GPUs() {
		v.GPUs = append(v.GPUs, page.GPU)
	}
	served := false
	for i := range grants {
		g := &grants[i]
		v.Grants[i] = guard.Grant{Grant: g, Speaker: speaker(l, *g), Evictable: r.Notify.CanEvict(*g)}
		one, p := &v.Grants[i], backend.PropertiesOf(g.Backend)
		one.Backend = g.Backend
		one.Watched = g.Active != nil && (p.Watch == backend.WatchAlways || p.Watch == backend.WatchListed &&
			watches(l, r, *g))
		one.Counted = one.Watched && p.Counts && r.Libkerf.Check(lifecycle.GrantOf(l, *g)) == backend.Fault{}
		served = served || p.Served
		if a := g.Current(); a.Cgroup != "" && (g.Active == nil || g.Work != ledger.NoWork) {
			v.Activating = append(v.Activating, a.Cgroup)
		}
	}
	if served {
		v.Contexts = n.contexts(l)
	}
	return v
}

// contexts are the sizes of contexts as the guard needs them.
func (n guardNode) contexts(l store.Reader) guard.Contexts {
	gpus := l.GPUs()
	out, sizes := guard.Contexts{}, contextSizes(n.r, gpus)
	for _, v := range gpus {
		out[v.GPU.Ref()] = guard.Context{Index: v.GPU.Index, Model: v.GPU.Model, Size: sizes[v.GPU.Ref()].Bytes}
	}
	return out
}
