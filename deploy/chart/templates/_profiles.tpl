{{/*
Copyright 2026 The Kerf Authors
SPDX-License-Identifier: Apache-2.0

kerf.gib is an amount of memory as a whole number of GiB, or nothing where it is none.
*/}}
{{- define "kerf.gib" -}}
{{- $text := . | toString }}
{{- if regexMatch "^[0-9]+(GiB|Gi)$" $text }}{{ regexFind "^[0-9]+" $text }}
{{- else if regexMatch "^[0-9]+(TiB|Ti)$" $text }}{{ mul 1024 (regexFind "^[0-9]+" $text | int) }}
{{- end }}
{{- end }}

{{/*
kerf.profiles are the limits that each profile of sharingConfig comes to, as a map of CEL. Left out are profiles whose memory
is no whole number of GiB: no limit can be written for these. Fields of kerf.dev/v1alpha1 have their old names.
*/}}
{{- define "kerf.profiles" -}}
{{- $all := list }}
{{- $config := fromYaml .Values.sharingConfig }}
{{- range ((($config.spec | default dict).profiles) | default list) }}
{{- $gib := include "kerf.gib" (.memory | default "") }}
{{- $limits := list }}
{{- if $gib }}{{ $limits = append $limits (printf "'kerf.dev/gpu-memory-gib': '%s'" $gib) }}{{ end }}
{{- if .percent }}{{ $limits = append $limits (printf "'kerf.dev/gpu-percent': '%s'" (.percent | toString | trimSuffix "%")) }}{{ end }}
{{- if not (or .memory .percent) }}{{ $limits = append $limits (printf "'kerf.dev/gpu': '%v'" (.gpuCount | default .gpus | default 1)) }}{{ end }}
{{- if and $limits (or $gib (not .memory)) }}
{{- $all = append $all (printf "%s: {%s}" (.name | squote) (join ", " $limits)) }}
{{- end }}
{{- end }}
{{- join ",\n      " $all }}
{{- end }}

{{/* kerf.privilegedByValues are the profiles whose pods may have privileged containers by the values, as a list of CEL. */}}
{{- define "kerf.privilegedByValues" -}}
{{- range $i, $p := uniq .Values.admission.privilegedProfiles }}{{ if $i }}, {{ end }}{{ $p | squote }}{{ end }}
{{- end }}

{{/* kerf.privilegedByRules are those of which sharingConfig says it. */}}
{{- define "kerf.privilegedByRules" -}}
{{- $all := list }}
{{- $config := fromYaml .Values.sharingConfig }}
{{- range ((($config.spec | default dict).profiles) | default list) }}
{{- if and (or .allowPrivileged .privileged) .namespaces }}{{ $all = append $all (.name | squote) }}{{ end }}
{{- end }}
{{- join ", " $all }}
{{- end }}

{{/*
kerf.live is true where the scheduler keeps what the policies read of profiles, in the ConfigMap kerf-profiles, so that a
profile changes with the document. Else the policies have what sharingConfig said when the chart was installed or upgraded.
*/}}
{{- define "kerf.live" -}}
{{- if and (include "kerf.mutates" .) .Values.scheduler.enabled }}true{{ end }}
{{- end }}

{{/*
kerf.written is true of a ConfigMap that a scheduler has written. Until then, which is the first seconds after the chart was
installed, what sharingConfig says holds.
*/}}
{{- define "kerf.written" -}}
'kerf.dev/sharing-config-hash' in params.metadata.?annotations.orValue({})
{{- end }}

{{/* kerf.mutates is true where pods are to be changed, and the cluster can do it: from Kubernetes 1.36 on. */}}
{{- define "kerf.mutates" -}}
{{- $able := semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version }}
{{- if and .Values.admission.enabled (or (eq .Values.admission.mutate "always") (and (eq .Values.admission.mutate "auto") $able)) }}true{{ end }}
{{- end }}
