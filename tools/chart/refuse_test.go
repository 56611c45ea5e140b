// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestBadValues: what cannot be meant is refused, and the message names where and what is wanted.
func TestBadValues(t *testing.T) {
	for name, c := range map[string]struct {
		values    string
		namespace string
		says      []string
	}{
		"an unknown key":       {values: "agents: {}", says: []string{"agents"}},
		"an unknown key below": {values: "scheduler: {replica: 2}", says: []string{"scheduler", "replica"}},
		"a word for a number": {values: "scheduler: {replicas: two}",
			says: []string{"/scheduler/replicas", "integer"}},
		"no scheduler": {values: "scheduler: {replicas: 0}",
			says: []string{"/scheduler/replicas", "minimum"}},
		"a unit no one has": {values: "scheduler: {placementTimeout: 5min}",
			says: []string{"/scheduler/placementTimeout"}},
		"a registry with a slash": {values: "image: {registry: registry.example/}",
			says: []string{"/image/registry"}},
		"a policy of pulling": {values: "image: {pullPolicy: Sometimes}",
			says: []string{"/image/pullPolicy", "IfNotPresent"}},
		"no pool":               {values: "pools: []", says: []string{"/pools", "minItems"}},
		"a pool without a name": {values: "pools: [{nodeSelector: {a: b}}]", says: []string{"/pools/0", "name"}},
		"a pool's name":         {values: "pools: [{name: A100}]", says: []string{"/pools/0/name"}},
		"a runtime no one has": {values: "poolDefaults: {containerRuntime: docker}",
			says: []string{"/poolDefaults/containerRuntime", "crio"}},
		"settings half managed": {values: "pools: [{name: a, gpuSettings: readOnly}]",
			says: []string{"/pools/0/gpuSettings", "read-only"}},
		"no surge by the chart": {values: "poolDefaults: {maxUnavailable: 0}",
			says: []string{"/poolDefaults/maxUnavailable"}},
		"a library of another name": {values: "poolDefaults: {driverLibrary: /usr/lib/libcuda.so}",
			says: []string{"/poolDefaults/driverLibrary"}},
		"an argument, no flag": {values: "pools: [{name: a, extraArgs: [group]}]",
			says: []string{"/pools/0/extraArgs/0"}},
		"a way to change pods": {values: "admission: {mutate: true}",
			says: []string{"/admission/mutate", "string"}},
		"Kerf kept from its paths": {values: "admission: {hostPathNamespaces: [storage]}",
			says: []string{"/admission/hostPathNamespaces"}},
		"a capability with CAP_": {values: "admission: {allowedCapabilities: [CAP_IPC_LOCK]}",
			says: []string{"/admission/allowedCapabilities/0"}},
		"all capabilities": {values: "admission: {allowedCapabilities: [ALL]}",
			says: []string{"/admission/allowedCapabilities/0"}},
		"the root folder": {values: "admission: {allowedHostPaths: [/]}",
			says: []string{"/admission/allowedHostPaths/0"}},
		"a path that goes back": {values: "admission: {allowedHostPaths: [/data/../etc]}",
			says: []string{"/admission/allowedHostPaths/0"}},
		"a relative path": {values: "admission: {allowedHostPaths: [data]}",
			says: []string{"/admission/allowedHostPaths/0"}},
		"two pools of one name": {
			values: "pools: [{name: a, nodeSelector: {k: a}}, {name: a, nodeSelector: {k: b}}]",
			says:   []string{`"a" is there twice`},
		},
		"two pools, one node": {
			values: "pools: [{name: a, nodeSelector: {k: a}}, {name: b, nodeSelector: {l: b}}]",
			says:   []string{`"a" and "b"`, "different values"},
		},
		"a config that is none":    {values: "sharingConfig: '{'", says: []string{"sharingConfig is no YAML"}},
		"a config of another kind": {values: "sharingConfig: 'kind: Config'", says: []string{"SharingConfig"}},
		"two profiles of one name": {
			values: "sharingConfig: '{kind: SharingConfig, spec: {profiles: [{name: a}, {name: a}]}}'",
			says:   []string{`the profile "a" is there twice`},
		},
		"another namespace": {values: "{}", namespace: "gpus", says: []string{"--namespace kerf-system",
			"gpus"}},
		"the same, and no scheduler": {values: "scheduler: {enabled: false}", namespace: "gpus",
			says: []string{"--namespace kerf-system"}},
	} {
		t.Run(name, func(t *testing.T) {
			set := values{}
			if err := yaml.Unmarshal([]byte(c.values), &set); err != nil {
				t.Fatal(err)
			}
			into := namespace
			if c.namespace != "" {
				into = c.namespace
			}
			_, err := render(filepath.Join(deploy, "chart"), into, set)
			if err == nil {
				t.Fatal("it is taken")
			}
			for _, part := range c.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("it says %q, and not %q", err, part)
				}
			}
		})
	}
}

// TestEveryValueIsDescribed: a key of values.yaml has a comment above it or above what it is part of, and a description
// in the schema.
func TestEveryValueIsDescribed(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(deploy, "chart/values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	key := regexp.MustCompile(`^( {0,2})([a-zA-Z]+):`)
	commented, inText := false, false
	keys := 0
	for i, line := range lines {
		if inText = inText && (line == "" || strings.HasPrefix(line, " ")); inText {
			continue
		}
		m := key.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		keys++
		inText = strings.HasSuffix(line, "|")
		above := i > 0 && strings.HasPrefix(strings.TrimSpace(lines[i-1]), "#")
		if m[1] == "" {
			commented = above
		}
		below := i+1 < len(lines) && strings.HasPrefix(strings.TrimSpace(lines[i+1]), "#")
		if !above && !below && (m[1] == "" || !commented && !everywhere(m[2])) {
			t.Errorf("values.yaml:%d: %s is not explained", i+1, m[2])
		}
	}
	if keys < 30 {
		t.Errorf("%d keys were found", keys)
	}
	schema := read(t, filepath.Join(deploy, "chart/values.schema.json"))
	describe(t, "", schema)
	shared, _ := schema["definitions"].(values)
	describe(t, "/definitions", values{"description": "shared by several values", "properties": shared})
}

// everywhere are keys that mean in every place what Kubernetes means by them.
func everywhere(key string) bool {
	return key == "resources" || key == "nodeSelector" || key == "tolerations"
}

func describe(t *testing.T, at string, schema values) {
	t.Helper()
	if d, _ := schema["description"].(string); d == "" {
		t.Errorf("values.schema.json: %s has no description", at)
	}
	properties, _ := schema["properties"].(values)
	for name, inner := range properties {
		if s, ok := inner.(values); ok && s["type"] != nil && name != "requests" && name != "limits" &&
			!strings.HasSuffix(at, "pullSecrets") {
			describe(t, at+"/"+name, s)
		}
	}
}
