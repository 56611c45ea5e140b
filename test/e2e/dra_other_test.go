// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"testing"
)

// A GPU that another DRA driver has prepared for a pod takes no claims, and is free once the claim is unprepared. The
// CDI spec is like that of NVIDIA's driver.
func TestDRAOtherDriver(t *testing.T) {
	e := beginWithDRA(t)
	gpu := e.node.gpus(t)[0]
	path := e.node.path("/run/cdi/k8s.gpu.nvidia.com-claim_e2e.yaml")
	spec := fmt.Sprintf("cdiVersion: 0.6.0\nkind: k8s.gpu.nvidia.com/claim\ndevices:\n- name: e2e-gpu-0\n"+
		"  containerEdits:\n    env: [NVIDIA_VISIBLE_DEVICES=%s]\n", gpu.UUID)
	if err := os.WriteFile(path, []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	eventually(e, "the taint of the GPU", func() error {
		devices, err := e.devicesOfNode()
		for _, d := range devices {
			if v := d.Attributes["uuid"].StringValue; v != nil && *v == gpu.UUID && len(d.Taints) == 1 &&
				d.Taints[0].Key == "gpu.kerf.dev/cordoned" {
				return nil
			}
		}
		return errors.Join(errors.New("it has none"), err)
	})
	e.template("small", "10Gi", gpu.UUID)
	waits := e.create(byClaim("waits", "small", hold))
	waits.unplaced()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	waits.running()
	e.wantHeld(waits, "main", share(10*gib, 0))
}
