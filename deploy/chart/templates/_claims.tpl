{{/*
Copyright 2026 The Kerf Authors
SPDX-License-Identifier: Apache-2.0

kerf.claims is the policy for what ResourceClaims and their templates request. The node checks it again when it prepares a
claim, in sharing/dra.
*/}}
{{- define "kerf.claims" }}
---
# A claim or template with amounts or parameters that no node would take is rejected here, and not when its pod starts.
{{- $known := "['memory', 'percent', 'shares', 'gpu.kerf.dev/memory', 'gpu.kerf.dev/percent', 'gpu.kerf.dev/shares']" }}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: kerf-claims
  labels:
    app.kubernetes.io/part-of: kerf
spec:
  failurePolicy: Fail
  matchConstraints:
    matchPolicy: Equivalent
    resourceRules:
    - apiGroups: [resource.k8s.io]
      apiVersions: [v1]
      operations: [CREATE]
      resources: [resourceclaims, resourceclaimtemplates]
  variables:
  - name: devices
    expression: >-
      {{ include "kerf.claimDevices" . }}
  # Each request, and each alternative of one with its full name.
  - name: requests
    expression: >-
      variables.devices.?requests.orValue([]).map(r, (has(r.exactly) ? [{'main': dyn(r.name), 'name': dyn(r.name),
      'class': dyn(r.exactly.deviceClassName), 'amounts': dyn(r.exactly.?capacity.?requests.orValue({})),
      'admin': dyn(r.exactly.?adminAccess.orValue(false))}] : []) +
      r.?firstAvailable.orValue([]).map(s, {'main': dyn(r.name), 'name': dyn(r.name + '/' + s.name), 'class': dyn(s.deviceClassName),
      'amounts': dyn(s.?capacity.?requests.orValue({})), 'admin': dyn(false)})).flatten()
  - name: shares
    expression: variables.requests.filter(r, r['class'] == 'share.kerf.dev')
  - name: exclusive
    expression: variables.requests.filter(r, r['class'] == 'whole.kerf.dev' && r.amounts.size() > 0)
  - name: other
    expression: >-
      variables.shares.filter(r, r.amounts.exists(k, !(k in {{ $known }})))
  - name: silent
    expression: >-
      variables.shares.filter(r, !r.admin && !r.amounts.exists(k, k in ['memory', 'gpu.kerf.dev/memory']))
  - name: memory
    expression: >-
      variables.shares.filter(r, r.amounts.exists(k, k in ['memory', 'gpu.kerf.dev/memory'] && !(quantity(r.amounts[k]).isInteger() &&
      !quantity(r.amounts[k]).isLessThan(quantity('1Mi')) && !quantity(r.amounts[k]).isGreaterThan(quantity('16384Gi')))))
  - name: percent
    expression: >-
      variables.shares.filter(r, r.amounts.exists(k, k in ['percent', 'gpu.kerf.dev/percent'] && !(quantity(r.amounts[k]).isInteger() &&
      quantity(r.amounts[k]).isGreaterThan(quantity('0')) && !quantity(r.amounts[k]).isGreaterThan(quantity('100')))))
  # The opaque parameters for Kerf's driver.
  - name: configs
    expression: >-
      variables.devices.?config.orValue([]).filter(c, has(c.opaque) && c.opaque.driver == 'gpu.kerf.dev')
  - name: twice
    expression: >-
      variables.requests.filter(r, variables.configs.filter(c, c.?requests.orValue([]).size() == 0 ||
      c.requests.exists(n, n == r.main || n == r.name)).size() > 1)
  - name: parameters
    expression: variables.configs.map(c, dyn(c.opaque.?parameters.orValue({})))
  - name: untyped
    expression: >-
      variables.parameters.filter(p, p.?apiVersion.orValue('') != 'gpu.kerf.dev/v1alpha1' || p.?kind.orValue('') != 'GPUParameters')
  - name: ofProfiles
    expression: >-
      variables.parameters.map(p, p.map(k, dyn(k)).filter(k, k in ['backends', 'onOverCap', 'priority', 'maxBurstMemory', 'namespaces', 'startWindows', 'maxMemoryPerPod', 'allowPrivileged'])).flatten()
  - name: unknown
    expression: >-
      variables.parameters.map(p, p.map(k, dyn(k)).filter(k, !(k in ['apiVersion', 'kind', 'profile', 'memory', 'percent', 'gpuCount', 'gpuModel', 'minEnforcement', 'placementPolicy']))).flatten()
  # Each field with a value that it cannot have.
  - name: wrong
    expression: >-
      variables.parameters.map(p, [
      has(p.profile) && !(type(p.profile) == string && p.profile.matches('^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$')) ? 'profile: write the name of a profile' : '',
      has(p.memory) && !(type(p.memory) == string && p.memory.matches('^[1-9][0-9]{0,4}(Gi|GiB)$') && int(p.memory.split('G')[0]) <= 16384) ? 'memory: write whole GiB up to 16384Gi, such as 10Gi' : '',
      has(p.percent) && !(type(p.percent) == int && p.percent >= 1 && p.percent <= 6400) ? 'percent: write a whole number from 1 to 100 for each GPU, such as 25' : '',
      has(p.gpuCount) && !(type(p.gpuCount) == int && p.gpuCount >= 1 && p.gpuCount <= 64) ? 'gpuCount: write a whole number from 1 to 64' : '',
      has(p.gpuModel) && !(type(p.gpuModel) == list && p.gpuModel.all(m, type(m) == string && m.size() > 0 && m.size() <= 128)) ? 'gpuModel: write a list of patterns, such as ["*H100*"]' : '',
      has(p.minEnforcement) && !(p.minEnforcement in ['exclusive', 'hardware', 'driver', 'userspace', 'client', 'reactive', 'none']) ? 'minEnforcement: write one of exclusive, hardware, driver, userspace, reactive, none' : '',
      has(p.placementPolicy) && !(p.placementPolicy in ['pack', 'spread']) ? 'placementPolicy: write pack or spread' : ''
      ].filter(w, w != '')).flatten()
  validations:
  - expression: variables.other.size() == 0
    reason: Invalid
    message: a share has the capacities memory and percent alone
    messageExpression: >-
      'request "' + variables.other[0].name + '": a share has the capacities memory and percent, and none of ' +
      variables.other[0].amounts.map(k, k).filter(k, !(k in {{ $known }})).join(', ')
  - expression: variables.silent.size() == 0
    reason: Invalid
    message: a share states its memory, such as memory 10Gi in capacity.requests; percent alone is not enough
    messageExpression: >-
      'request "' + variables.silent[0].name + '": state the memory of the share, such as memory: 10Gi in capacity.requests' +
      (variables.silent[0].amounts.size() > 0 ? '; percent alone is not enough' : '')
  - expression: variables.memory.size() == 0
    reason: Invalid
    message: the memory of a share is from 1Mi to 16384Gi, such as 10Gi; the scheduler rounds it up to whole GiB
    messageExpression: >-
      'request "' + variables.memory[0].name + '": memory ' +
      variables.memory[0].amounts[?'memory'].orValue(variables.memory[0].amounts[?'gpu.kerf.dev/memory'].orValue('')) +
      ' is out of range; write from 1Mi to 16384Gi, such as 10Gi; the scheduler rounds it up to whole GiB'
  - expression: variables.percent.size() == 0
    reason: Invalid
    message: the percent of a share is a whole number from 1 to 100
    messageExpression: >-
      'request "' + variables.percent[0].name + '": percent ' +
      variables.percent[0].amounts[?'percent'].orValue(variables.percent[0].amounts[?'gpu.kerf.dev/percent'].orValue('')) +
      ' is out of range; write a whole number from 1 to 100, or leave it out'
  - expression: variables.exclusive.size() == 0
    reason: Invalid
    message: a whole GPU has no amounts; leave out capacity, or write deviceClassName share.kerf.dev
    messageExpression: >-
      'request "' + variables.exclusive[0].name + '": a whole GPU has no amounts; leave out capacity, or write deviceClassName: share.kerf.dev'
  - expression: variables.twice.size() == 0
    reason: Invalid
    message: a request has one config of gpu.kerf.dev at most
    messageExpression: >-
      'request "' + variables.twice[0].name + '" has more than one config of gpu.kerf.dev; write one'
  - expression: variables.untyped.size() == 0
    reason: Invalid
    message: >-
      the parameters of gpu.kerf.dev have apiVersion gpu.kerf.dev/v1alpha1 and kind GPUParameters
  - expression: variables.ofProfiles.size() == 0
    reason: Invalid
    message: only a profile of the SharingConfig sets these fields; name a profile
    messageExpression: >-
      'only a profile of the SharingConfig sets ' + variables.ofProfiles.join(', ') + ', so name a profile'
  - expression: variables.unknown.size() == 0
    reason: Invalid
    message: the parameters of gpu.kerf.dev have an unknown field
    messageExpression: >-
      'the parameters of gpu.kerf.dev have no field ' + variables.unknown.join(', ') +
      '; they have profile, memory, percent, gpuCount, gpuModel, minEnforcement and placementPolicy'
  - expression: variables.wrong.size() == 0
    reason: Invalid
    message: the parameters of gpu.kerf.dev have a wrong value
    messageExpression: >-
      'the parameters of gpu.kerf.dev have a wrong value; ' + variables.wrong.join('; ')
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: kerf-claims
  labels:
    app.kubernetes.io/part-of: kerf
spec:
  policyName: kerf-claims
  validationActions: [Deny]
{{- end }}

{{/* kerf.claimDevices is what a claim or template requests. dyn() is for the type checker, which knows no template. */}}
{{- define "kerf.claimDevices" -}}
(request.resource.resource == 'resourceclaimtemplates' ? dyn(object).spec.spec : dyn(object).spec).?devices.orValue({})
{{- end }}

{{/* kerf.profileNamespaces are the namespaces of each profile of sharingConfig that has some, as a map of CEL. */}}
{{- define "kerf.profileNamespaces" -}}
{{- $all := list }}
{{- $config := fromYaml .Values.sharingConfig }}
{{- range ((($config.spec | default dict).profiles) | default list) }}
{{- $globs := list }}
{{- $plain := true }}
{{- range .namespaces }}
{{- if regexMatch "^!?[A-Za-z0-9*?-]+$" (. | toString) }}{{ $globs = append $globs (. | toString | squote) }}{{ else }}{{ $plain = false }}{{ end }}
{{- end }}
{{- if and $globs $plain }}{{ $all = append $all (printf "%s: [%s]" (.name | squote) (join ", " $globs)) }}{{ end }}
{{- end }}
{{- join ", " $all }}
{{- end }}

{{/* kerf.claimProfile is the policy for the profiles that claims name. The node checks it again, with all patterns. */}}
{{- define "kerf.claimProfile" }}
{{- $live := include "kerf.live" . }}
---
# The profile of a claim is for some namespaces. {{ if $live }}Which these are is in the ConfigMap kerf-profiles. Without it, only the node checks it.
{{- else }}These are those of sharingConfig at the last helm upgrade.{{ end }}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: kerf-claim-profile
  labels:
    app.kubernetes.io/part-of: kerf
spec:
  failurePolicy: {{ ternary "Ignore" "Fail" (eq $live "true") }}
{{- if $live }}
  paramKind:
    apiVersion: v1
    kind: ConfigMap
{{- end }}
  matchConstraints:
    matchPolicy: Equivalent
    resourceRules:
    - apiGroups: [resource.k8s.io]
      apiVersions: [v1]
      operations: [CREATE]
      resources: [resourceclaims, resourceclaimtemplates]
  variables:
  - name: profiles
    expression: >-
      {{ include "kerf.claimDevices" . }}.?config.orValue([]).filter(c, has(c.opaque) && c.opaque.driver == 'gpu.kerf.dev')
      .map(c, dyn(c.opaque.?parameters.?profile.orValue(''))).filter(p, type(p) == string && p != '').map(p, string(p))
  # The keys come from the ConfigMap: two configs of a claim may name one profile, and CEL rejects a map with a key twice.
  - name: namespaces
    expression: >-
{{- if $live }}
      {{ include "kerf.written" . }} ?
      params.?data.orValue({}).transformMap(p, text, p in variables.profiles, text.split(' ').filter(w, w.startsWith('namespaces:')).map(w, w.substring(11).split(',')).flatten()) :
{{- end }}
      {{ printf "{" }}{{ include "kerf.profileNamespaces" . }}}
  # A pattern has * for any text and ? for one character. One with ! in front excludes.
  - name: excluded
    expression: >-
      variables.profiles.filter(p, p in variables.namespaces && variables.namespaces[p].size() > 0 && !(
      (variables.namespaces[p].all(g, g.startsWith('!')) ||
      variables.namespaces[p].exists(g, !g.startsWith('!') && request.namespace.matches('^(?i:' + g.replace('*', '.*').replace('?', '.') + ')$'))) &&
      !variables.namespaces[p].exists(g, g.startsWith('!') && request.namespace.matches('^(?i:' + g.substring(1).replace('*', '.*').replace('?', '.') + ')$'))))
  validations:
  - expression: variables.excluded.size() == 0
    reason: Forbidden
    message: the profile of the claim is not for this namespace; name another profile, or ask an administrator
    messageExpression: >-
      'profile "' + variables.excluded[0] + '" is for the namespaces ' + variables.namespaces[variables.excluded[0]].join(', ') +
      ', not for "' + request.namespace + '"; name another profile, or ask an administrator'
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: kerf-claim-profile
  labels:
    app.kubernetes.io/part-of: kerf
spec:
  policyName: kerf-claim-profile
  validationActions: [Deny]
{{- if $live }}
  paramRef:
    name: kerf-profiles
    namespace: kerf-system
    parameterNotFoundAction: Allow
{{- end }}
{{- end }}

{{/* kerf.migClasses are the classes that stand for limits of kerf.dev/mig-PROFILE. */}}
{{- define "kerf.migClasses" }}
{{- range .Values.dra.migResources }}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: mig-{{ . }}.kerf.dev
  labels:
    app.kubernetes.io/part-of: kerf
spec:
  selectors:
  - cel:
      expression: >-
        device.driver == 'gpu.kerf.dev' && device.attributes['gpu.kerf.dev'].type == 'mig' &&
        device.attributes['gpu.kerf.dev'].profile.replace('+', '.') == '{{ . }}'
  extendedResourceName: kerf.dev/mig-{{ . }}
{{- end }}
{{- end }}
