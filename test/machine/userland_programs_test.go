// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"path/filepath"
	"regexp"
	"strings"
)

// samples are those of NVIDIA's CUDA samples that the test builds: what is linked, and what each prints.
var samples = []struct {
	folder, source string
	link           []string
	prints, sees   string // Sees is the text with the cap as the size of the GPU.
	kernel         bool   // It ends with an error where it compares a kernel's result.
}{
	{folder: "1_Utilities/deviceQuery", source: "deviceQuery.cpp", prints: `Device 0: "Tesla T4"`,
		sees: `global memory: +2048 MBytes`},
	{folder: "1_Utilities/deviceQueryDrv", source: "deviceQueryDrv.cpp", link: []string{"-l:libcuda.so.1"},
		prints: `Device 0: "Tesla T4"`, sees: `global memory: +2048 MBytes`},
	{folder: "1_Utilities/topologyQuery", source: "topologyQuery.cu", prints: `GPU0 <-> CPU|device`},
	{folder: "1_Utilities/bandwidthTest", source: "bandwidthTest.cu", prints: `Result = PASS`},
	{folder: "0_Introduction/vectorAdd", source: "vectorAdd.cu", kernel: true,
		prints: `Copy output data from the CUDA device to the host memory`},
	{folder: "0_Introduction/asyncAPI", source: "asyncAPI.cu", kernel: true, prints: `CPU executed \d+ iterations`},
	{folder: "0_Introduction/simpleStreams", source: "simpleStreams.cu", kernel: true, prints: `4 streams:`},
	{folder: "2_Concepts_and_Techniques/streamOrderedAllocation", source: "streamOrderedAllocation.cu", kernel: true,
		prints: `Total elapsed time`},
	{folder: "3_CUDA_Features/graphMemoryFootprint", source: "graphMemoryFootprint.cu",
		prints: `(?s)FOOTPRINT: 0 bytes.*Sample complete`},
	{folder: "3_CUDA_Features/graphMemoryNodes", source: "graphMemoryNodes.cu", kernel: true,
		prints: `Running negateSquares in a stream-captured graph`},
	{folder: "3_CUDA_Features/StreamPriorities", source: "StreamPriorities.cu", kernel: true,
		prints: `CUDA stream priority range: LOW: 0 to HIGH: -5`},
}

func (u *userland) sampleFolder(folder string) string {
	return filepath.Join(u.root, "usr/share/doc/nvidia-cuda-toolkit/examples/Samples", folder)
}

func sampleName(folder string) string { return filepath.Base(folder) }

func want(pattern string) *regexp.Regexp { return regexp.MustCompile(pattern) }

// programs are those that others wrote.
func (u *userland) programs() []guest {
	python := func(args ...string) []string { return append([]string{"/usr/bin/python3"}, args...) }
	in := func(path string) string { return filepath.Join(u.root, path) }
	shell := func(lines ...string) []string {
		begin := `cd "$(mktemp -d "$TMPDIR/guest.XXXX")"; export HOME=$PWD; `
		return []string{"bash", "-euc", begin + strings.Join(lines, "; ")}
	}
	all := []guest{
		{name: "pynvml", packages: []string{"python3-pynvml"}, own: true, argv: python("userland/with_pynvml.py")},
		{name: "nvtop", packages: []string{"nvtop"}, want: want("Device 0"), argv: shell(
			`TERM=xterm timeout -s INT 5 script -qec "nvtop -d 5" /dev/null </dev/null || true`)},
		{name: "gpustat", packages: []string{"gpustat", "python3-pynvml"}, want: want("Tesla T4"),
			sees: want(`/ +2048 MB`), argv: python(in("usr/bin/gpustat"))},
		{name: "lstopo with CUDA and NVML", packages: []string{"hwloc-nox", "libhwloc-contrib-plugins"},
			want: want(`(?s)Co-Processor\(CUDA\).*GPU\(NVML\)`), sees: want(`CUDAGlobalMemorySize=2097152`),
			env:  []string{"HWLOC_PLUGINS_PATH=" + u.lib() + "/hwloc"},
			argv: []string{"lstopo-no-graphics", "--whole-io", "-v"}},
		{name: "hashcat -I", packages: []string{"hashcat", "libnvrtc11.2"}, want: want(`(?s)CUDA Info.*Tesla T4`),
			sees: want(`Memory.Total.*: 2048 MB`), argv: shell(
				`cp `+in("usr/bin/hashcat")+` .`, `ln -s `+in("usr/share/hashcat")+`/* .`,
				`ln -s `+u.lib()+`/libnvrtc.so.11.2 libnvrtc.so`,
				`LD_LIBRARY_PATH=$PWD:$LD_LIBRARY_PATH ./hashcat -I`)},
		{name: "FFmpeg upload and download", packages: []string{"ffmpeg"}, want: want(`frame= *5 .*(?s).*video:`),
			argv: []string{"ffmpeg", "-nostdin", "-init_hw_device", "cuda=gpu:0", "-filter_hw_device", "gpu",
				"-f", "lavfi",
				"-i", "testsrc=size=320x240:rate=5:duration=1", "-vf",
				"format=nv12,hwupload,hwdownload,format=nv12", "-f", "null", "-"}},
		// Without NVENC and NVDEC the plugin ends after it has loaded libcuda with all of its names.
		{name: "GStreamer nvcodec", packages: []string{"gstreamer1.0-plugins-bad", "gstreamer1.0-tools"},
			want: want(`(?s)GStreamer NVCODEC plugin.*Failed to load nvdec library`), argv: shell(
				`mkdir plugins`, `ln -s `+u.lib()+`/gstreamer-1.0/libgstnvcodec.so plugins/`,
				`export GST_PLUGIN_SYSTEM_PATH_1_0=$PWD/plugins GST_REGISTRY=$PWD/registry GST_REGISTRY_FORK=no`,
				`GST_DEBUG_NO_COLOR=1 GST_DEBUG=nvcodec:4 gst-inspect-1.0 nvcodec`)},
		{name: "BOINC GPU detection", packages: []string{"boinc-client"}, want: want(`<name>Tesla T4`),
			sees: want(`<totalGlobalMem>2147483648`), argv: shell(
				// A driver installs this name, too.
				`ln -sf libcuda.so.1 "$(dirname "$USERLAND_CUDA")/libcuda.so"`,
				`boinc --detect_gpus --dir $PWD`, `cat coproc_info.xml`)},
		{name: "PyCUDA", packages: append([]string{"python3-pycuda", "python3-numpy"}, runtimePackages...), own: true,
			argv: python("userland/with_pycuda.py")},
		{name: "PyCUDA example dump_properties", packages: []string{"python3-pycuda", "python-pycuda-doc"},
			want: want(`Device #0: Tesla T4`), sees: want(`Total Memory: 2097152 KB`),
			argv: python(in("usr/share/doc/python-pycuda-doc/examples/dump_properties.py"))},
		{name: "Numba", packages: []string{"python3-numba", "python3-numpy"}, own: true,
			argv: python("userland/with_numba.py")},
		{name: "NVRTC", own: true,
			packages: append([]string{"libnvrtc11.2", "libnvrtc-builtins11.8"}, runtimePackages...),
			argv:     []string{filepath.Join(u.built, "nvrtc")}},
		{name: "cuRAND", packages: append([]string{"libcurand10"}, runtimePackages...), own: true,
			argv: []string{filepath.Join(u.built, "curand")}},
		{name: "cuBLAS", packages: append([]string{"libcublas11", "libcublaslt11"}, runtimePackages...), own: true,
			argv: []string{filepath.Join(u.built, "cublas")}},
		{name: "cuFFT", packages: append([]string{"libcufft10"}, runtimePackages...), own: true,
			argv: []string{filepath.Join(u.built, "cufft")}},
		{name: "device query of nvcc", packages: []string{"nvidia-cuda-toolkit"}, want: want(`75`),
			argv: []string{in("usr/bin/__nvcc_device_query")}},
	}
	for _, s := range samples {
		g := guest{name: "CUDA sample " + sampleName(s.folder),
			packages: append([]string{"nvidia-cuda-samples"}, runtimePackages...),
			want:     want(s.prints), kernel: s.kernel,
			argv: []string{filepath.Join(u.built, "sample-"+sampleName(s.folder))}}
		if s.sees != "" {
			g.sees = want(s.sees)
		}
		all = append(all, g)
	}
	return all
}
