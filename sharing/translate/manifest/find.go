// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// pod is a pod, a template of one, or another mapping whose containers have resources.
type pod struct {
	in object
	// meta are mappings that can have annotations for the pod. New ones go to the first, at the path in it.
	meta []*yaml.Node
	path []string
	// node is the pod or its template, which the walk found. Its spec is nil if it is not one of Kubernetes.
	node, spec *yaml.Node
	containers []container
	// listed is true if the containers are in a list, as in each pod of Kubernetes.
	listed bool
}

// container is one container of a pod.
type container struct {
	name string
	init bool
	node *yaml.Node
	// resources is the key of its requests and limits.
	resources string
}

// walk finds and translates the requests of a file.
type walk struct {
	options Options
	result  Result
	edits   *edits
	errs    []error
	seen    map[*yaml.Node]bool
	// taken are the specs and containers that belong to a pod.
	taken map[*yaml.Node]bool
	// shared has the change of each mapping that containers request GPUs in, as text.
	shared map[*yaml.Node]string
	// changed are the objects with a translated request.
	changed []object
	// gpus has the number of GPUs of each pod that requests shares now, by its node.
	gpus map[*yaml.Node]int
	// templates are the ResourceClaimTemplates that the result has in addition.
	templates []template
	// excused are environment variables of containers that request a GPU of Kerf.
	excused map[*yaml.Node]bool
}

func newWalk(o Options) *walk {
	return &walk{options: o, edits: newEdits(), seen: map[*yaml.Node]bool{}, taken: map[*yaml.Node]bool{},
		shared: map[*yaml.Node]string{}, gpus: map[*yaml.Node]int{}, excused: map[*yaml.Node]bool{}}
}

func (w *walk) node(n *yaml.Node, in object, depth int) {
	n = deref(n)
	if n == nil || w.seen[n] || depth > deepest {
		return
	}
	w.seen[n] = true
	if isMapping(n) {
		in = objectOf(n, in)
		if !unrelated(in, w.options.Namespace) {
			w.mapping(n, in)
		}
	}
	for i, c := range n.Content {
		if isMapping(n) && i%2 == 1 {
			w.edits.parents[c] = entry{n, n.Content[i-1], c}
			if n == in.node && n.Content[i-1].Value == "status" {
				continue
			}
		}
		w.node(c, in, depth+1)
	}
	if isMapping(n) {
		w.ray(n, in)
	}
}

// unrelated is true for objects of other namespaces, and for those whose GPU words are no requests.
func unrelated(in object, namespace string) bool {
	switch in.kind {
	case "CustomResourceDefinition":
		return true
	case "Node":
		return in.api == "v1"
	case "NodePool", "NodeClaim", "Provisioner":
		return strings.HasPrefix(in.api, "karpenter.")
	case "ClusterPolicy":
		return strings.HasPrefix(in.api, "nvidia.com/") // of the GPU operator, and not of Kyverno
	}
	return namespace != "" && in.namespace != "" && in.namespace != namespace
}

// mapping translates what one mapping requests itself.
func (w *walk) mapping(n *yaml.Node, in object) {
	spec := get(n, "spec")
	if p := podOf(spec, in); spec != nil && len(p.containers) > 0 {
		w.taken[spec] = true
		p.node, p.meta, p.path = n, []*yaml.Node{get(n, "metadata")}, []string{"metadata", "annotations"}
		p.spec = spec
		if strings.HasSuffix(in.kind, "ServingRuntime") { // KServe's runtimes have the pod's annotations in the spec
			p.node, p.meta, p.path, p.spec = spec, []*yaml.Node{spec}, []string{"annotations"}, nil
		}
		w.pod(p)
	}
	p := podOf(n, in)
	if len(p.containers) == 0 && hasResources(n) && !w.taken[n] {
		p.containers = []container{containerOf(n, "main", in)}
	}
	if len(p.containers) > 0 && !w.taken[n] {
		p.node = n
		switch {
		case get(n, "container") != nil, get(n, "script") != nil, get(n, "containerSet") != nil, get(n, "steps") != nil:
			p.meta, p.path = []*yaml.Node{get(n, "metadata")}, []string{"metadata", "annotations"}
		case in.kind == "InferenceService":
			if up := w.edits.parents[n]; up.key != nil && up.key.Value == "workerSpec" {
				p.node = up.owner // KServe gives the workers the annotations of their predictor
			}
			p.meta, p.path = []*yaml.Node{p.node, get(in.node, "metadata")}, []string{"annotations"}
		}
		w.pod(p)
	}
	w.amount(n, in)
	w.spark(n, in)
	w.quota(n, in)
}

// podOf has the containers of a mapping.
func podOf(spec *yaml.Node, in object) pod {
	p := pod{in: in}
	for _, e := range entries(spec) {
		key := e.key.Value
		switch {
		case key == "containerSet":
			inner := podOf(e.value, in)
			p.containers, p.listed = append(p.containers, inner.containers...), p.listed || inner.listed
		case key == "containers" || key == "initContainers" || key == "sidecars" || key == "steps":
			for _, item := range list(e.value) {
				if isMapping(item) {
					p.listed = true
					p.containers = append(p.containers, containerOf(item, key, in))
				}
			}
		case isMapping(e.value) && (key == "container" || key == "script" || hasResources(e.value) ||
			in.kind == "InferenceService" && hasModel(e.value)):
			p.containers = append(p.containers, containerOf(e.value, key, in))
		}
	}
	return p
}

func containerOf(n *yaml.Node, key string, in object) container {
	c := container{name: scalar(get(n, "name")), init: key == "initContainers", node: n, resources: "resources"}
	for _, other := range resourceKeys()[1:] {
		if isMapping(get(n, other)) {
			c.resources = other
		}
	}
	switch {
	case key == "steps":
		c.name = "step-" + c.name
	case key == "container" || key == "script": // Argo
		c.name = "main"
	case c.name == "" && in.kind == "InferenceService":
		c.name = "kserve-container"
	case c.name == "":
		c.name = key
	}
	return c
}

// resourceKeys are the keys of limits and requests: those of most objects, of Tekton, and of Kubeflow's TrainJob.
func resourceKeys() []string { return []string{"resources", "computeResources", "resourcesPerNode"} }

// hasModel is true for KServe's model and its older forms, whose runtime has a container.
func hasModel(n *yaml.Node) bool {
	return get(n, "modelFormat") != nil || get(n, "storageUri") != nil
}

func hasResources(n *yaml.Node) bool {
	for _, key := range resourceKeys() {
		if r := get(n, key); isMapping(get(r, "limits")) || isMapping(get(r, "requests")) {
			return true
		}
	}
	return false
}
