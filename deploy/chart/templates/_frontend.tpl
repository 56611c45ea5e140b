{{/*
Copyright 2026 The Kerf Authors
SPDX-License-Identifier: Apache-2.0

kerf.draPools are the pools of sharingConfig with "frontend: dra": for each one the labels that a pod's nodeSelector has to name, as
a map of CEL. A pool without a nodeSelector has no labels, and takes each pod if all pools have this front end.
*/}}
{{- define "kerf.draPools" -}}
{{- $all := list }}
{{- $every := true }}
{{- $config := fromYaml .Values.sharingConfig }}
{{- $pools := ((($config.spec | default dict).pools) | default list) }}
{{- range $pools }}{{ if ne (.frontend | default "" | toString) "dra" }}{{ $every = false }}{{ end }}{{ end }}
{{- range $pools }}
{{- if eq (.frontend | default "" | toString) "dra" }}
{{- $labels := list }}
{{- range $key, $value := (.nodeSelector | default dict) }}{{ $labels = append $labels (printf "%s: %s" ($key | squote) ($value | toString | squote)) }}{{ end }}
{{- if or $labels $every }}{{ $all = append $all (printf "{%s}" (ternary "" (join ", " $labels) $every)) }}{{ end }}
{{- end }}
{{- end }}
{{- join ", " (uniq $all) }}
{{- end }}

{{/* kerf.amountsWarning is the policy that warns of amounts in a pool with "frontend: dra", which offers none as limits. */}}
{{- define "kerf.amountsWarning" }}
{{- with include "kerf.draPools" . }}
---
# A pool with "frontend: dra" offers whole GPUs and MIG instances as limits, and no amounts: a DeviceClass has no amount to map them
# to. The pod would wait. Here its author gets the ResourceClaimTemplate to use. The pools are those of sharingConfig at the last helm upgrade.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: kerf-amounts-by-claim
  labels:
    app.kubernetes.io/part-of: kerf
spec:
  failurePolicy: Ignore
  matchConstraints:
    matchPolicy: Equivalent
    resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [CREATE]
      resources: [pods]
    - apiGroups: [apps]
      apiVersions: [v1]
      operations: [CREATE, UPDATE]
      resources: [deployments, statefulsets, daemonsets]
    - apiGroups: [batch]
      apiVersions: [v1]
      operations: [CREATE, UPDATE]
      resources: [jobs]
  variables:
  - name: spec
    expression: >-
      request.resource.resource == 'pods' ? dyn(object).spec : dyn(object).spec.template.spec
  - name: pools
    expression: >-
      [{{ . }}].filter(p, p.all(k, variables.spec.?nodeSelector.orValue({})[?k].orValue('') == p[k]))
  - name: asking
    expression: >-
      (variables.spec.containers + variables.spec.?initContainers.orValue([])).filter(c,
      c.?resources.?limits.orValue({}).exists(r, r in ['kerf.dev/gpu-memory-gib', 'kerf.dev/gpu-percent']))
  - name: memory
    expression: >-
      variables.asking.size() == 0 ? '' : string(variables.asking[0].resources.limits[?'kerf.dev/gpu-memory-gib'].orValue(''))
  - name: percent
    expression: >-
      variables.asking.size() == 0 ? '' : string(variables.asking[0].resources.limits[?'kerf.dev/gpu-percent'].orValue(''))
  validations:
  - expression: variables.pools.size() == 0 || variables.asking.size() == 0
    reason: Invalid
    message: a pool with frontend dra offers no amounts as limits; use a ResourceClaimTemplate
    messageExpression: >-
      'container "' + variables.asking[0].name + '" requests an amount of a GPU by its limits, and a pool with frontend dra takes amounts by ResourceClaim alone: ' +
      'use a ResourceClaimTemplate of class share.kerf.dev with capacity.requests {memory: ' +
      (variables.memory == '' ? '<the memory of the share>' : variables.memory + 'Gi') + (variables.percent == '' ? '' : ', percent: "' + variables.percent + '"') +
      '}; kerf translate --to dra writes it'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: kerf-amounts-by-claim
  labels:
    app.kubernetes.io/part-of: kerf
spec:
  policyName: kerf-amounts-by-claim
  validationActions: [Warn]
{{- end }}
{{- end }}
