// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package configplan compares a SharingConfig with a cluster. It says which fields differ, and what the config would
// change on each node and GPU, at once or later. It changes nothing.
package configplan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
)

// Diff is how a config differs from those of a cluster.
type Diff struct {
	// SHA256 is the config's hash, and ConfigMap that of what the cluster's ConfigMap says, empty where there is none.
	SHA256    string `json:"sha256"`
	ConfigMap string `json:"configMap"`
	// Errors are the errors of the ConfigMap's text. With errors, no node applies it.
	Errors []string `json:"configMapErrors"`
	// Differences are those from the ConfigMap's text. With errors, there are none.
	Differences []change.Difference `json:"differences"`
	// Applied are configs that nodes apply instead of the ConfigMap's.
	Applied []OtherApplied `json:"otherApplied"`
	// Left has a sentence for each thing that is not known, and for each choice of GPUs that means none.
	Left []string `json:"unknown"`
}

// OtherApplied is a config that nodes apply, with its differences from the new one.
type OtherApplied struct {
	SHA256      string              `json:"sha256"`
	Source      string              `json:"source"`
	Nodes       []string            `json:"nodes"`
	Differences []change.Difference `json:"differences"`
}

// These are the sources of a node's applied config, as Diff reports them.
const (
	inConfigMap  = "configmap"
	inLastGood   = "last good"
	inBuiltIn    = "built-in"
	inNothing    = "nothing"
	inOtherState = "not known"
)

// appliedOn is the config that a node applies.
type appliedOn struct {
	sha256 string
	what   string
	// document is what is compared: where that is not known, the ConfigMap's, or the built-in one.
	document config.Config
	errs     []string
}

// Comparison is a config and the cluster that it is for. Make one with New.
type Comparison struct {
	after config.Config
	// text is the ConfigMap's config. valid is false if it has errors or does not exist.
	text    config.Config
	valid   bool
	cluster survey.Cluster
	// status are the reports by node, and inForce what they have.
	status  map[string]gpunode.Status
	applied map[string]appliedOn
}

// New compares a config, which was read from files, with the cluster and the data of its ConfigMap kerf-config.
func New(after config.Config, files []config.File, cluster survey.Cluster, data map[string]string) (Diff, Comparison,
	error) {
	p := Diff{SHA256: config.Hash(files), Errors: []string{}, Differences: []change.Difference{},
		Applied: []OtherApplied{}, Left: []string{}}
	x := Comparison{text: config.Default(), after: after, cluster: cluster, status: map[string]gpunode.Status{},
		applied: map[string]appliedOn{}}
	if files := config.FilesOf(data); len(files) > 0 {
		p.ConfigMap = config.Hash(files)
		text, err := config.DecodeFiles(files...)
		if x.valid = err == nil; x.valid {
			x.text = text
		} else {
			p.Errors = strings.Split(err.Error(), "\n")
		}
	} else {
		p.Left = append(p.Left,
			"there is no configmap kerf-system/kerf-config; what agents have of their own is compared")
	}
	if len(p.Errors) == 0 {
		differences, err := change.Between(x.text, x.after)
		if err != nil {
			return p, x, err //nolint:wrapcheck // it says what was done
		}
		p.Differences = append(p.Differences, differences...)
	}
	err := x.reports(&p)
	return p, x, err
}

// reports reads the config that each node applies.
func (x Comparison) reports(p *Diff) error {
	others := map[string]*OtherApplied{}
	for _, name := range slices.Sorted(maps.Keys(x.cluster.Reports)) {
		s, err := gpunode.ReadStatus(x.cluster.Reports[name])
		if err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
		x.status[name] = s
		is := x.appliedOf(s, p.ConfigMap)
		x.applied[name] = is
		if is.what == inConfigMap || is.what == inBuiltIn && p.ConfigMap == "" {
			continue
		}
		o := others[is.what+is.sha256]
		if o == nil {
			o = &OtherApplied{SHA256: is.sha256, Source: is.what, Differences: []change.Difference{}}
			others[is.what+is.sha256] = o
			if is.what == inLastGood || is.what == inBuiltIn {
				differences, err := change.Between(is.document, x.after)
				if err != nil {
					return err //nolint:wrapcheck // it says what was done
				}
				o.Differences = append(o.Differences, differences...)
			}
		}
		o.Nodes = append(o.Nodes, name)
	}
	for _, key := range slices.Sorted(maps.Keys(others)) {
		p.Applied = append(p.Applied, *others[key])
	}
	return nil
}

// appliedOf returns the config that a node reports as applied. configMap is the hash of the ConfigMap's config.
func (x Comparison) appliedOf(s gpunode.Status, configMap string) appliedOn {
	is := appliedOn{document: x.text}
	if s.Config != nil {
		is.sha256, is.errs = s.Config.SHA256, s.Config.Errors
	}
	switch {
	case is.sha256 == "" && len(is.errs) > 0:
		is.what, is.document = inNothing, config.Default()
		return is
	case is.sha256 == "":
		is.what, is.document = inBuiltIn, config.Default()
		return is
	case is.sha256 == configMap && x.valid:
		is.what = inConfigMap
		return is
	case s.Config.LastKnownGood != "":
		if c, err := config.Decode([]byte(s.Config.LastKnownGood)); err == nil {
			is.what, is.document = inLastGood, c
			return is
		}
	}
	is.what = inOtherState
	return is
}

// Differs counts the fields that differ from the ConfigMap's text or from the applied config.
func (p Diff) Differs() (fields int) {
	fields = len(p.Differences)
	for _, o := range p.Applied {
		fields = max(fields, len(o.Differences))
	}
	return fields
}

// Header prints the differences, and where nodes apply something else than the ConfigMap.
func (p Diff) Header(b *strings.Builder) {
	switch {
	case len(p.Errors) > 0:
		fmt.Fprintf(b,
			"The text of configmap kerf-system/kerf-config (sha256 %s) has errors and no node applies it:\n",
			short(p.ConfigMap))
		for _, m := range p.Errors {
			fmt.Fprintf(b, "  %s\n", m)
		}
	case len(p.Differences) == 0:
		b.WriteString("The config has no differences from the cluster.\n")
	}
	writeDifferences(b, p.Differences)
	for _, o := range p.Applied {
		nodes := strings.Join(o.Nodes, ", ")
		switch o.Source {
		case inNothing:
			fmt.Fprintf(b, "\napplied on %s: none, since no config was valid yet; all of this one is new "+
				"there\n", nodes)
			continue
		case inOtherState:
			fmt.Fprintf(b,
				"\napplied on %s: sha256 %s, which is not the ConfigMap's text and whose own is not known from "+
					"here\n", nodes, short(o.SHA256))
			continue
		case inBuiltIn:
			fmt.Fprintf(b, "\napplied on %s: the built-in default, not the ConfigMap's text; against it\n", nodes)
		default:
			fmt.Fprintf(b,
				"\napplied on %s: the last known good config, sha256 %s, not the ConfigMap's text; against it\n", nodes,
				short(o.SHA256))
		}
		if len(o.Differences) == 0 {
			b.WriteString("nothing differs\n")
		}
		writeDifferences(b, o.Differences)
	}
}

func writeDifferences(b *strings.Builder, list []change.Difference) {
	for _, d := range list {
		fmt.Fprintf(b, "%s\n", d)
	}
}

// short is the beginning of a hash, as the columns of gpunodes show it.
func short(sha256 string) string { return sha256[:min(len(sha256), 12)] }
