// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/translate"
)

// driver is the DRA driver of Kerf.
const driver = "gpu." + sharing.Domain

// template is a ResourceClaimTemplate that is added to a file.
type template struct {
	namespace string
	claim     translate.Claim
}

func (t template) key() string { return t.namespace + "/" + t.claim.Name() }

// These are the parts of a ResourceClaimTemplate that the translation writes, in their order.
type (
	templateObject struct {
		APIVersion string       `json:"apiVersion" yaml:"apiVersion"`
		Kind       string       `json:"kind" yaml:"kind"`
		Metadata   templateMeta `json:"metadata" yaml:"metadata"`
		Spec       templateSpec `json:"spec" yaml:"spec"`
	}
	templateMeta struct {
		Name      string `json:"name" yaml:"name"`
		Namespace string `json:"namespace,omitempty" yaml:"namespace,omitempty"`
	}
	templateSpec struct {
		Spec claimSpec `json:"spec" yaml:"spec"`
	}
	claimSpec struct {
		Devices claimDevices `json:"devices" yaml:"devices"`
	}
	claimDevices struct {
		Requests    []claimRequest    `json:"requests" yaml:"requests"`
		Constraints []claimConstraint `json:"constraints,omitempty" yaml:"constraints,omitempty"`
		Config      []claimConfig     `json:"config,omitempty" yaml:"config,omitempty"`
	}
	claimRequest struct {
		Name    string       `json:"name" yaml:"name"`
		Exactly exactRequest `json:"exactly" yaml:"exactly"`
	}
	exactRequest struct {
		Class     string          `json:"deviceClassName" yaml:"deviceClassName"`
		Count     int             `json:"count,omitempty" yaml:"count,omitempty"`
		Selectors []claimSelector `json:"selectors,omitempty" yaml:"selectors,omitempty"`
		Capacity  *claimCapacity  `json:"capacity,omitempty" yaml:"capacity,omitempty"`
	}
	claimSelector struct {
		CEL claimExpression `json:"cel" yaml:"cel"`
	}
	claimExpression struct {
		Expression string `json:"expression" yaml:"expression"`
	}
	claimCapacity struct {
		Requests claimAmounts `json:"requests" yaml:"requests"`
	}
	claimAmounts struct {
		Memory  string `json:"memory" yaml:"memory"`
		Percent string `json:"percent,omitempty" yaml:"percent,omitempty"`
	}
	claimConstraint struct {
		Requests []string `json:"requests" yaml:"requests,flow"`
		Distinct string   `json:"distinctAttribute" yaml:"distinctAttribute"`
	}
	claimConfig struct {
		Requests []string    `json:"requests" yaml:"requests,flow"`
		Opaque   claimOpaque `json:"opaque" yaml:"opaque"`
	}
	claimOpaque struct {
		Driver     string          `json:"driver" yaml:"driver"`
		Parameters claimParameters `json:"parameters" yaml:"parameters"`
	}
	claimParameters struct {
		APIVersion string `json:"apiVersion" yaml:"apiVersion"`
		Kind       string `json:"kind" yaml:"kind"`
		Profile    string `json:"profile,omitempty" yaml:"profile,omitempty"`
		MinLevel   string `json:"minEnforcement,omitempty" yaml:"minEnforcement,omitempty"`
	}
)

// object is the template as an object of Kubernetes.
func (t template) object() templateObject {
	c := t.claim
	out := templateObject{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaimTemplate",
		Metadata: templateMeta{Name: c.Name(), Namespace: t.namespace}}
	r := exactRequest{Class: c.Class}
	d := &out.Spec.Spec.Devices
	if c.Count > 1 {
		r.Count = c.Count
	}
	for _, s := range c.Expressions() {
		r.Selectors = append(r.Selectors, claimSelector{claimExpression{s}})
	}
	if c.GiB > 0 {
		amounts := claimAmounts{Memory: fmt.Sprintf("%dGi", c.GiB)}
		if c.Percent > 0 {
			amounts.Percent = strconv.FormatUint(c.Percent, 10)
		}
		r.Capacity = &claimCapacity{amounts}
		if c.Count > 1 {
			d.Constraints = []claimConstraint{{[]string{claimName}, driver + "/uuid"}}
		}
	}
	d.Requests = []claimRequest{{claimName, r}}
	if c.Profile != "" || c.MinLevel != "" {
		d.Config = []claimConfig{{[]string{claimName}, claimOpaque{driver, claimParameters{driver + "/v1alpha1",
			"GPUParameters", c.Profile, c.MinLevel}}}}
	}
	return out
}

// withTemplates adds templates to a file: YAML documents, or items of a JSON list.
func withTemplates(data []byte, templates []template) ([]byte, error) {
	if len(templates) == 0 {
		return data, nil
	}
	if json.Valid(data) {
		return withItems(data, templates)
	}
	var b bytes.Buffer
	b.Write(data)
	if !bytes.HasSuffix(data, []byte("\n")) {
		b.WriteByte('\n')
	}
	open := bytes.HasSuffix(bytes.TrimRight(data, "\n"), []byte("\n---"))
	for _, t := range templates {
		if !open {
			b.WriteString("---\n")
		}
		open = false
		e := yaml.NewEncoder(&b)
		e.SetIndent(2)
		e.CompactSeqIndent()
		if err := e.Encode(t.object()); err != nil {
			return nil, fmt.Errorf("write template %s: %w", t.key(), err)
		}
	}
	return b.Bytes(), nil
}

// withItems adds templates to the items of a JSON list. It makes a list of another object.
func withItems(data []byte, templates []template) ([]byte, error) {
	var more bytes.Buffer
	for _, t := range templates {
		text, err := json.Marshal(t.object())
		if err != nil {
			return nil, fmt.Errorf("write template %s: %w", t.key(), err)
		}
		more.WriteString(", ")
		more.Write(text)
	}
	docs, err := decode(data)
	if err != nil {
		return nil, err
	}
	root := docs[0].Content[0]
	items := get(root, "items")
	if n := len(content(items)); n > 0 && scalar(get(root, "kind")) == "List" {
		end := newSource(data).end(items.Content[n-1], 0)
		return bytes.Join([][]byte{data[:end], more.Bytes(), data[end:]}, nil), nil
	}
	return fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "List", "items": [%s%s]}`+"\n", bytes.TrimSpace(data),
		more.Bytes()), nil
}
