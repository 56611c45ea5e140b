// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
)

// event is the reason of events, and key one of Kerf's keys, each with what is said of it.
type event struct{ reason, program, doc string }

type key struct{ name, doc string }

var reason = regexp.MustCompile(`^[A-Z][a-z]*[A-Za-z]+$`)

// events are the reasons that are declared as constants. A reason that is written where an event is made is an error.
func (s *source) events() ([]event, error) {
	var out []event
	for _, c := range s.declared(func(c constant) bool {
		return (strings.HasPrefix(c.name, "reason") || strings.HasSuffix(c.name, "Reason")) &&
			reason.MatchString(s.text(c.pkg, c.value))
	}) {
		doc, ok := strings.CutPrefix(c.doc, c.name+" ")
		if !ok {
			return nil, fmt.Errorf("%s: the comment of %s does not begin with its name and whose event it is", c.file,
				c.name)
		}
		out = append(out, event{s.text(c.pkg, c.value), program(c.file), doc})
	}
	slices.SortFunc(out, func(a, b event) int { return strings.Compare(a.reason, b.reason) })
	// Which argument the reason is, by the method: kube's adapter and client-go's recorder.
	at := map[string]int{"Event": 2, "Eventf": 3}
	var errs []string
	for _, f := range s.files {
		ast.Inspect(f.tree, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if i, known := at[called(call)]; known && i < len(call.Args) {
					if lit, ok := call.Args[i].(*ast.BasicLit); ok && lit.Kind == token.STRING {
						errs = append(errs, lit.Value+" in "+f.path)
					}
				}
			}
			return true
		})
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("reasons of events that are no constant with a comment: %s", strings.Join(errs, ", "))
	}
	return out, nil
}

// keys are what is written in a pod's, a node's and a namespace's metadata and resources.
type keys struct{ resources, annotations, labels, taints []key }

var ours = regexp.MustCompile(`(?:[a-z-]+\.)?kerf\.dev/[a-z][a-z.-]*[a-z]`)

// keys are those declared, by what their constants are called: resource, key or annotation, label, taint.
func (s *source) keys() (keys, error) {
	var out keys
	// The API's version, the address of the schema, CDI kinds, and a label that examples of pools choose nodes by.
	known := map[string]bool{"kerf.dev/v": true, "kerf.dev/schemas": true, "kerf.dev/ask": true, "kerf.dev/guard": true,
		"kerf.dev/pool": true}
	for _, former := range formerKeys() {
		known[former] = true
	}
	for _, c := range s.declared(func(constant) bool { return true }) {
		value, name := s.text(c.pkg, c.value), strings.ToLower(c.name)
		switch {
		case c.pkg == "sharing" && strings.HasPrefix(c.name, "key"):
			known["kerf.dev/"+value], known[value+".kerf.dev/"] = true, true
			k, err := c.key(annotationOf(c.name, value))
			if err != nil {
				return out, err
			}
			out.annotations = append(out.annotations, k)
			continue
		case !strings.HasPrefix(value, "kerf.dev/"):
			continue
		}
		list := map[bool]*[]key{
			strings.HasPrefix(name, "resource"): &out.resources, strings.Contains(name, "annotation"): &out.annotations,
			strings.Contains(name, "label"): &out.labels, strings.Contains(name, "taint"): &out.taints,
		}[true]
		if list == nil {
			continue
		}
		known[strings.TrimSuffix(value, "-")] = true
		show := value
		if strings.HasSuffix(show, "-") {
			show += "PROFILE"
		}
		k, err := c.key("`" + show + "`")
		if err != nil {
			return out, err
		}
		*list = append(*list, k)
	}
	for _, list := range [][]key{out.resources, out.annotations, out.labels, out.taints} {
		slices.SortFunc(list, func(a, b key) int { return strings.Compare(a.name, b.name) })
	}
	return out, s.unknown(known)
}

// annotationOf is how a pod and a container write the key of an annotation. Some keys have one of the forms only.
func annotationOf(constant, value string) string {
	pod, container := "`kerf.dev/"+value+"` of a pod", "`"+value+".kerf.dev/CONTAINER` for one container"
	switch constant {
	case "keyScheduling", "keyShareCapWith":
		return container
	case "keyTranslatedFrom":
		return pod
	}
	return pod + ", " + container
}

// formerKeys are names of earlier versions: the agent removes these labels, and only the scheduler may set the
// annotation.
func formerKeys() []string {
	return []string{"kerf.dev/gpu.model", "kerf.dev/gpu.memory", "kerf.dev/level", "kerf.dev/driver",
		"kerf.dev/mig.capable", "placement.kerf.dev/"}
}

func (c constant) key(show string) (key, error) {
	if c.doc == "" {
		return key{}, fmt.Errorf("%s: %s has no comment", c.file, c.name)
	}
	for _, begin := range []string{c.name + ", ", c.name + " is ", c.name + " "} {
		if doc, ok := strings.CutPrefix(c.doc, begin); ok {
			return key{show, strings.TrimPrefix(doc, "is, ")}, nil
		}
	}
	return key{}, fmt.Errorf("%s: the comment of %s does not begin with its name", c.file, c.name)
}

// unknown is an error for keys that code or chart mention without a declaration.
func (s *source) unknown(known map[string]bool) error {
	var errs []string
	look := func(where, text string) {
		for _, k := range ours.FindAllString(text, -1) {
			prefix, rest, _ := strings.Cut(k, "kerf.dev/")
			switch {
			case known[k], prefix != "" && known[prefix+"kerf.dev/"], strings.HasPrefix(rest, "mig-"),
				known[strings.TrimRight(k, ".-")]:
			case prefix == "":
				errs = append(errs, k+" in "+where)
			}
		}
	}
	for _, f := range s.files {
		if strings.HasSuffix(f.pkg, "test") {
			continue // cases for tests of several packages
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			look(f.path, s.textOf(f, lit, ok))
			return true
		})
	}
	for name, text := range s.charts {
		look(name, text)
	}
	if len(errs) > 0 {
		slices.Sort(errs)
		return fmt.Errorf("keys that no constant with a comment declares: %s", strings.Join(slices.Compact(errs), ", "))
	}
	return nil
}
