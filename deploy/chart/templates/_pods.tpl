{{/*
Copyright 2026 The Kerf Authors
SPDX-License-Identifier: Apache-2.0

kerf.asks is true of a container c that requests something of Kerf's.
*/}}
{{- define "kerf.asks" -}}
c.?resources.?limits.orValue({}).exists(r, r.startsWith('kerf.dev/')) ||
      c.?resources.?requests.orValue({}).exists(r, r.startsWith('kerf.dev/'))
{{- end }}

{{/* kerf.podAsks is true of a pod that has such a container. */}}
{{- define "kerf.podAsks" -}}
(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c, {{ include "kerf.asks" . }})
{{- end }}

{{/* kerf.added are the containers that a request adds. What was there before was judged as it came. */}}
{{- define "kerf.added" -}}
((request.operation == 'CREATE' ? object.spec.containers + object.spec.?initContainers.orValue([]) : []) +
      object.spec.?ephemeralContainers.orValue([]))
{{- end }}

{{/* kerf.seLinux is true of SELinux options s, an optional, that the Pod Security baseline allows. */}}
{{- define "kerf.seLinux" -}}
.?type.orValue('') in ['', 'container_t', 'container_init_t', 'container_kvm_t', 'container_engine_t']
{{- end }}

{{/*
kerf.causes are what of a container c is beyond the Pod Security baseline, as clauses. A capability counts in any spelling
that a container runtime takes.
*/}}
{{- define "kerf.causes" -}}
((c.?securityContext.?privileged.orValue(false) ? ['is privileged'] : []) +
      c.?securityContext.?capabilities.?add.orValue([])
      .map(a, a.upperAscii().startsWith('CAP_') ? a.upperAscii().substring(4) : a.upperAscii())
      .filter(a, !(a in [{{ include "kerf.capabilities" . }}])).map(a, 'adds capability ' + a) +
      (c.?securityContext.?procMount.orValue('Default') == 'Default' ? [] : ['has procMount ' + c.securityContext.procMount]) +
      (c.?securityContext.?seccompProfile.?type.orValue('') == 'Unconfined' ? ['has seccomp profile Unconfined'] : []) +
      (c.?securityContext.?appArmorProfile.?type.orValue('') == 'Unconfined' ? ['has AppArmor profile Unconfined'] : []) +
      (c.?securityContext.?seLinuxOptions{{ include "kerf.seLinux" . }} &&
      c.?securityContext.?seLinuxOptions.?user.orValue('') == '' && c.?securityContext.?seLinuxOptions.?role.orValue('') == '' ?
      [] : ['has seLinuxOptions beyond the baseline']))
{{- end }}

{{/* kerf.podCauses are what of a pod itself is beyond the baseline, as fields. */}}
{{- define "kerf.podCauses" -}}
((object.spec.?hostPID.orValue(false) ? ['hostPID'] : []) +
      (object.spec.?hostIPC.orValue(false) ? ['hostIPC'] : []) +
      (object.spec.?hostNetwork.orValue(false) ? ['hostNetwork'] : []) +
      (object.spec.?securityContext.?seccompProfile.?type.orValue('') == 'Unconfined' ? ['seccompProfile Unconfined'] : []) +
      (object.spec.?securityContext.?appArmorProfile.?type.orValue('') == 'Unconfined' ? ['appArmorProfile Unconfined'] : []) +
      (object.spec.?securityContext.?seLinuxOptions{{ include "kerf.seLinux" . }} &&
      object.spec.?securityContext.?seLinuxOptions.?user.orValue('') == '' &&
      object.spec.?securityContext.?seLinuxOptions.?role.orValue('') == '' ? [] : ['seLinuxOptions']) +
      object.metadata.?annotations.orValue({}).filter(k, k.startsWith('container.apparmor.security.beta.kubernetes.io/') &&
      object.metadata.annotations[k] == 'unconfined').map(k, 'annotation ' + k))
{{- end }}

{{/* kerf.capabilities are those that a pod with a share may add: the baseline's, and those of the values. */}}
{{- define "kerf.capabilities" -}}
{{- $baseline := list "AUDIT_WRITE" "CHOWN" "DAC_OVERRIDE" "FOWNER" "FSETID" "KILL" "MKNOD" "NET_BIND_SERVICE" "SETFCAP" "SETGID" "SETPCAP" "SETUID" "SYS_CHROOT" }}
{{- range $i, $c := concat $baseline .Values.admission.allowedCapabilities | uniq }}{{ if $i }}, {{ end }}{{ $c | squote }}{{ end }}
{{- end }}

{{/*
kerf.hostPaths are the host paths of a pod that is created, each as it is written and without empty and "." steps, with /var/run
as /run: "/dev//./nvidia0" is "/dev/nvidia0/".
*/}}
{{- define "kerf.hostPaths" -}}
(request.operation == 'CREATE' ? object.spec.?volumes.orValue([]) : []).filter(v, has(v.hostPath))
      .map(v, [string(v.hostPath.path), '/' + v.hostPath.path.split('/').filter(s, s != '' && s != '.').join('/') + '/'])
      .map(p, [p[0], p[1] == '//' ? '/' : p[1].startsWith('/var/run/') ? p[1].substring(4) : p[1]])
{{- end }}

{{/* kerf.guardedPaths belong to Kerf, or give GPUs away, on the nodes of any pool. A policy does not know the node. */}}
{{- define "kerf.guardedPaths" -}}
{{- $all := list "/run/kerf" "/var/lib/kerf" "/etc/kerf" }}
{{- range $given := .Values.pools }}
{{- $paths := (mergeOverwrite (deepCopy $.Values.poolDefaults) $given).paths }}
{{- range list $paths.hook $paths.cdi $paths.cdiSource (printf "%s/device-plugins" $paths.kubelet) (include "kerf.devicePlugins" .) }}
{{- $all = append $all (regexReplaceAll "^/var/run/" . "/run/") }}
{{- end }}
{{- end -}}
[{{ range $i, $p := uniq $all }}{{ if $i }}, {{ end }}{{ printf "%s/" $p | squote }}{{ end }}]
{{- end }}

{{/*
kerf.backwards is true of a mount m with a step "..". Each of a pod's mounts is looked at, so that the cheap question comes first.
*/}}
{{- define "kerf.backwards" -}}
m.mountPath.contains('..') && '..' in m.mountPath.split('/')
{{- end }}

{{/*
kerf.asksByMount is true of a mount m by which a pod requests GPUs from NVIDIA's runtime. With ".." in it, a path is taken for one
as soon as it has the folder's name.
*/}}
{{- define "kerf.asksByMount" -}}
m.mountPath.contains('nvidia-container-devices') &&
      (('/' + m.mountPath.split('/').filter(s, s != '' && s != '.').join('/')).matches('^(/var)?/run/nvidia-container-devices/') ||
      '..' in m.mountPath.split('/') && 'nvidia-container-devices' in m.mountPath.split('/'))
{{- end }}
