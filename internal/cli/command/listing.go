// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/jsonpath"

	"github.com/kerf-gpu/kerf/internal/kube/access"
	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// Listing has the flags of every command that lists: -A, -l and -o, as kubectl has them.
type Listing struct {
	// Output is -o; empty is the form for people.
	Output string
	// All is -A. It is the default, and contradicts --namespace.
	All bool
	// Selector is -l: labels of pods.
	Selector string

	forms []string
}

// jsonPath begins a form of output that has a template.
const jsonPath = "jsonpath="

// Define adds the flags to a command. forms are those of the command besides json, yaml, wide, name and jsonpath.
func (l *Listing) Define(c *cobra.Command, forms ...string) {
	l.forms = append([]string{"json", "yaml", "wide", "name"}, forms...)
	f := c.Flags()
	f.StringVarP(&l.Output, "output", "o", "", "form of the output: "+l.choice())
	f.BoolVarP(&l.All, "all-namespaces", "A", false, "pods of all namespaces (the default)")
	f.StringVarP(&l.Selector, "selector", "l", "",
		"only grants of pods with these labels, such as app=train; for a cluster")
	Complete(c, "output", append(slices.Clone(l.forms), jsonPath)...)
}

func (l *Listing) choice() string { return strings.Join(l.forms, ", ") + " or jsonpath=TEMPLATE" }

// Check returns an error for a form that does not exist and for flags that contradict each other.
func (l *Listing) Check(c *cobra.Command) error {
	var errs []error
	template, ok := strings.CutPrefix(l.Output, jsonPath)
	switch {
	case ok:
		if err := jsonpath.New("output").Parse(relaxed(template)); err != nil {
			errs = append(errs, sharing.Invalid("--output", l.Output,
				"write a template such as jsonpath='{.nodes[*].name}'", "%v", err))
		}
	case l.Output != "" && !slices.Contains(l.forms, l.Output):
		errs = append(errs, sharing.Invalid("--output", l.Output, "write "+l.choice(), "is not a form of output"))
	}
	if l.All && Changed(c, "namespace") {
		errs = append(errs, sharing.Invalid("--all-namespaces", "", "leave out one of them", "contradicts --namespace"))
	}
	if _, err := labels.Parse(l.Selector); err != nil {
		errs = append(errs, sharing.Invalid("--selector", l.Selector, "write labels such as app=train,tier!=test", "%v",
			err))
	}
	return errors.Join(errs...)
}

// CheckMachine returns an error for flags that have no effect without a cluster.
func (l *Listing) CheckMachine() error {
	if l.Selector != "" {
		return sharing.Invalid("--selector", l.Selector,
			"name a cluster with --context or --kubeconfig, or leave it out",
			"has no effect on one machine, which knows no labels of pods")
	}
	return nil
}

// Reject returns an error if the form is one of those that the command does not have here.
func (l *Listing) Reject(where string, forms ...string) error {
	if slices.Contains(forms, l.Output) {
		return sharing.Invalid("--output", l.Output, "choose another form", "is not available for %s", where)
	}
	return nil
}

// Script is true if the form is one for scripts.
func (l *Listing) Script() bool {
	return slices.Contains([]string{"json", "yaml", "name"}, l.Output) || strings.HasPrefix(l.Output, jsonPath)
}

// Wide is true if more columns are requested.
func (l *Listing) Wide() bool { return l.Output == "wide" }

// Encode returns v for scripts; ok is false if the form is one for people. names are what -o name prints.
func (l *Listing) Encode(v any, names func() []string) (text []byte, ok bool, err error) {
	switch {
	case l.Output == "json" || l.Output == "yaml":
		text, err = Encoded(l.Output, v)
		return text, true, err
	case l.Output == "name":
		for _, n := range names() {
			text = append(text, n+"\n"...)
		}
		return text, true, nil
	case strings.HasPrefix(l.Output, jsonPath):
		text, err = byTemplate(strings.TrimPrefix(l.Output, jsonPath), v)
		return text, true, err
	}
	return nil, false, nil
}

// byTemplate returns what the template picks of the JSON form of v.
func byTemplate(template string, v any) ([]byte, error) {
	data, err := present.JSON(v, false)
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("apply template %q: %w", template, err)
	}
	var out bytes.Buffer
	p := jsonpath.New("output").AllowMissingKeys(true)
	if err := p.Parse(relaxed(template)); err != nil {
		return nil, fmt.Errorf("parse template %q: %w", template, err)
	}
	if err := p.Execute(&out, tree); err != nil {
		return nil, fmt.Errorf("apply template %q: %w", template, err)
	}
	if out.Len() > 0 && !bytes.HasSuffix(out.Bytes(), []byte("\n")) {
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}

// relaxed adds the braces that a template such as .nodes[0].name lacks.
func relaxed(template string) string {
	if template == "" || strings.Contains(template, "{") {
		return template
	}
	return "{." + strings.TrimPrefix(template, ".") + "}"
}

// Pods returns a filter for the pods that -l and namespace select.
func (l *Listing) Pods(ctx context.Context, api *access.Client, namespace string) (func(namespace, pod string) bool,
	error) {
	if l.Selector == "" {
		return func(ns, _ string) bool { return namespace == "" || ns == namespace }, nil
	}
	path := "/api/v1/pods"
	if namespace != "" {
		path = "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods"
	}
	type name struct{ Namespace, Name string }
	found := map[name]bool{}
	err := api.List(ctx, path, url.Values{"labelSelector": {l.Selector}}, func(raw json.RawMessage) error {
		var p struct{ Metadata name }
		err := json.Unmarshal(raw, &p)
		found[p.Metadata] = true
		return err //nolint:wrapcheck // List says what it did
	})
	return func(ns, pod string) bool { return found[name{ns, pod}] }, err //nolint:wrapcheck // it says what it did
}
