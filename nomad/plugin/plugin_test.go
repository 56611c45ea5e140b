// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-version"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/structs"

	nodeapi "github.com/kerf-gpu/kerf/api/node/v1alpha1"
	"github.com/kerf-gpu/kerf/internal/nodeclient/fakenode"
)

const (
	// patience is how long a test waits for an event.
	patience = time.Minute
	gib      = 1 << 30
)

// served is a plugin as Nomad sees it: over gRPC.
func served(t *testing.T) device.DevicePlugin {
	t.Helper()
	p := New("v1.2.3", hclog.NewNullLogger())
	client, _ := goplugin.TestPluginGRPCConn(t, map[string]goplugin.Plugin{
		base.PluginTypeDevice: &device.PluginDevice{Impl: p}, base.PluginTypeBase: &base.PluginBase{Impl: p},
	})
	t.Cleanup(func() { _ = client.Close() }) // This also stops the server.
	raw, err := client.Dispense(base.PluginTypeDevice)
	if err != nil {
		t.Fatal(err)
	}
	return raw.(device.DevicePlugin)
}

// configure sends a config block to the plugin.
func configure(t *testing.T, p device.DevicePlugin, dir, interval string) error {
	t.Helper()
	var data []byte
	if err := base.MsgPackEncode(&data, config{RunDir: dir, Interval: interval}); err != nil {
		t.Fatal(err)
	}
	return p.SetConfig(&base.Config{ApiVersion: device.ApiVersion010, PluginConfig: data})
}

// next waits for a value.
func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v, ok := <-from:
		if !ok {
			t.Fatal("the stream ended")
		}
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	panic("not reached")
}

// folder is a short path for a socket.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kerf-nomad-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func node(health string) *nodeapi.GetNodeResponse {
	gpu := func(uuid string) *nodeapi.GPU {
		return &nodeapi.GPU{Uuid: uuid, Model: "L40S", Pci: "0000:01:00.0", CapacityBytes: new(uint64(3 * gib)),
			UsedBytes: new(uint64(gib)), Health: health, Levels: []string{"driver"}}
	}
	return &nodeapi.GetNodeResponse{Ready: true, DriverVersion: "615.1",
		Gpus: []*nodeapi.GPU{gpu("GPU-a"), gpu("GPU-b")}}
}

// startAgent starts an agent with two healthy GPUs.
func startAgent(t *testing.T, dir string) *fakenode.Server {
	t.Helper()
	agent := &fakenode.Server{}
	agent.Show(node("healthy"))
	agent.Start(t, dir)
	return agent
}

// watching is a plugin, and the stream of its devices.
func watching(t *testing.T, dir string) (device.DevicePlugin, <-chan *device.FingerprintResponse) {
	t.Helper()
	p := served(t)
	if err := configure(t, p, dir, "100ms"); err != nil {
		t.Fatal(err)
	}
	changes, err := p.Fingerprint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p, changes
}

// wantHealth requires two groups of three devices, with that problem.
func wantHealth(t *testing.T, r *device.FingerprintResponse, problem string) {
	t.Helper()
	if r.Error != nil || len(r.Devices) != 2 {
		t.Fatalf("%+v", r)
	}
	for _, g := range r.Devices {
		if health := *g.Attributes["health"].String; (health == "healthy") != (problem == "") ||
			!strings.Contains(health, problem) {
			t.Errorf("attribute health is %q, want problem %q", health, problem)
		}
		if err := g.Validate(); err != nil || g.Vendor != "kerf" || g.Type != "gpu" || len(g.Devices) != 3 {
			t.Errorf("%+v: %v", g, err)
		}
		for _, d := range g.Devices {
			if d.Healthy != (problem == "") || (problem == "") != (d.HealthDesc == "") ||
				!strings.Contains(d.HealthDesc, problem) {
				t.Errorf("device %+v, want problem %q", d, problem)
			}
		}
	}
}

// TestPlugin follows an agent that changes, stops and comes back.
func TestPlugin(t *testing.T) {
	dir := folder(t)
	agent := startAgent(t, dir)
	p, changes := watching(t, dir)
	first := next(t, changes)
	wantHealth(t, first, "")
	want := map[string]*structs.Attribute{"uuid": structs.NewStringAttribute("GPU-b"),
		"model": structs.NewStringAttribute("L40S"), "memory": structs.NewIntAttribute(3, "GiB"),
		"driver_version": structs.NewStringAttribute("615.1"), "health": structs.NewStringAttribute("healthy")}
	second := first.Devices[1]
	if d := cmp.Diff(want, second.Attributes); d != "" || second.Devices[0].HwLocality.PciBusID != "0000:01:00.0" {
		t.Errorf("-want +got:\n%s\n%+v", d, second.Devices[0])
	}
	agent.Show(node("unhealthy"))
	wantHealth(t, next(t, changes), "the GPU is unhealthy")
	agent.Show(node("healthy"))
	wantHealth(t, next(t, changes), "")
	agent.Kill()
	for r := next(t, changes); ; r = next(t, changes) { // The first reason may be the end of the connection.
		wantHealth(t, r, "agent")
		if strings.Contains(r.Devices[0].Devices[0].HealthDesc, "does not listen") ||
			strings.Contains(r.Devices[0].Devices[0].HealthDesc, "restart") {
			break
		}
	}
	if r, err := p.Reserve([]string{"GPU-a:0", "GPU-a:2"}); err != nil || r.Envs["KERF_NOMAD_GPU"] != "GPU-a" ||
		r.Envs["KERF_NOMAD_MEMORY"] != "2GiB" || len(r.Envs) != 2 || len(r.Devices)+len(r.Mounts) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	startAgent(t, dir)
	wantHealth(t, next(t, changes), "")
}

// TestNoAgentYet: until an agent has reported GPUs, the plugin knows no devices, and says so at once.
func TestNoAgentYet(t *testing.T) {
	dir := folder(t)
	_, changes := watching(t, dir)
	if r := next(t, changes); r.Error != nil || len(r.Devices) != 0 {
		t.Errorf("%+v", r)
	}
	startAgent(t, dir)
	wantHealth(t, next(t, changes), "")
}

// TestReserveRejects: the reason reaches Nomad without the text of the sentinel error.
func TestReserveRejects(t *testing.T) {
	_, err := served(t).Reserve([]string{"GPU-a:0"})
	if err == nil || !strings.HasSuffix(err.Error(), `the agent reported no GPU with UUID "GPU-a"`) {
		t.Errorf("%v", err)
	}
}

// TestStats: all devices of a GPU have its used memory, which is unknown while no agent answers.
func TestStats(t *testing.T) {
	dir := folder(t)
	agent := startAgent(t, dir)
	p, changes := watching(t, dir)
	next(t, changes)
	stats, err := p.Stats(t.Context(), 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	r := next(t, stats)
	if r.Error != nil || len(r.Groups) != 2 || r.Groups[1].Name != "GPU-b" || len(r.Groups[1].InstanceStats) != 3 {
		t.Fatalf("%+v", r)
	}
	one := r.Groups[1].InstanceStats["GPU-b:2"]
	if v := one.Summary; *v.IntNumeratorVal != 1024 || *v.IntDenominatorVal != 3072 || v.Unit != "MiB" ||
		one.Stats.Attributes["memory"] == nil || time.Since(one.Timestamp) > patience {
		t.Errorf("%+v", one)
	}
	agent.Kill()
	next(t, changes)
	for { // One or two more may be of before.
		v := next(t, stats).Groups[0].InstanceStats["GPU-a:0"].Summary
		if v.StringVal != nil && *v.StringVal == "unknown" && v.IntNumeratorVal == nil {
			return
		}
	}
}

// TestConfig: bad values are rejected, with the field.
func TestConfig(t *testing.T) {
	for name, tt := range map[string]struct{ dir, interval, says string }{
		"good":             {"/run/kerf", "10s", ""},
		"shortest":         {"/run/kerf", "100ms", ""},
		"longest":          {"/run/kerf", "1m", ""},
		"too short":        {"/run/kerf", "99ms", "interval"},
		"too long":         {"/run/kerf", "61s", "interval"},
		"no time":          {"/run/kerf", "10", "interval"},
		"no interval":      {"/run/kerf", "", "interval"},
		"relative run_dir": {"kerf", "10s", "run_dir"},
	} {
		if err := configure(t, served(t), tt.dir, tt.interval); (err == nil) != (tt.says == "") ||
			err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := served(t).SetConfig(&base.Config{PluginConfig: []byte{0xc1}}); err == nil {
		t.Error("a config that is not MessagePack is accepted")
	}
	p := served(t)
	changes, err := p.Fingerprint(t.Context())
	if err == nil {
		err = next(t, changes).Error
	}
	if err == nil || !strings.Contains(err.Error(), "no config") {
		t.Errorf("without a config: %v", err)
	}
	if s, err := p.ConfigSchema(); err != nil || len(s.GetObject().GetAttributes()) != 2 {
		t.Errorf("%v, %v", s, err)
	}
}

// TestVersion: Nomad gets a version that it can parse from each kind of build.
func TestVersion(t *testing.T) {
	info, err := served(t).PluginInfo()
	if err != nil || info.PluginVersion != "v1.2.3" || info.Name != "kerf-nomad" || info.Type != "device" {
		t.Errorf("%+v, %v", info, err)
	}
	for in, want := range map[string]string{
		"v0.1.0": "v0.1.0", "v0.1.0-rc.1": "v0.1.0-rc.1", "v0.1.0-3-gabc123-dirty": "v0.1.0-3-gabc123-dirty",
		"dev": "v0.0.0+dev.dev", "d0efe37-dirty": "v0.0.0+dev.d0efe37.dirty", "": "v0.0.0+dev",
	} {
		got := semantic(in)
		if _, err := version.NewVersion(got); err != nil || got != want {
			t.Errorf("%q: %q, want %q: %v", in, got, want, err)
		}
	}
}
