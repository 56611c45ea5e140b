// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kerf-gpu/kerf/api/gpunode"
	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/kube/survey"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
)

// configDiff is what a document says differently from those of a cluster.
type configDiff struct {
	// SHA256 is the document's hash, and ConfigMap that of what the cluster's ConfigMap says, empty where there is none.
	SHA256    string `json:"sha256"`
	ConfigMap string `json:"configmap"`
	// Mistakes are those of the ConfigMap's text: then no node has it in force.
	Mistakes []string `json:"configmap_mistakes"`
	// Differences are those from the ConfigMap's text, none where that has mistakes.
	Differences []change.Difference `json:"differences"`
	// InForce are the documents that nodes have in force and that are not what the ConfigMap says.
	InForce []otherInForce `json:"other_in_force"`
	// Left has a sentence for each thing that is not known, and for each choice of GPUs that means none.
	Left []string `json:"left"`
}

// otherInForce is a document that nodes have in force, with what the new one says differently from it.
type otherInForce struct {
	SHA256      string              `json:"sha256"`
	What        string              `json:"what"`
	Nodes       []string            `json:"nodes"`
	Differences []change.Difference `json:"differences"`
}

// What a node has in force, as configDiff says it.
const (
	inConfigMap  = "configmap"
	inLastGood   = "last good"
	inBuiltIn    = "built-in"
	inNothing    = "nothing"
	inOtherState = "not known"
)

// inForceOn is what a node has in force.
type inForceOn struct {
	sha256 string
	what   string
	// document is what is compared: where that is not known, the ConfigMap's, or the built-in one.
	document config.Config
	mistakes []string
}

// comparison is a document and the cluster that it is for.
type comparison struct {
	after config.Config
	// text is what the ConfigMap says; valid is false where it has mistakes, or there is none.
	text    config.Config
	valid   bool
	cluster survey.Cluster
	// status are the reports by node, and inForce what they have.
	status  map[string]gpunode.Status
	inForce map[string]inForceOn
}

// compare reads a document and the cluster.
func compare(ctx context.Context, a *command.App, names []string) (configDiff, comparison, error) {
	p := configDiff{Mistakes: []string{}, Differences: []change.Difference{}, InForce: []otherInForce{}, Left: []string{}}
	d, err := readDocument(a, names)
	if err != nil {
		return p, comparison{}, err
	}
	x := comparison{text: config.Default(), after: d.config, status: map[string]gpunode.Status{}, inForce: map[string]inForceOn{}}
	api, err := a.Cluster()
	if err != nil {
		return p, x, err
	}
	defer api.Close()
	if x.cluster, err = survey.Take(ctx, api); err != nil {
		return p, x, fmt.Errorf("read the cluster: %w", err)
	}
	data, err := survey.Config(ctx, api)
	if err != nil && !errors.Is(err, sharing.ErrNotFound) {
		return p, x, fmt.Errorf("read the cluster: %w", err)
	}
	p.SHA256 = config.Hash(d.files)
	if files := config.FilesOf(data); len(files) > 0 {
		p.ConfigMap = config.Hash(files)
		text, err := config.DecodeFiles(files...)
		if x.valid = err == nil; x.valid {
			x.text = text
		} else {
			p.Mistakes = strings.Split(err.Error(), "\n")
		}
	} else {
		p.Left = append(p.Left, "there is no configmap kerf-system/kerf-config; what agents have of their own is compared")
	}
	if len(p.Mistakes) == 0 {
		differences, err := change.Documents(x.text, x.after)
		if err != nil {
			return p, x, err //nolint:wrapcheck // it says what was done
		}
		p.Differences = append(p.Differences, differences...)
	}
	err = x.reports(&p)
	return p, x, err
}

// reports reads what each node has in force.
func (x comparison) reports(p *configDiff) error {
	others := map[string]*otherInForce{}
	for _, name := range slices.Sorted(maps.Keys(x.cluster.Reports)) {
		var s gpunode.Status
		if err := json.Unmarshal(x.cluster.Reports[name], &s); err != nil {
			return fmt.Errorf("read the status of gpunode %s: %w", name, err)
		}
		x.status[name] = s
		is := x.inForceOf(s, p.ConfigMap)
		x.inForce[name] = is
		if is.what == inConfigMap || is.what == inBuiltIn && p.ConfigMap == "" {
			continue
		}
		o := others[is.what+is.sha256]
		if o == nil {
			o = &otherInForce{SHA256: is.sha256, What: is.what, Differences: []change.Difference{}}
			others[is.what+is.sha256] = o
			if is.what == inLastGood || is.what == inBuiltIn {
				differences, err := change.Documents(is.document, x.after)
				if err != nil {
					return err //nolint:wrapcheck // it says what was done
				}
				o.Differences = append(o.Differences, differences...)
			}
		}
		o.Nodes = append(o.Nodes, name)
	}
	for _, key := range slices.Sorted(maps.Keys(others)) {
		p.InForce = append(p.InForce, *others[key])
	}
	return nil
}

// inForceOf is what a node says it has in force. configMap is the hash of what the cluster's says.
func (x comparison) inForceOf(s gpunode.Status, configMap string) inForceOn {
	is := inForceOn{document: x.text}
	if s.Config != nil {
		is.sha256, is.mistakes = s.Config.SHA256, s.Config.Mistakes
	}
	switch {
	case is.sha256 == "" && len(is.mistakes) > 0:
		is.what, is.document = inNothing, config.Default()
		return is
	case is.sha256 == "":
		is.what, is.document = inBuiltIn, config.Default()
		return is
	case is.sha256 == configMap && x.valid:
		is.what = inConfigMap
		return is
	case s.Config.Document != "":
		if c, err := config.Decode([]byte(s.Config.Document)); err == nil {
			is.what, is.document = inLastGood, c
			return is
		}
	}
	is.what = inOtherState
	return is
}

// differs counts the fields that differ, from the ConfigMap's text or from what is in force instead of it.
func (p configDiff) differs() (fields int) {
	fields = len(p.Differences)
	for _, o := range p.InForce {
		fields = max(fields, len(o.Differences))
	}
	return fields
}

// header says what differs, and where what is in force is not what the ConfigMap says.
func (p configDiff) header(b *strings.Builder) {
	switch {
	case len(p.Mistakes) > 0:
		fmt.Fprintf(b, "The text of configmap kerf-system/kerf-config (sha256 %s) has mistakes and is in force nowhere:\n", short(p.ConfigMap))
		for _, m := range p.Mistakes {
			fmt.Fprintf(b, "  %s\n", m)
		}
	case len(p.Differences) == 0:
		b.WriteString("The document says what the cluster's says.\n")
	}
	writeDifferences(b, p.Differences)
	for _, o := range p.InForce {
		nodes := strings.Join(o.Nodes, ", ")
		switch o.What {
		case inNothing:
			fmt.Fprintf(b, "\nin force on %s: nothing, since no document was valid yet; all of this one is new there\n", nodes)
			continue
		case inOtherState:
			fmt.Fprintf(b, "\nin force on %s: sha256 %s, which is not the ConfigMap's text and whose own is not known from here\n", nodes, short(o.SHA256))
			continue
		case inBuiltIn:
			fmt.Fprintf(b, "\nin force on %s: the built-in default, not the ConfigMap's text; against it\n", nodes)
		default:
			fmt.Fprintf(b, "\nin force on %s: the last good document, sha256 %s, not the ConfigMap's text; against it\n", nodes, short(o.SHA256))
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
