// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package present

import (
	"bytes"
	"encoding/json"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// JSON renders v, indented for people, or in one line for streams, with a newline at the end.
func JSON(v any, indent bool) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if indent {
		e.SetIndent("", "  ")
	}
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode json: %w", err)
	}
	return b.Bytes(), nil
}

// YAML renders v with the names, the order and the nulls of its JSON.
func YAML(v any) ([]byte, error) {
	// JSON is YAML: its tree keeps order and names, and only its style changes.
	text, err := JSON(v, false)
	if err != nil {
		return nil, err
	}
	var tree yaml.Node
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("encode yaml: %w", err)
	}
	block(&tree)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(&tree); err != nil {
		return nil, fmt.Errorf("encode yaml: %w", err)
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("encode yaml: %w", err)
	}
	return b.Bytes(), nil
}

// block takes the JSON style off every node but strings, whose quotes keep them strings ("on", "1e3").
func block(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode {
		n.Style = 0
	}
	for i, c := range n.Content {
		// Keys are names of ours and need no quotes.
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			c.Style = 0
		}
		block(c)
	}
}
