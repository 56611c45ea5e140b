{{/*
Copyright 2026 The Kerf Authors
SPDX-License-Identifier: Apache-2.0
*/}}
{{- define "kerf.agentImage" -}}{{ .Values.image.registry }}/{{ .Values.image.agent }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{- end }}
{{- define "kerf.monitorImage" -}}{{ .Values.monitor.image | default (include "kerf.agentImage" .) }}{{- end }}
{{- define "kerf.schedulerImage" -}}{{ .Values.image.registry }}/{{ .Values.image.scheduler }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{- end }}
{{- define "kerf.nodePriority" -}}{{ .Values.priorityClass.create | ternary "kerf-critical" "system-node-critical" }}{{- end }}
{{- define "kerf.clusterPriority" -}}{{ .Values.priorityClass.create | ternary "kerf-critical" "system-cluster-critical" }}{{- end }}

{{/*
kerf.labels are the labels of a workload, besides its name. What is rendered with namespace.create is applied by other means, so
that it names no release.
*/}}
{{- define "kerf.labels" -}}
app.kubernetes.io/part-of: kerf
{{- if not .Values.namespace.create }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
kerf.podLabels are the labels that the values add to the pods of one workload: (list . .Values.agent). The version is not among
them, since another label of a pod template restarts its pods.
*/}}
{{- define "kerf.podLabels" -}}
{{- with mergeOverwrite (deepCopy (index . 0).Values.commonLabels) (index . 1).podLabels -}}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
kerf.nodeLabels is true where the agent may label its node: the right to patch Nodes is there only with the policy that holds it
to the agent's own node.
*/}}
{{- define "kerf.nodeLabels" -}}
{{- if and .Values.agent.nodeLabels .Values.admission.enabled }}true{{ end }}
{{- end }}

{{/* kerf.runtimeSocket is the socket of a pool's container runtime. */}}
{{- define "kerf.runtimeSocket" -}}
{{- .paths.runtimeSocket | default (eq .containerRuntime "crio" | ternary "/var/run/crio/crio.sock" "/run/containerd/containerd.sock") }}
{{- end }}

{{/* kerf.check refuses values that each are right by themselves, and wrong together; the schema has the others. */}}
{{- define "kerf.check" -}}
{{- if ne .Release.Namespace "kerf-system" }}
{{- fail (printf "Kerf's programs look for their objects in kerf-system: install with --namespace kerf-system, not %s" .Release.Namespace) }}
{{- end }}
{{- $names := dict }}
{{- $before := list }}
{{- range .Values.pools }}
{{- if hasKey $names .name }}
{{- fail (printf "pools: the name %q is there twice; give each pool its own" .name) }}
{{- end }}
{{- $_ := set $names .name true }}
{{- $this := mergeOverwrite (deepCopy $.Values.poolDefaults) . }}
{{- range $before }}
{{- $apart := false }}
{{- $other := .nodeSelector }}
{{- range $key, $value := $this.nodeSelector }}
{{- if and (hasKey $other $key) (ne (get $other $key) $value) }}
{{- $apart = true }}
{{- end }}
{{- end }}
{{- if not $apart }}
{{- fail (printf "pools: %q and %q may select the same node, and a node takes one agent; give both one label in nodeSelector with different values" .name $this.name) }}
{{- end }}
{{- end }}
{{- $before = append $before $this }}
{{- end }}
{{- $config := fromYaml .Values.sharingConfig }}
{{- if hasKey $config "Error" }}
{{- fail (printf "sharingConfig is no YAML: %s" $config.Error) }}
{{- end }}
{{- if ne ($config.kind | default "" | toString) "SharingConfig" }}
{{- fail "sharingConfig: its kind must be SharingConfig; 'kerf config validate FILE' lists all errors" }}
{{- end }}
{{- $profiles := dict }}
{{- range ((($config.spec | default dict).profiles) | default list) }}
{{- if hasKey $profiles (.name | toString) }}
{{- fail (printf "sharingConfig: the profile %q is there twice; give each profile its own name" (.name | toString)) }}
{{- end }}
{{- $_ := set $profiles (.name | toString) true }}
{{- end }}
{{- end }}

{{/*
kerf.devicePlugins is the host folder of kubelet's registration socket and of those of device plugins. Kubelet has it at a fixed path,
also with another --root-dir.
*/}}
{{- define "kerf.devicePlugins" -}}
/var/lib/kubelet/device-plugins
{{- end }}
