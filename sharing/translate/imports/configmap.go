// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package imports

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/kerf-gpu/kerf/sharing/config"
)

// configLabel is the node label by which the GPU operator selects one config of a ConfigMap.
const configLabel = "nvidia.com/device-plugin.config"

// Text is one entry of a ConfigMap.
type Text struct{ Key, Data string }

// Texts are the entries of a ConfigMap, and false for anything else.
func Texts(data []byte) ([]Text, bool) {
	var root yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(data))
	if d.Decode(&root) != nil || len(root.Content) != 1 || !errors.Is(d.Decode(new(yaml.Node)), io.EOF) {
		return nil, false
	}
	var entries *yaml.Node
	isConfigMap := false
	top := root.Content[0]
	for i := 0; i+1 < len(top.Content) && top.Kind == yaml.MappingNode; i += 2 {
		switch value := top.Content[i+1]; top.Content[i].Value {
		case "kind":
			isConfigMap = value.Value == "ConfigMap"
		case "data":
			entries = value
		}
	}
	if !isConfigMap || entries == nil || entries.Kind != yaml.MappingNode {
		return nil, false
	}
	var out []Text
	for i := 0; i+1 < len(entries.Content); i += 2 {
		out = append(out, Text{entries.Content[i].Value, entries.Content[i+1].Value})
	}
	return out, true
}

// configMap reads each config of a ConfigMap. Several configs of NVIDIA's plugin are for nodes with a label.
func (r *reader) configMap(texts []Text) config.Spec {
	var configs []Text
	for _, t := range texts {
		var content map[string]any
		if yaml.Unmarshal([]byte(t.Data), &content) == nil && len(content) > 0 {
			configs = append(configs, t)
		} else {
			r.say("data.%s is left out: it has no config", t.Key)
		}
	}
	if len(configs) == 0 {
		r.bad(leaf{path: "data"}, "give the ConfigMap of a device plugin", "has no config")
	}
	var out config.Spec
	for _, t := range configs {
		one := &reader{}
		doc, err := one.read([]byte(t.Data))
		if err != nil {
			r.errs = append(r.errs, fmt.Errorf("data.%s: %w", t.Key, err))
			continue
		}
		if len(configs) > 1 && one.kind == kindNVIDIA {
			one.forNodes(t.Key, &doc)
		}
		for _, s := range one.said {
			r.say("data.%s: %s", t.Key, s)
		}
		out.Pools, out.Profiles = append(out.Pools, doc.Pools...), append(out.Profiles, doc.Profiles...)
	}
	return out
}

// forNodes makes the pool of a config apply to the nodes that select it.
func (r *reader) forNodes(key string, doc *config.Spec) {
	name := strings.Trim(strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, strings.ToLower(key)), "-")
	doc.Pools[0].Name = name
	doc.Pools[0].NodeSelector = map[string]string{configLabel: key}
	for i := range doc.Profiles {
		doc.Profiles[i].Name += "-" + name
	}
	r.say("pool %s is for nodes with the label %s=%s", name, configLabel, key)
}
