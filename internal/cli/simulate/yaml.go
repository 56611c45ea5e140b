// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing/allocator/cluster"
	"github.com/kerf-gpu/kerf/sharing/simulate"
)

// readScenario reads the one document of a file.
func readScenario(path string) (simulate.Scenario, error) {
	var scenario simulate.Scenario
	f, err := os.Open(path)
	if err != nil {
		return scenario, err
	}
	defer func() { _ = f.Close() }()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	switch err := d.Decode(&scenario); {
	case errors.Is(err, io.EOF):
		return scenario, fmt.Errorf("%s is empty: write machines and pods, as docs/operate/what-if.md shows", path)
	case err != nil:
		return scenario, fmt.Errorf("%s: %w", path, plainYAML(err))
	}
	if err := d.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return scenario, fmt.Errorf("%s: there is more than one document: write one, without ---", path)
	}
	return scenario, nil
}

// plainYAML says what is wrong with a file in the terms of its author, not in those of Go.
func plainYAML(err error) error {
	wrong, ok := errors.AsType[*yaml.TypeError](err)
	if !ok {
		return err
	}
	unknown := regexp.MustCompile(`^(line \d+): field (.+) not found in type simulate\.(\w+)$`)
	other := regexp.MustCompile("^(line \\d+): cannot unmarshal (?:(!!seq|!!map)|!!\\w+ `(.*)`) into (.+)$")
	var lines []string
	for _, line := range wrong.Errors {
		if m := unknown.FindStringSubmatch(line); m != nil {
			if m[2] == "apiVersion" || m[2] == "kind" {
				return errors.New(
					"this is a manifest of Kubernetes: write machines and pods, as docs/operate/what-if.md shows")
			}
			line = fmt.Sprintf("%s: %s has no field %q: it has %s", m[1], whatIs(m[3]), m[2],
				strings.Join(fieldsOf(m[3]), ", "))
		} else if m := other.FindStringSubmatch(line); m != nil {
			found := fmt.Sprintf("%q", m[3])
			switch m[2] {
			case "!!seq":
				found = "a list"
			case "!!map":
				found = "a mapping"
			}
			line = fmt.Sprintf("%s: %s stands where %s is wanted", m[1], found, wanted(m[4]))
		}
		lines = append(lines, line)
	}
	return errors.New(strings.Join(lines, "; "))
}

// parts are the types in a file by their names in Go.
func parts() map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for _, t := range []reflect.Type{
		reflect.TypeFor[simulate.Scenario](), reflect.TypeFor[simulate.Machine](), reflect.TypeFor[simulate.PodType](),
		reflect.TypeFor[simulate.Draw](), reflect.TypeFor[simulate.Times](),
	} {
		all[t.Name()] = t
	}
	return all
}

// whatIs is what people call it.
func whatIs(part string) string {
	switch part {
	case "Scenario":
		return "the file"
	case "Machine":
		return "a machine"
	case "PodType":
		return "a type of pod"
	case "Draw":
		return "draw"
	case "Times":
		return "a time"
	}
	return part
}

// fieldsOf are the names that a part can have.
func fieldsOf(part string) []string {
	t, known := parts()[part]
	if !known {
		return nil
	}
	var names []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// wanted is a type of Go, as people call it.
func wanted(kind string) string {
	part, ours := strings.CutPrefix(kind, "simulate.")
	switch {
	case kind == "int":
		return "a whole number"
	case kind == "float64":
		return "a number"
	case kind == "bool":
		return "true or false"
	case strings.HasPrefix(kind, "[]"):
		return "a list"
	case ours && part == "Scenario":
		return "a file with machines and pods"
	case ours:
		return whatIs(part) + " with its fields"
	}
	return "a " + kind
}

// Extension is what a program for experiments adds to the command.
type Extension interface {
	// Define defines more flags.
	Define(c *cobra.Command)
	// Check refuses flags that are wrong or do not go together, and a call that names no nodes and no pods.
	Check(o Options) error
	// Lists reads nodes and pods where Check accepted neither a YAML nor a cluster. The name is that of the results.
	Lists() (name string, nodes []cluster.Node, pods []simulate.Pod, err error)
	// Begin hears, before the first run, whether pods leave; it may refuse that.
	Begin(departures bool) error
	// Policies are the names of the policies that place the pods, and Policy is the one of a name. It knows the pods as
	// the usual workload; without pods it learns.
	Policies() []string
	Policy(name string, nodes []cluster.Node, pods []simulate.Pod, seed int64) (cluster.Policy, error)
	// Set says what else a run measures.
	Set(e *simulate.Experiment)
	// Done gets the results before they are printed.
	Done(results []simulate.Result) error
}

// plain adds nothing: pods are placed as kerf-scheduler does it.
func plain() Extension { return none{} }

type none struct{}

func (none) Define(*cobra.Command) {}
func (none) Check(o Options) error {
	if o.Workload == "" && !o.Live {
		return errors.New("--workload or --from-cluster is needed")
	}
	return nil
}
func (none) Lists() (string, []cluster.Node, []simulate.Pod, error) {
	return "", nil, nil, nil
}
func (none) Begin(bool) error   { return nil }
func (none) Policies() []string { return []string{"kerf"} }
func (none) Policy(_ string, nodes []cluster.Node, pods []simulate.Pod, _ int64) (cluster.Policy, error) {
	return simulate.NewKerf(nodes, pods), nil
}
func (none) Set(*simulate.Experiment)     {}
func (none) Done([]simulate.Result) error { return nil }
