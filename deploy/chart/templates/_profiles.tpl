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
kerf.profileAmounts are the limits of each profile of sharingConfig, as YAML: name: {resource: amount}. Left out are profiles
whose memory is no whole number of GiB: no limit can be written for these. Fields of kerf.dev/v1alpha1 have their old names.
*/}}
{{- define "kerf.profileAmounts" -}}
{{- $all := dict }}
{{- $config := fromYaml .Values.sharingConfig }}
{{- range ((($config.spec | default dict).profiles) | default list) }}
{{- $gib := include "kerf.gib" (.memory | default "") }}
{{- $limits := dict }}
{{- if $gib }}{{ $_ := set $limits "kerf.dev/gpu-memory-gib" $gib }}{{ end }}
{{- if .percent }}{{ $_ := set $limits "kerf.dev/gpu-percent" (.percent | toString | trimSuffix "%") }}{{ end }}
{{- if not (or .memory .percent) }}{{ $_ := set $limits "kerf.dev/gpu" (.gpuCount | default .gpus | default 1 | toString) }}{{ end }}
{{- if and $limits (or $gib (not .memory)) }}{{ $_ := set $all .name $limits }}{{ end }}
{{- end }}
{{- toYaml $all }}
{{- end }}

{{/* kerf.profiles are these as a map of CEL. */}}
{{- define "kerf.profiles" -}}
{{- $all := list }}
{{- range $name, $limits := include "kerf.profileAmounts" . | fromYaml }}
{{- $one := list }}
{{- range $resource, $amount := $limits }}{{ $one = append $one (printf "'%s': '%s'" $resource $amount) }}{{ end }}
{{- $all = append $all (printf "%s: {%s}" ($name | squote) (join ", " $one)) }}
{{- end }}
{{- join ",\n      " $all }}
{{- end }}

{{/* kerf.profileTexts are these as a map of CEL, each as a person would write it into a manifest. */}}
{{- define "kerf.profileTexts" -}}
{{- $all := list }}
{{- range $name, $limits := include "kerf.profileAmounts" . | fromYaml }}
{{- $one := list }}
{{- range $resource, $amount := $limits }}{{ $one = append $one (printf "%s: \"%s\"" $resource $amount) }}{{ end }}
{{- $all = append $all (printf "%s: '%s'" ($name | squote) (join ", " $one)) }}
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

{{/* kerf.mutates is true where pods are to be changed, and the API server has MutatingAdmissionPolicy. */}}
{{- define "kerf.mutates" -}}
{{- $able := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" }}
{{- if and .Values.admission.enabled (or (eq .Values.admission.mutate "always") (and (eq .Values.admission.mutate "auto") $able)) }}true{{ end }}
{{- end }}
