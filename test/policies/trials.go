// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"slices"
)

const (
	memory  = "kerf.dev/gpu-memory-gib"
	percent = "kerf.dev/gpu-percent"
	whole   = "kerf.dev/gpu"
)

// signs are refused by one policy each: when they are, all policies are active.
func signs() []trial {
	return []trial{
		{name: "a placement", do: create(annotated("scheduling.kerf.dev/main", "GPU-1"))},
		{name: "an amount", do: create(asks(memory, "10Gi"))},
		{name: "an amount in a template", do: deployment(asks(memory, "10Gi"))},
		{name: "a privileged pod", do: create(asks(memory, "10"), addContainer(privileged()))},
		{name: "a host path", do: create(asks(memory, "10"), mounts("/run/kerf"))},
	}
}

func trials() []trial {
	return slices.Concat(placements(), amounts(), templates(), strong(), hostPaths())
}

func placements() []trial {
	const by, stays = "only the scheduler may write annotations", "the profile of a pod stays as it was made"
	note := map[string]string{"scheduling.kerf.dev/main": "GPU-2"}
	return []trial{
		{name: "a pod", do: create()},
		{name: "a wish", do: create(annotated("kerf.dev/placement-policy", "spread"))},
		{name: "a wish for one container", do: create(annotated("gpu-model.kerf.dev/main", "*H100*"))},
		{name: "a placement", do: create(annotated("scheduling.kerf.dev/main", "GPU-1")), refused: by},
		{name: "a placement of an earlier version", do: create(annotated("placement.kerf.dev/main", "GPU-1")),
			refused: by},
		{name: "an empty placement", do: create(annotated("scheduling.kerf.dev/main", "")), refused: by},
		{name: "a placement", as: scheduler, do: create(annotated("scheduling.kerf.dev/main", "GPU-1"))},
		{name: "a placement", as: "system:serviceaccount:kerf-system:kerf-scheduler",
			do: create(annotated("scheduling.kerf.dev/main", "GPU-1"))},
		{name: "another annotation of a planned pod", do: patch(planned, `{"metadata":{"annotations":{"a":"b"}}}`)},
		{name: "a label of a planned pod", do: patch(planned, `{"metadata":{"labels":{"a":"b"}}}`)},
		{name: "a change of placement", do: patch(planned,
			`{"metadata":{"annotations":{"scheduling.kerf.dev/main":"GPU-2"}}}`), refused: by},
		{name: "a placement more", do: patch(planned,
			`{"metadata":{"annotations":{"scheduling.kerf.dev/other":"GPU-1"}}}`), refused: by},
		{name: "a placement less", do: patch(planned, `{"metadata":{"annotations":{"scheduling.kerf.dev/main":null}}}`),
			refused: by},
		{name: "a placement less", as: scheduler,
			do: patch(planned, `{"metadata":{"annotations":{"scheduling.kerf.dev/main":null}}}`)},
		{name: "another profile", do: patch(profiled, `{"metadata":{"annotations":{"kerf.dev/profile":"other"}}}`),
			refused: stays},
		{name: "no profile any more", do: patch(profiled, `{"metadata":{"annotations":{"kerf.dev/profile":null}}}`),
			refused: stays},
		{name: "a profile for a container more",
			do: patch(profiled, `{"metadata":{"annotations":{"profile.kerf.dev/main":"other"}}}`), refused: stays},
		{name: "a profile that comes late",
			do: patch(sharing, `{"metadata":{"annotations":{"kerf.dev/profile":"other"}}}`), refused: stays},
		{name: "another profile by way of the status",
			do: patch(profiled, `{"metadata":{"annotations":{"kerf.dev/profile":"other"}}}`, "status"), refused: stays},
		{name: "a binding with a profile", do: bind(map[string]string{"kerf.dev/profile": "other"}), refused: stays},
		{name: "another wish of a pod with a profile",
			do: patch(profiled, `{"metadata":{"annotations":{"kerf.dev/gpu-model":"*H100*"}}}`)},
		{name: "a status", do: patch(planned, `{"status":{"message":"well"}}`, "status")},
		{name: "a placement by way of the status",
			do:      patch(planned, `{"metadata":{"annotations":{"scheduling.kerf.dev/main":"GPU-2"}}}`, "status"),
			refused: by},
		{name: "a binding", do: bind(nil)},
		{name: "a binding with a placement", do: bind(note), refused: by},
		{name: "a binding with a placement", as: scheduler, do: bind(note)},
		{name: "an old binding with a placement", do: bindOld(note), refused: by},
		{name: "an old binding with a placement", as: scheduler, do: bindOld(note)},
	}
}

func amounts() []trial {
	return []trial{
		{name: "10 GiB", do: create(asks(memory, "10"))},
		{name: "1000 GiB, which Kubernetes writes as 1k", do: create(asks(memory, "1000"))},
		{name: "the most GiB", do: create(asks(memory, "100000"))},
		{name: "both amounts", do: create(asks(memory, "10", percent, "25"), first(memory, "3"))},
		{name: "64 GPUs", do: create(asks(whole, "64"))},
		{name: "others' resources", do: create(asks("example.com/thing", "2", "cpu", "500m", "memory", "10Gi"))},
		{name: "a MIG instance", do: create(asks("kerf.dev/mig-1g.10gb", "1"))},
		{name: "a profile with an amount", do: create(annotated("kerf.dev/profile", "missing"), asks(memory, "10"))},
		{name: "a profile alone", do: create(annotated("kerf.dev/profile", "missing")),
			refused: `profile "missing" has no amounts here, and no container requests any`},
		{name: "a profile of a container, with its amount", do: create(annotated("profile.kerf.dev/main", "missing"),
			asks(memory, "10"))},
		{name: "a profile of a container alone", do: create(annotated("profile.kerf.dev/main", "missing")),
			refused: `profile "missing" of container "main" has no amounts here`},
		{name: "a profile of an init container alone", do: create(annotated("profile.kerf.dev/first", "missing"),
			first("example.com/thing", "1")), refused: `profile "missing" of container "first" has no amounts here`},
		{name: "10Gi", do: create(asks(memory, "10Gi")),
			refused: `container "main": kerf.dev/gpu-memory-gib must be a whole number from 1 to 100000, and is "10Gi"; write 10, the unit is GiB`},
		{name: "80Gi in an init container", do: create(first(memory, "80Gi")),
			refused: `container "first": kerf.dev/gpu-memory-gib must be a whole number from 1 to 100000, and is "80Gi"; write 80,`},
		{name: "10G", do: create(asks(memory, "10G")), refused: `write 10, the unit is GiB`},
		{name: "0 GiB", do: create(asks(memory, "0")), refused: "must be a whole number from 1 to 100000"},
		{name: "too many GiB", do: create(asks(memory, "100001")), refused: "must be a whole number from 1 to 100000"},
		{name: "far too many GiB", do: create(asks(memory, "9223372036854775807")),
			refused: "must be a whole number from 1 to 100000"},
		{name: "0 percent", do: create(asks(percent, "0")),
			refused: `kerf.dev/gpu-percent must be a whole number from 1 to 6400, and is "0"`},
		{name: "the most percent", do: create(asks(percent, "6400"))},
		{name: "too much percent", do: create(asks(percent, "6401")), refused: "must be a whole number from 1 to 6400"},
		{name: "0 GPUs", do: create(asks(whole, "0")), refused: "kerf.dev/gpu must be a whole number from 1 to 64"},
		{name: "65 GPUs", do: create(asks(whole, "65")), refused: "kerf.dev/gpu must be a whole number from 1 to 64"},
		{name: "an instance of a profile with an attribute", do: create(asks("kerf.dev/mig-1g.10gb.me", "1"))},
		{name: "an instance of the smallest profile", do: create(asks("kerf.dev/mig-1g", "1"))},
		{name: "an instance without graphics", do: create(asks("kerf.dev/mig-2g.48gb-me", "1"))},
		{name: "instances in two containers", do: create(asks("kerf.dev/mig-1g.10gb", "1"),
			first("kerf.dev/mig-1g.10gb", "1"))},
		{name: "two instances", do: create(asks("kerf.dev/mig-1g.10gb", "2")),
			refused: `container "main": kerf.dev/mig-1g.10gb must be 1, and is "2": a program uses one MIG instance at a time; write 1, and use more containers, or a larger profile`},
		{name: "no instance", do: create(asks("kerf.dev/mig-1g.10gb", "0")),
			refused: `kerf.dev/mig-1g.10gb must be 1, and is "0"`},
		{name: "two instances of an init container", do: create(first("kerf.dev/mig-3g.40gb", "2")),
			refused: `container "first": kerf.dev/mig-3g.40gb must be 1`},
		{name: "a profile that is none", do: create(asks("kerf.dev/mig-small", "1")),
			refused: `container "main" requests kerf.dev/mig-small, which is not the name of a MIG profile; write it as in kerf.dev/mig-1g.10gb`},
		{name: "a compute instance in an instance", do: create(asks("kerf.dev/mig-1c.3g.40gb", "1")),
			refused: "is not the name of a MIG profile"},
		{name: "a memory cap on top of a profile", do: create(asks("kerf.dev/mig-1g.10gb", "1", memory, "4")),
			refused: "takes no cap on top: leave the cap out, or choose another profile"},
		{name: "a percentage on top of a profile", do: create(asks("kerf.dev/mig-1g.10gb", "1", percent, "10")),
			refused: "takes no cap on top"},
		{name: "a whole GPU and a profile", do: create(asks("kerf.dev/mig-1g.10gb", "1", whole, "1")),
			refused: "one container requests one kind"},
		{name: "two kinds", do: create(asks(whole, "1", memory, "10")), refused: "one container requests one kind"},
		{name: "two MIG kinds", do: create(asks("kerf.dev/mig-1g.10gb", "1", "kerf.dev/mig-2g.20gb", "1")),
			refused: "one container requests one kind"},
		{name: "two kinds in two containers", do: create(asks(memory, "10"), first(whole, "1"))},
		{name: "a resource that is none", do: create(asks("kerf.dev/gpu-memory", "10")),
			refused: `container "main" requests kerf.dev/gpu-memory, which is no resource of Kerf`},
	}
}

func templates() []trial {
	const words = `and is "10Gi"; write 10, the unit is GiB`
	return []trial{
		{name: "a good deployment", do: deployment(asks(memory, "10"))},
		{name: "a good job", do: job(asks(percent, "50"))},
		{name: "a deployment of others", do: deployment(asks("cpu", "1"))},
		{name: "a deployment", do: deployment(asks(memory, "10Gi")), refused: words},
		{name: "a stateful set", do: statefulSet(asks(memory, "10Gi")), refused: words},
		{name: "a daemon set", do: daemonSet(asks(memory, "10Gi")), refused: words},
		{name: "a job", do: job(asks(memory, "10Gi")), refused: words},
		{name: "a deployment of two instances", do: deployment(asks("kerf.dev/mig-1g.10gb", "2")),
			refused: "kerf.dev/mig-1g.10gb must be 1"},
		{name: "a job of a cap on top of a profile", do: job(asks("kerf.dev/mig-1g.10gb", "1", memory, "4")),
			refused: "takes no cap on top"},
		{name: "a deployment of two kinds", do: deployment(asks(whole, "1", percent, "10")),
			refused: "one container requests one kind"},
	}
}

func strong() []trial {
	const words = `: a pod that requests a GPU keeps to the Pod Security baseline`
	const privilegedWords, adds = `container "second" is privileged` + words, `container "second" adds capability `
	share := asks(memory, "10")
	return []trial{
		{name: "privileged without a share", do: create(addContainer(privileged()))},
		{name: "a share with a weak capability",
			do: create(share, addContainer(capable("NET_BIND_SERVICE", "CAP_CHOWN")))},
		{name: "a share next to privileged", do: create(share, addContainer(privileged())), refused: privilegedWords},
		{name: "a share for an init container next to privileged",
			do: create(first(percent, "10"), addContainer(privileged())), refused: privilegedWords},
		{name: "a whole GPU next to privileged", do: create(asks(whole, "1"), addContainer(privileged())),
			refused: privilegedWords},
		{name: "a share next to SYS_ADMIN", do: create(share, addContainer(capable("CHOWN", "SYS_ADMIN"))),
			refused: adds + "SYS_ADMIN" + words},
		{name: "a share next to CAP_SYS_ADMIN", do: create(share, addContainer(capable("CAP_SYS_ADMIN"))),
			refused: adds + "SYS_ADMIN" + words},
		{name: "a share next to sys_admin", do: create(share, addContainer(capable("sys_admin"))), refused: adds +
			"SYS_ADMIN" + words},
		{name: "a share next to ALL", do: create(share, addContainer(capable("ALL"))), refused: adds + "ALL" + words},
		{name: "a share next to capabilities that trace and read",
			do: create(share, addContainer(capable("SYS_PTRACE", "DAC_READ_SEARCH"))), refused: adds +
				"SYS_PTRACE, adds capability DAC_READ_SEARCH" + words},
		{name: "a share in namespaces of the host", do: create(share, host()),
			refused: "the pod sets hostPID, hostIPC, hostNetwork" + words},
		{name: "no share in namespaces of the host", do: create(host())},
		{name: "a harmless container to look inside", do: patch(sharing, debug(`{}`), "ephemeralcontainers")},
		{name: "a privileged container to look inside", do: patch(sharing, debug(`{"privileged":true}`),
			"ephemeralcontainers"), refused: `container "look" is privileged` + words},
		{name: "a container with SYS_ADMIN to look inside",
			do:      patch(sharing, debug(`{"capabilities":{"add":["SYS_ADMIN"]}}`), "ephemeralcontainers"),
			refused: `container "look" adds capability SYS_ADMIN` + words},
		{name: "a container that may trace to look inside",
			do:      patch(sharing, debug(`{"capabilities":{"add":["SYS_PTRACE"]}}`), "ephemeralcontainers"),
			refused: `container "look" adds capability SYS_PTRACE` + words},
		{name: "a privileged container to look inside a pod without a share",
			do: patch(planned, debug(`{"privileged":true}`), "ephemeralcontainers")},
		{name: "a memory limit for NVIDIA's hook", do: create(share, variable("NVIDIA_GPU_MEMORY_LIMIT")),
			refused: `container "main" sets NVIDIA_GPU_MEMORY_LIMIT`},
		{name: "the same without a share", do: create(variable("NVIDIA_GPU_MEMORY_LIMIT"))},
		{name: "a memory limit in a container to look inside", do: patch(sharing, debugEnv("NVIDIA_GPU_MEMORY_REQUEST"),
			"ephemeralcontainers"), refused: `container "look" sets NVIDIA_GPU_MEMORY_REQUEST`},
	}
}

func debugEnv(name string) string {
	return `{"spec":{"ephemeralContainers":[{"name":"look","image":"kerf.test/nothing:1","env":[{"name":"` + name +
		`","value":"1"}]}]}}`
}

func debug(security string) string {
	return `{"spec":{"ephemeralContainers":[{"name":"look","image":"kerf.test/nothing:1","securityContext":` +
		security + `}]}}`
}

func hostPaths() []trial {
	const words, warning = "is not in the list of those that a pod with a GPU may mount", "reaches GPUs past Kerf"
	share := asks(memory, "10")
	out := []trial{
		{name: "no host path", do: create(share)},
		{name: "host paths of the list", do: create(share, mounts("/data", "/dev/shm", "/mnt/nfs", "/scratch/x"))},
		{name: "host paths that only look like Kerf's, without a share",
			do: create(mounts("/runs/kerf", "/etc/cdix", "/etc/kerfs", "/opt/kerfuffle"))},
		// Node agents need these, so that they are let in; docs/reference/bypasses.md says what they can do, and what
		// keeps tenants from it.
		{name: "node agents' paths without a share",
			do: create(mounts("/", "/dev", "/proc", "/run/containerd/containerd.sock", "/sys/fs/cgroup"))},
		{name: "folders above Kerf's without a share", do: create(mounts("/opt", "/etc", "/run", "/var/lib/kubelet"))},
		{name: "one bad path among good ones", do: create(mounts("/data", "/etc/cdi")),
			warned: `hostPath "/etc/cdi" reaches GPUs past Kerf`},
		{name: "the same with a share", do: create(share, mounts("/data", "/etc/cdi")),
			refused: `hostPath "/etc/cdi" ` + words},
	}
	for _, path := range []string{
		"/", "/dev", "/dev/char", "/var/lib", "/run/containerd/containerd.sock", "/sys/fs/cgroup/kubepods.slice",
		"/opt", "/etc", "/usr", "/root",
		"/home", "/boot", "/lib/systemd", "/proc", "/sys", "/var/log", "/var/lib/kubelet", "/var/lib/kubelet/pods/x",
		"/database", "/mnt/stateful_partition",
	} {
		out = append(out, trial{name: "a share with the host path " + path, do: create(share, mounts(path)),
			refused: words})
	}
	for _, path := range []string{
		"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-caps", "/dev//./nvidia0", "/dev/nvidia-caps/nvidia-cap1",
		"/run/kerf", "/var/run/kerf/hook.sock",
		"/run/kerf/", "/var/lib/kerf/audit", "/etc/kerf", "/etc/kerf/token", "/etc/cdi", "/var/run/cdi",
		"/run/cdi/x.json", "/opt/kerf/v1", "/var/lib/kubelet/device-plugins", "/proc/1/root", "/proc/self/root/dev",
	} {
		out = append(out,
			trial{name: "the host path " + path, do: create(mounts(path)), warned: warning},
			trial{name: "a share with the host path " + path, do: create(share, mounts(path)), refused: words})
	}
	const request = `"main" has a mount below /var/run/nvidia-container-devices, which asks the runtime for GPUs past Kerf`
	for _, path := range []string{
		"/var/run/nvidia-container-devices/all", "/run/nvidia-container-devices/all",
		"/var/run//nvidia-container-devices/./all", "/var/run/nvidia-container-devices/GPU-1",
		"/var/run/nvidia-container-devices/cdi/nvidia.com/gpu/all", "/var/run/x/../nvidia-container-devices/0",
		"/run/../run/nvidia-container-devices/all",
		"var/run/nvidia-container-devices/0",
	} {
		out = append(out, trial{name: "a mount at " + path, do: create(asksAt("main", path)), warned: request})
	}
	return append(out,
		trial{name: "a share with a mount that requests more",
			do: create(share, asksAt("main", "/var/run/nvidia-container-devices/0")), refused: request},
		trial{name: "an init container with such a mount",
			do:      create(first(memory, "10"), asksAt("first", "/var/run/nvidia-container-devices/all")),
			refused: `container "first" has a mount`},
		trial{name: "a share with .. in a mount",
			do:      create(share, asksAt("main", "/w/../var/run/nvidia-container-devices/0")),
			refused: `container "main" mounts at "/w/../var/run/nvidia-container-devices/0"`},
		trial{name: "a mount elsewhere", do: create(asksAt("main", "/var/run/nvidia-container-devices-of-mine/all"))},
	)
}
