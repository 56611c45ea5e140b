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
is no whole number of GiB: no limit can be written for these.
*/}}
{{- define "kerf.profiles" -}}
{{- $all := list }}
{{- $config := fromYaml .Values.sharingConfig }}
{{- range ((($config.spec | default dict).profiles) | default list) }}
{{- $gib := include "kerf.gib" (.memory | default "") }}
{{- $limits := list }}
{{- if $gib }}{{ $limits = append $limits (printf "'kerf.dev/gpu-memory-gib': '%s'" $gib) }}{{ end }}
{{- if .percent }}{{ $limits = append $limits (printf "'kerf.dev/gpu-percent': '%s'" (.percent | toString | trimSuffix "%")) }}{{ end }}
{{- if not (or .memory .percent) }}{{ $limits = append $limits (printf "'kerf.dev/gpu': '%v'" (.gpus | default 1)) }}{{ end }}
{{- if and $limits (or $gib (not .memory)) }}
{{- $all = append $all (printf "%s: {%s}" (.name | squote) (join ", " $limits)) }}
{{- end }}
{{- end }}
{{- join ",\n      " $all }}
{{- end }}

{{/*
kerf.privileged are the profiles whose pods may have privileged containers, as a list of CEL: those of the values, and those
of which sharingConfig says it.
*/}}
{{- define "kerf.privileged" -}}
{{- $all := .Values.admission.privilegedProfiles }}
{{- $config := fromYaml .Values.sharingConfig }}
{{- range ((($config.spec | default dict).profiles) | default list) }}
{{- if and .privileged .namespaces }}{{ $all = append $all .name }}{{ end }}
{{- end }}
{{- range $i, $p := uniq $all }}{{ if $i }}, {{ end }}{{ $p | squote }}{{ end }}
{{- end }}

{{/* kerf.mutates is true where pods are to be changed, and the cluster can do it: from Kubernetes 1.36 on. */}}
{{- define "kerf.mutates" -}}
{{- $able := semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version }}
{{- if and .Values.admission.enabled (or (eq .Values.admission.mutate "always") (and (eq .Values.admission.mutate "auto") $able)) }}true{{ end }}
{{- end }}
