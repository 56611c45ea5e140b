// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package imports_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/translate/imports"
)

func TestParse(t *testing.T) {
	t.Parallel()
	libkerf := []sharing.Backend{sharing.BackendDriver, sharing.BackendLibkerf, sharing.BackendReactive}
	mps := []sharing.Backend{sharing.BackendDriver, sharing.BackendMPS, sharing.BackendReactive}
	node := func(name string, mode config.Mode, backends []sharing.Backend) config.Pool {
		return config.Pool{Name: "node-" + name, NodeSelector: map[string]string{"kubernetes.io/hostname": name},
			Mode: mode, Backends: backends}
	}
	filtered := func(p config.Pool) config.Pool {
		p.MaxSharesPerGPU = 10
		leave := config.GPUSettings{Excluded: true}
		p.GPURules = []config.GPURule{{UUIDs: []sharing.GPUID{"GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f"},
			Settings: leave},
			{Indexes: []int{0, 3}, Settings: leave}}
		return p
	}
	for name, tt := range map[string]struct {
		in   string
		want config.Spec
		said []string
	}{
		"NVIDIA's defaults": {"version: v1\nflags: {migStrategy: none, failOnInitError: true, plugin: " +
			"{deviceListStrategy: envvar, deviceIDStrategy: uuid}}\n",
			config.Spec{Pools: []config.Pool{{Name: "gpus", Mode: config.ModeWhole}}}, nil},
		"time-slicing": {"version: v1\nflags: {plugin: {sharedDevicesAllocationPolicy: packed, deviceListStrategy: " +
			"[envvar, cdi-cri]}}\nsharing:\n  timeSlicing:\n    renameByDefault: true\n    " +
			"failRequestsGreaterThanOne: true\n    resources:\n    - {name: nvidia.com/gpu, replicas: 3, devices: " +
			"[0]}\n",
			config.Spec{Pools: []config.Pool{{Name: "gpus", Mode: config.ModeShared, Place: sharing.PlacePack,
				Backends: libkerf}}, Profiles: []config.Profile{{Name: imports.ReplicaProfile, Percent: 33}}},
			[]string{"renameByDefault", "failRequestsGreaterThanOne", "deviceListStrategy[]", "devices[]",
				"one of 3 replicas is 33 percent"}},
		"MPS": {"version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 10, devices: all}]}}\n",
			config.Spec{Pools: []config.Pool{{Name: "gpus", Mode: config.ModeShared, Backends: mps}},
				Profiles: []config.Profile{{Name: imports.ReplicaProfile, Percent: 10}}}, []string{"10 percent"}},
		"MIG": {"version: v1\nflags: {migStrategy: mixed}\nimex: {channelIDs: [], required: false}\n",
			config.Spec{Pools: []config.Pool{{Name: "gpus", Mode: config.ModeAuto}}}, []string{"kerf mig import"}},
		"MIG alone": {"version: v1\nflags: {migStrategy: single}\n",
			config.Spec{Pools: []config.Pool{{Name: "gpus", Mode: config.ModeMIG}}}, []string{"into MIG mode"}},
		"HAMi's devices": {"nvidia:\n  resourceCountName: nvidia.com/gpu\n  deviceSplitCount: 10\n  " +
			"deviceMemoryScaling: 1\n  gpuCorePolicy: force\n  knownMigGeometries: [{models: [A100], " +
			"allowedGeometries: [[{name: 1g.5gb, count: 7}]]}]\ncambricon: {resourceCountName: cambricon.com/vmlu}\n",
			config.Spec{Pools: []config.Pool{{Name: "gpus", Backends: libkerf, ComputePolicy: config.ComputeStrict,
				MaxSharesPerGPU: 10}}}, []string{"cambricon is left out", "come from its driver"}},
		"HAMi's scaling": {"nvidia: {deviceMemoryScaling: 1.80, deviceCoreScaling: 2}\n",
			config.Spec{Pools: []config.Pool{{Name: "gpus", Backends: libkerf,
				Overcommit: sharing.Overcommit{Memory: 180, Compute: 200}}}}, []string{"nothing is swapped"}},
		"HAMi's nodes' scaling": {`{"nodeconfig":[{"name":"a","devicememoryscaling":1.0,"devicecorescaling":1.5}]}`,
			config.Spec{Pools: []config.Pool{
				{Name: "node-a", NodeSelector: map[string]string{"kubernetes.io/hostname": "a"},
					Mode: config.ModeShared, Backends: libkerf, Overcommit: sharing.Overcommit{Compute: 150}}}}, nil},
		"HAMi's nodes": {
			`{"nodeconfig":[{"name":"a","operatingmode":"hami-core","devicesplitcount":10,"filterdevices":{"uuid":["GPU-8f6d1c2a-0b1e-4c55-9d3f-2a7b6c5d4e3f"],"index":[0,3]}},{"name":"b.example","operatingmode":"mig"},{"name":"c","operatingmode":"mps"}]}`,
			config.Spec{Pools: []config.Pool{filtered(node("a", config.ModeShared, libkerf)),
				{Name: "node-b-example", NodeSelector: map[string]string{"kubernetes.io/hostname": "b.example"},
					Mode: config.ModeMIG, Backends: libkerf}, node("c", config.ModeShared, mps)}}, nil},
		"HAMi 2.10's devices": {"nvidia: {resourceCountName: nvidia.com/gpu, overwriteEnv: false, defaultMemory: 0, " +
			"preConfiguredDeviceMemory: 0, memoryFactor: 1, deviceSplitCount: 10, deviceMemoryScaling: 1, " +
			"deviceCoreScaling: 1, enableNumaTopology: false, gpuCorePolicy: default, libCudaLogLevel: 1, " +
			"runtimeClassName: '', migProfileAllowlist: [{models: [A30], profiles: [1g.6gb]}]}\n",
			config.Spec{Pools: []config.Pool{{Name: "gpus", Backends: libkerf, MaxSharesPerGPU: 10}}},
			[]string{"overwriteEnv", "libCudaLogLevel"}},
		"HAMi 2.8's devices": {"nvidia: {preConfiguredDeviceMemory: 0, memoryFactor: 1, deviceSplitCount: 10, " +
			"knownMigGeometries: [{models: [A30], allowedGeometries: [[{name: 1g.6gb, count: 4}]]}]}\n",
			config.Spec{Pools: []config.Pool{{Name: "gpus", Backends: libkerf, MaxSharesPerGPU: 10}}},
			[]string{"come from its driver"}},
		"HAMi's factor": {"nvidia: {memoryFactor: 1024, enableNumaTopology: true}\n",
			config.Spec{Pools: []config.Pool{{Name: "gpus", Backends: libkerf}}},
			[]string{"memoryFactor 1024 is left out: pods request GiB", "topology manager"}},
		"HAMi 2.10's nodes": {`{"nodeconfig":[{"name":"a","operatingmode":"hami-core","devicememoryscaling":1,` +
			`"preconfigureddevicememory":0,"enablenumatopology":false,"migstrategy":"none",` +
			`"filterdevices":{"uuid":[],"index":[]},"enablegetpreferredallocation":false}]}`,
			config.Spec{Pools: []config.Pool{node("a", config.ModeShared, libkerf)}}, nil},
		"Volcano's devices": {"nvidia: {resourceCountName: volcano.sh/vgpu-number, resourceMemoryName: " +
			"volcano.sh/vgpu-memory, resourceMemoryPercentageName: volcano.sh/vgpu-memory-percentage, " +
			"resourceCoreName: volcano.sh/vgpu-cores, deviceSplitCount: 10, gpuMemoryFactor: 1}\n",
			config.Spec{Pools: []config.Pool{{Name: "gpus", Backends: libkerf, MaxSharesPerGPU: 10}}}, nil},
		"a ConfigMap of HAMi": {"kind: ConfigMap\ndata:\n  device-config.yaml: |-\n    nvidia:\n      " +
			"deviceSplitCount: 10\n  ld.so.preload: |\n    /usr/local/vgpu/libvgpu.so\n",
			config.Spec{Pools: []config.Pool{{Name: "gpus", Backends: libkerf, MaxSharesPerGPU: 10}}},
			[]string{"data.ld.so.preload is left out: it has no config"}},
		"HAMi's ConfigMap with each default": {"kind: ConfigMap\nmetadata: {name: d, namespace: n}\ndata:\n  " +
			"device-config.yaml: |\n    nvidia: {resourceCountName: nvidia.com/gpu, resourceMemoryName: " +
			"nvidia.com/gpumem, resourceMemoryPercentageName: nvidia.com/gpumem-percentage, resourceCoreName: " +
			"nvidia.com/gpucores, resourcePriorityName: nvidia.com/priority, overwriteEnv: false, defaultMemory: 0, " +
			"defaultCores: 0, defaultGPUNum: 1, preConfiguredDeviceMemory: 0, memoryFactor: 1, deviceSplitCount: 10, " +
			"deviceMemoryScaling: 1, deviceCoreScaling: 1, gpuCorePolicy: default, libCudaLogLevel: 1, " +
			"runtimeClassName: ''}\n    iluvatars: [{chipName: MR-V100}]\n    vnpus: {hamiVnpuCore: false}\n",
			config.Spec{Pools: []config.Pool{{Name: "gpus", Backends: libkerf, MaxSharesPerGPU: 10}}},
			[]string{"iluvatars is left out", "vnpus is left out"}},
		"a ConfigMap of HAMi's nodes": {"kind: ConfigMap\ndata:\n  config.json: |\n    {\"nodeconfig\": " +
			"[{\"name\": \"a\", \"operatingmode\": \"hami-core\", \"devicememoryscaling\": 1, " +
			"\"devicecorescaling\": 1}]}\n",
			config.Spec{Pools: []config.Pool{node("a", config.ModeShared, libkerf)}}, nil},
		"a ConfigMap of the GPU operator": {"kind: ConfigMap\ndata:\n  A100.40gb: |-\n    version: v1\n    sharing: " +
			"{timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n  whole: 'version: v1'\n",
			config.Spec{Pools: []config.Pool{{Name: "a100-40gb", Mode: config.ModeShared, Backends: libkerf,
				NodeSelector: map[string]string{"nvidia.com/device-plugin.config": "A100.40gb"}},
				{Name: "whole", Mode: config.ModeWhole,
					NodeSelector: map[string]string{"nvidia.com/device-plugin.config": "whole"}}},
				Profiles: []config.Profile{{Name: imports.ReplicaProfile + "-a100-40gb", Percent: 25}}},
			[]string{"nodes with the label nvidia.com/device-plugin.config=whole"}},
	} {
		r, err := imports.Parse([]byte(tt.in))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(tt.want, r.Config.Spec()); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
		said := strings.Join(r.Differences, "\n")
		for _, want := range tt.said {
			if !strings.Contains(said, want) {
				t.Errorf("%s: no %q in\n%s", name, want, said)
			}
		}
		if len(tt.said) == 0 && said != "" {
			t.Errorf("%s: said %s", name, said)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		in   string
		want []string
	}{
		"all at once": {"version: v2\nflags: {gdsEnabled: true, migStrategy: some, nvidiaDriverRoot: /run, plugin: " +
			"{sharedDevicesAllocationPolicy: x}}\nimex: {channelIDs: [0]}\nnew: 1\n",
			[]string{"line 1: version \"v2\"", "flags.gdsEnabled", "flags.migStrategy", "flags.nvidiaDriverRoot",
				"sharedDevicesAllocationPolicy", "imex.channelIDs[]", "line 4: new \"1\" is not known here"}},
		"both ways": {"version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}, " +
			"mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n", []string{"timeSlicing and mps"}},
		"a MIG replica": {"version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/mig-1g.5gb, replicas: " +
			"2}, {name: nvidia.com/gpu, replicas: 1}, {name: nvidia.com/gpu, replicas: 101}]}}\n",
			[]string{"a MIG instance is not shared", `"1" is not a number of replicas`, "less than one percent"}},
		"HAMi's scaling": {"nvidia: {deviceMemoryScaling: 2.5, deviceCoreScaling: 0.5, defaultMemory: 1000, " +
			"resourceCountName: example.com/gpu, gpuCorePolicy: disable, other: 1}\n",
			[]string{"deviceMemoryScaling", "deviceCoreScaling", "defaultMemory", "resourceCountName", "gpuCorePolicy",
				"nvidia.other"}},
		"HAMi's filter": {
			`{"nodeconfig":[{"name":"A_","operatingmode":"x"},{"name":"a","operatingmode":"x","devicesplitcount":0,"filterdevices":{"uuid":["GPU-a"],"index":["x"]}}]}`, []string{"filterdevices.uuid[]", "filterdevices.index[]", "devicesplitcount", "is not the name of a node", "is not a mode"}},
		"a ConfigMap without a config": {"kind: ConfigMap\ndata: {a: text}\n", []string{"has no config"}},
		"a ConfigMap with a wrong one": {"kind: ConfigMap\ndata: {a: 'version: v2'}\n",
			[]string{`data.a: line 1: version "v2"`}},
		"memory by hand": {"nvidia: {preConfiguredDeviceMemory: 1024}\n", []string{"preConfiguredDeviceMemory"}},
		"no nodes":       {`{"nodeconfig":[{"devicesplitcount":1}]}`, []string{"has no node"}},
		"something":      {"a: b\n", []string{"is none that is known"}},
		"two parts":      {"version: v1\n---\nversion: v1\n", []string{"more than one part"}},
		"an alias":       {"version: &a v1\nflags: *a\n", []string{"is an alias"}},
		"no YAML":        {"a: [", []string{"read the configuration"}},
		"too large":      {strings.Repeat("#", imports.MaxSize+1), []string{"is larger than"}},
	} {
		_, err := imports.Parse([]byte(tt.in))
		if !errors.Is(err, sharing.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: no %q in\n%v", name, want, err)
			}
		}
	}
}

// FuzzParse: nothing panics, and each result is a configuration that is read back.
func FuzzParse(f *testing.F) {
	f.Add([]byte("version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 3}]}}\n"))
	f.Add([]byte(`{"nodeconfig":[{"name":"a","operatingmode":"mig"}]}`))
	f.Add([]byte("nvidia: {deviceSplitCount: 10}\n"))
	f.Add([]byte("kind: ConfigMap\ndata: {a: 'version: v1', b: 'version: v1'}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := imports.Parse(text)
		if err != nil {
			return
		}
		out, err := r.Config.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := config.Decode(out); err != nil {
			t.Fatalf("%s\n%v", out, err)
		}
	})
}
