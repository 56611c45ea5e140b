// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// gpuNode is the status of a GPUNode as this suite reads it.
type gpuNode struct {
	Conditions                                     []struct{ Type, Status, Message string }
	DriverVersion, AgentVersion, Pool, Fingerprint string
	GPUs                                           []struct {
		UUID, Health                                          string
		NVLinkClique                                          *int
		AllocatableBytes, FreeBytes, GrantedBytes, BurstBytes uint64
		Levels                                                []string
		MIGState                                              *struct {
			PendingReason string
			Instances     []struct {
				Profile, Grant, RequestedBy string
				Start                       int
				Ready                       bool
			}
		}
	}
	Grants      []nodeGrant
	PendingPods []struct{ PodUID string }
}

type nodeGrant struct {
	PodUID, Namespace, Pod, Container, Level string
	State                                    string
	Shares                                   []struct {
		GPU         string
		MemoryBytes uint64
	}
}

func (s gpuNode) ready() bool {
	return slices.ContainsFunc(s.Conditions, func(c struct{ Type, Status, Message string }) bool {
		return c.Type == "Ready" && c.Status == "True"
	})
}

func (e *testCase) gpuNode() (s gpuNode, err error) {
	var o struct{ Status gpuNode }
	r := e.kubectl("", "get", "gpunode", e.node.env["NODE_NAME"], "-o", "json")
	if r.err != nil {
		return s, fmt.Errorf("kubectl get gpunode: %v", r)
	}
	err = json.Unmarshal([]byte(r.out), &o)
	return o.Status, err
}

// The node's GPUNode says what is there and who holds what, soon after it has changed; its Lease is renewed; and an
// agent of another node can write neither.
func TestGPUNode(t *testing.T) {
	e := beginWithAgent(t)
	name := e.node.env["NODE_NAME"]
	p := e.create(podSpec{name: "informed", containers: []container{
		{name: "main", run: hold, limits: gibs(8)}, {name: "side", run: hold, limits: percent(5)},
	}})
	p.running()
	object, err := p.fetch()
	if err != nil {
		t.Fatal(err)
	}
	uid := string(object.UID)
	eventually(e, "its grants in the GPUNode", func() error {
		s, err := e.gpuNode()
		if err != nil {
			return err
		}
		var main *nodeGrant
		mine := 0
		for i, c := range s.Grants {
			if c.PodUID == uid {
				mine++
			}
			if c.PodUID == uid && c.Container == "main" {
				main = &s.Grants[i]
			}
		}
		switch {
		case !s.ready() || s.DriverVersion == "" || s.AgentVersion == "" || s.Pool != "default" || s.Fingerprint == "":
			return fmt.Errorf("conditions %v, driver %q, agent %q, pool %q, fingerprint %q", s.Conditions,
				s.DriverVersion, s.AgentVersion, s.Pool, s.Fingerprint)
		case mine != 2 || main == nil:
			return fmt.Errorf("%d grants of the pod: %+v", mine, s.Grants)
		case main.Namespace != e.namespace || main.Pod != p.name || main.State != "Active" || main.Level != "driver" ||
			len(main.Shares) != 1 || main.Shares[0].MemoryBytes != 8*gib:
			return fmt.Errorf("its grant: %+v", main)
		}
		on := 0
		for on < len(s.GPUs)-1 && s.GPUs[on].UUID != main.Shares[0].GPU {
			on++
		}
		if g := s.GPUs[on]; g.UUID != main.Shares[0].GPU || g.GrantedBytes < 8*gib || g.FreeBytes+g.GrantedBytes+
			g.BurstBytes != g.AllocatableBytes || g.Health != "healthy" || !slices.Contains(g.Levels, "driver") ||
			g.NVLinkClique == nil {
			return fmt.Errorf("its GPU: %+v", g)
		}
		return nil
	})
	if out := e.kubectl("", "get", "gpunodes").out; !strings.Contains(out, "LARGEST") || !strings.Contains(out, name) ||
		!strings.Contains(out, "driver") {
		t.Errorf("kubectl get gpunodes:\n%s", out)
	}
	lease, err := e.client.CoordinationV1().Leases("kerf-system").Get(background(), "kerf-node-"+name,
		metav1.GetOptions{})
	if err != nil || lease.Spec.RenewTime == nil || time.Since(lease.Spec.RenewTime.Time) > time.Minute {
		t.Errorf("heartbeat %+v: %v", lease.Spec, err)
	}

	for who, tc := range map[string]struct {
		nodes []string
		path  string
		body  string
		want  string
	}{
		"another node's GPUNode": {
			[]string{"node-2"}, "/apis/kerf.dev/v1alpha1/gpunodes/" + name + "/status",
			`{"apiVersion":"kerf.dev/v1alpha1","kind":"GPUNode","metadata":{"name":"` + name +
				`"},"status":{"ready":false}}`, "of its own node alone",
		},
		"a new GPUNode of another name": {
			[]string{name}, "/apis/kerf.dev/v1alpha1/gpunodes/node-2",
			`{"apiVersion":"kerf.dev/v1alpha1","kind":"GPUNode","metadata":{"name":"node-2"}}`, "of its own node alone",
		},
		"what an administrator decides": {
			[]string{name}, "/apis/kerf.dev/v1alpha1/gpunodes/" + name,
			`{"apiVersion":"kerf.dev/v1alpha1","kind":"GPUNode","metadata":{"name":"` + name +
				`"},"spec":{"driverDrain":{"reason":"x","by":"x","since":"2026-01-01T00:00:00Z"}}}`,
			"may not change the spec of a GPUNode",
		},
		"its own GPUNode": {
			[]string{name}, "/apis/kerf.dev/v1alpha1/gpunodes/" + name,
			`{"apiVersion":"kerf.dev/v1alpha1","kind":"GPUNode","metadata":{"name":"` + name + `"}}`, "",
		},
		"another node's Lease": {
			[]string{"node-2"}, "/apis/coordination.k8s.io/v1/namespaces/kerf-system/leases/kerf-node-" + name,
			`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"kerf-node-` + name +
				`"},"spec":{"holderIdentity":"x"}}`, "of its own node alone",
		},
		"its own": {
			[]string{name}, "/apis/coordination.k8s.io/v1/namespaces/kerf-system/leases/kerf-node-" + name,
			`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"kerf-node-` + name +
				`"},"spec":{"holderIdentity":"` + name + `"}}`, "",
		},
	} {
		err := e.asAgent(tc.nodes...).CoreV1().RESTClient().Patch(types.ApplyPatchType).AbsPath(tc.path).
			Param("fieldManager", "kerf-agent").Param("force", "true").Param("dryRun", "All").Body([]byte(tc.body)).Do(
			background()).Error()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", who, err, tc.want)
		}
	}

	p.delete()
	p.released()
	eventually(e, "no grant of the pod in the GPUNode", func() error {
		s, err := e.gpuNode()
		if err == nil && slices.ContainsFunc(s.Grants, func(c nodeGrant) bool { return c.PodUID == uid }) {
			err = fmt.Errorf("grants %+v", s.Grants)
		}
		return err
	})
}
