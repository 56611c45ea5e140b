{{/*
Copyright 2026 The Kerf Authors
SPDX-License-Identifier: Apache-2.0

kerf.translate.variables say what a pod requests in another tool's words, what has no counterpart in Kerf's, and what it
becomes. Go's sharing/translate is the same in another language: one table of pods is tried on both.
*/}}

{{/* kerf.whole is a limit of the slot s as a whole number: none where it is not there, -1 where it is no such number. */}}
{{- define "kerf.whole" -}}
({{ .name }} in s.limits ? (quantity(s.limits[{{ .name }}]).isInteger() && !quantity(s.limits[{{ .name }}]).isLessThan(quantity('0')) ? quantity(s.limits[{{ .name }}]).asInteger() : -1) : {{ .none }})
{{- end }}

{{/* kerf.foreign is true for a limit r of another tool's. */}}
{{- define "kerf.foreign" -}}
r in ['nvidia.com/gpu', 'nvidia.com/gpu.shared', 'nvidia.com/gpumem', 'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores', 'nvidia.com/priority', 'volcano.sh/vgpu-number', 'volcano.sh/vgpu-memory', 'volcano.sh/vgpu-memory-percentage', 'volcano.sh/vgpu-cores'] || r.startsWith('nvidia.com/mig-')
{{- end }}

{{/* kerf.translate.asks is true for a pod that asks in another tool's words. */}}
{{- define "kerf.translate.asks" -}}
(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c, c.?resources.?limits.orValue({}).exists(r,
      {{ include "kerf.foreign" . }})) ||
      object.metadata.?annotations.orValue({}).exists(k, k in ['gpu-fraction', 'gpu-memory'])
{{- end }}

{{- define "kerf.translate.variables" }}
{{- $replicas := int .Values.admission.translate.replicas }}
  - name: notes
    expression: object.metadata.?annotations.orValue({})
  # The containers, each with where it is.
  - name: slots
    expression: >-
{{- range $i, $part := list "initContainers" "containers" }}
      {{ if $i }}+ {{ end }}object.spec.?{{ $part }}.orValue([]).transformList(i, c, {'at': dyn('/spec/{{ $part }}/' + string(i) + '/resources/'), 'name': dyn(c.name),
      'limits': dyn(c.?resources.?limits.orValue({})), 'requests': dyn(c.?resources.?requests.orValue({})),
      'noLimits': dyn(!has(c.resources.limits)), 'noRequests': dyn(!has(c.resources.requests))})
{{- end }}
  # What KAI's and Run:ai's annotations request: it is for one container, the first one where none is named.
  - name: kai
    expression: "'gpu-fraction' in variables.notes || 'gpu-memory' in variables.notes"
  - name: kaiName
    expression: >-
      variables.notes[?'gpu-fraction-container-name'].orValue('') == '' ? object.spec.containers[0].name : variables.notes['gpu-fraction-container-name']
  - name: kaiGPUs
    expression: >-
      'gpu-fraction-num-devices' in variables.notes ? (variables.notes['gpu-fraction-num-devices'].matches('^[0-9]{1,4}$') ? int(variables.notes['gpu-fraction-num-devices']) : 0) : 1
  - name: kaiMemory
    expression: >-
      variables.notes[?'gpu-memory'].orValue('').matches('^[0-9]{1,10}$') ? int(variables.notes['gpu-memory']) : 0
  # The digits after the point; a fraction is rounded up to a percent.
  - name: kaiDigits
    expression: >-
      variables.notes[?'gpu-fraction'].orValue('').matches('^[+]?0*[.][0-9]{1,28}$') ? variables.notes['gpu-fraction'].split('.')[1] + '00' : '00'
  - name: kaiPercent
    expression: >-
      int(variables.kaiDigits.substring(0, 2)) + (variables.kaiDigits.substring(2).matches('[1-9]') ? 1 : 0)
  - name: kaiWhy
    expression: >-
      variables.notes.exists(k, k in ['gpu-fraction-limit', 'gpu-memory-limit']) ? 'gpu-fraction-limit and gpu-memory-limit have no counterpart that a pod may write: bursts come from profiles (burstMax)' :
      variables.kaiGPUs < 1 || variables.kaiGPUs > 64 ? 'gpu-fraction-num-devices is not a number of GPUs: write 1 to 64' :
      'gpu-fraction' in variables.notes && 'gpu-memory' in variables.notes ? 'gpu-fraction and gpu-memory cannot be given together: leave out one of them' :
      'gpu-fraction' in variables.notes && variables.kaiPercent == 0 ? 'gpu-fraction is not a fraction of a GPU: write a number above 0 and below 1, or request whole GPUs' :
      'gpu-memory' in variables.notes && (variables.kaiMemory < 1 || variables.kaiMemory > 16777216) ? 'gpu-memory is not an amount: write MiB as a whole number' :
      !variables.slots.exists(s, s.name == variables.kaiName) ? 'gpu-fraction-container-name is none of the pod\'s containers' : ''
  # Who asks, and in whose words.
  - name: asking
    expression: >-
      variables.slots.map(s, {'at': s.at, 'name': s.name, 'limits': s.limits, 'requests': s.requests, 'noLimits': s.noLimits, 'noRequests': s.noRequests,
      'own': dyn(s.limits.exists(r, r.startsWith('kerf.dev/'))),
      'kai': dyn(variables.kai && s.name == variables.kaiName),
      'volcano': dyn(s.limits.exists(r, r in ['volcano.sh/vgpu-number', 'volcano.sh/vgpu-memory', 'volcano.sh/vgpu-memory-percentage', 'volcano.sh/vgpu-cores']) &&
      !({{ include "kerf.whole" (dict "name" "'volcano.sh/vgpu-number'" "none" "1") }} == 0 && {{ include "kerf.whole" (dict "name" "'volcano.sh/vgpu-memory'" "none" "0") }} == 0 && {{ include "kerf.whole" (dict "name" "'volcano.sh/vgpu-memory-percentage'" "none" "0") }} == 0 && {{ include "kerf.whole" (dict "name" "'volcano.sh/vgpu-cores'" "none" "0") }} == 0)),
      'hami': dyn(s.limits.exists(r, r in ['nvidia.com/gpumem', 'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores', 'nvidia.com/priority']) &&
      !({{ include "kerf.whole" (dict "name" "'nvidia.com/gpu'" "none" "1") }} == 0 && {{ include "kerf.whole" (dict "name" "'nvidia.com/gpumem'" "none" "0") }} == 0 && {{ include "kerf.whole" (dict "name" "'nvidia.com/gpumem-percentage'" "none" "0") }} == 0 && {{ include "kerf.whole" (dict "name" "'nvidia.com/gpucores'" "none" "0") }} == 0 && {{ include "kerf.whole" (dict "name" "'nvidia.com/priority'" "none" "0") }} == 0)),
      'plain': dyn(s.limits.filter(r, (r == 'nvidia.com/gpu.shared' || r.startsWith('nvidia.com/mig-') || r == 'nvidia.com/gpu' &&
      !s.limits.exists(q, q in ['nvidia.com/gpumem', 'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores', 'nvidia.com/priority'])) && {{ include "kerf.whole" (dict "name" "r" "none" "0") }} != 0)),
      'foreign': dyn(s.limits.exists(r, {{ include "kerf.foreign" . }}))
      }).filter(s, s.kai || s.foreign)
  # So many GPUs with so much of each. n is the number of a resource of NVIDIA's plugin. none is true if all amounts are 0.
  - name: amounts
    expression: >-
      variables.asking.map(s, {'of': dyn(s), 'none': dyn(!s.kai && !s.volcano && !s.hami && s.plain.size() == 0),
      'n': dyn(s.plain.size() != 1 ? 0 : {{ include "kerf.whole" (dict "name" "s.plain[0]" "none" "0") }}),
      'gpus': dyn(s.kai ? variables.kaiGPUs : s.volcano ? {{ include "kerf.whole" (dict "name" "'volcano.sh/vgpu-number'" "none" "1") }} : s.hami ? {{ include "kerf.whole" (dict "name" "'nvidia.com/gpu'" "none" "1") }} : 1),
      'memory': dyn(s.kai ? variables.kaiMemory : s.volcano ? {{ include "kerf.whole" (dict "name" "'volcano.sh/vgpu-memory'" "none" "0") }} : {{ include "kerf.whole" (dict "name" "'nvidia.com/gpumem'" "none" "0") }}),
      'share': dyn(s.kai ? variables.kaiPercent : s.volcano ? {{ include "kerf.whole" (dict "name" "'volcano.sh/vgpu-memory-percentage'" "none" "0") }} : {{ include "kerf.whole" (dict "name" "'nvidia.com/gpumem-percentage'" "none" "0") }}),
      'cores': dyn(s.volcano ? {{ include "kerf.whole" (dict "name" "'volcano.sh/vgpu-cores'" "none" "0") }} : {{ include "kerf.whole" (dict "name" "'nvidia.com/gpucores'" "none" "0") }}),
      'priority': dyn({{ include "kerf.whole" (dict "name" "'nvidia.com/priority'" "none" "0") }})})
  # Why one of them has no counterpart; empty where it has.
  - name: judged
    expression: >-
      variables.amounts.map(a, {'of': a.of, 'none': a.none, 'n': a.n, 'gpus': a.gpus, 'memory': a.memory, 'share': a.share, 'cores': a.cores, 'why': dyn(a.none ? '' :
      (a.of.kai ? 1 : 0) + (a.of.volcano ? 1 : 0) + (a.of.hami ? 1 : 0) + a.of.plain.size() > 1 ? 'requests GPUs in several ways at once: request in one way' :
      a.of.own ? 'requests GPUs of Kerf already: leave out one of them' :
      a.of.kai ? variables.kaiWhy :
      a.of.plain.size() == 1 ? (
      a.n < 1 || a.n > 64 ? a.of.plain[0] + ' is not a number of GPUs: write 1 to 64' :
      a.of.plain[0].startsWith('nvidia.com/mig-') ? (
      !a.of.plain[0].matches('^nvidia[.]com/mig-[1-9][0-9]?g([.][1-9][0-9]{0,3}gb)?([.-][a-z][a-z0-9.]{0,31})?$') || a.of.plain[0].endsWith('.shared') ? a.of.plain[0] + ' is not the name of a MIG profile' :
      a.n > 1 ? a.of.plain[0] + ' has no counterpart above 1: a program uses one MIG instance at a time; use as many containers' : '') :
{{- if not .Values.admission.translate.gpuIsReplica }}
      a.of.plain[0] == 'nvidia.com/gpu' ? '' :
{{- end }}
{{- if $replicas }}
      a.n > 1 ? a.of.plain[0] + ' has no counterpart above 1: several replicas were no more of a GPU than one' : '') :
{{- else }}
      a.of.plain[0] + ' says no size: the chart\'s admission.translate.replicas is to say how many there were of a GPU') :
{{- end }}
      a.gpus < 0 || a.gpus > 64 || a.memory < 0 || a.memory > 16777216 || a.share < 0 || a.share > 100 || a.cores < 0 || a.cores > 100 || a.priority < 0 || a.priority > 1 ?
      'has an amount that is none: MiB, percent and numbers of GPUs are whole numbers within their bounds' :
      a.priority == 1 ? 'nvidia.com/priority has no counterpart that a pod may write: priorities come from profiles' :
      a.gpus == 0 ? 'requests a part of a GPU, and no GPU' :
      a.memory > 0 && a.share > 0 ? 'requests memory in MiB and in percent: leave out one of them' :
      a.memory > 0 || a.cores == 0 || a.share == 0 && a.cores == 100 || a.cores == a.share ? '' :
      a.share == 0 ? 'requests a part of the compute and no memory, which would be all memory of a GPU: say how much memory' :
      'requests other percents of memory and of compute: say the memory in MiB')})
  # Whether a container requests a GPU.
  - name: requests
    expression: variables.judged.exists(a, !a.none)
  # The GPUs that may be used, and those that may not.
  - name: models
    expression: >-
      {{ include "kerf.words" "nvidia.com/use-gputype" }} + {{ include "kerf.words" "nvidia.com/nouse-gputype" }}
  - name: uuids
    expression: >-
      {{ include "kerf.words" "nvidia.com/use-gpuuuid" }} + {{ include "kerf.words" "volcano.sh/vgpu-use-gpuuuid" }}
  # Why an annotation has none.
  - name: noteWhy
    expression: >-
      (variables.notes.exists(k, k in ['nvidia.com/nouse-gpuuuid', 'volcano.sh/vgpu-nouse-gpuuuid']) ? ['annotation nouse-gpuuuid has no counterpart: name those that may be used, with kerf.dev/gpu-uuid'] : []) +
      (variables.notes.exists(k, k in ['nvidia.com/vgpu-mode', 'volcano.sh/vgpu-mode'] && !(variables.notes[k] in ['hami-core', 'mps'])) ? ['annotation vgpu-mode: a part of a GPU is no MIG instance; request one with kerf.dev/mig-1g.10gb and the like'] : []) +
      (variables.notes[?'nvidia.com/numa-bind'].orValue('') == 'true' ? ['annotation nvidia.com/numa-bind has no counterpart for a part of a GPU'] : []) +
      (variables.notes[?'hami.io/gpu-scheduler-policy'].orValue('binpack') in ['binpack', 'spread'] ? [] : ['annotation hami.io/gpu-scheduler-policy: write binpack or spread']) +
      (variables.models.all(m, m.matches('^[A-Za-z0-9 ._+/()-]{1,100}$')) ? [] : ['annotation use-gputype or nouse-gputype: write names of models']) +
      (variables.uuids.all(u, u.matches('^GPU-[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$')) ? [] : ['annotation use-gpuuuid: write UUIDs as nvidia-smi -L shows them'])
  - name: why
    expression: >-
      variables.judged.filter(a, a.why != '').map(a, 'container "' + a.of.name + '" ' + a.why) +
      (variables.kai && variables.kaiWhy != '' ? [variables.kaiWhy] : []) +
      (variables.requests ? variables.noteWhy : [])
{{- end }}

{{/* kerf.translate.gives is what the pod becomes. */}}
{{- define "kerf.translate.gives" }}
{{- $replicas := int .Values.admission.translate.replicas }}
  # What each container gets, and how many GPUs it is over.
  - name: gives
    expression: >-
      variables.judged.map(a, {'of': a.of, 'over': dyn(a.of.plain.size() > 0 ? 1 : a.gpus), 'limits': dyn(a.none ? {} :
      a.of.plain.size() > 0 && a.of.plain[0].startsWith('nvidia.com/mig-') ? {a.of.plain[0].replace('nvidia.com/', 'kerf.dev/'): '1'} :
{{- if $replicas }}
      a.of.plain.size() > 0{{ if not .Values.admission.translate.gpuIsReplica }} && a.of.plain[0] != 'nvidia.com/gpu'{{ end }} ? {'kerf.dev/gpu-percent': '{{ div 100 $replicas }}'} :
{{- end }}
      a.of.plain.size() > 0 ? {'kerf.dev/gpu': string(a.n)} :
      a.memory > 0 && a.cores > 0 ? {'kerf.dev/gpu-memory-gib': string((a.memory + 1023) / 1024 * a.gpus), 'kerf.dev/gpu-percent': string(a.cores * a.gpus)} :
      a.memory > 0 ? {'kerf.dev/gpu-memory-gib': string((a.memory + 1023) / 1024 * a.gpus)} :
      a.share == 0 || a.share == 100 && !a.of.kai ? {'kerf.dev/gpu': string(a.gpus)} : {'kerf.dev/gpu-percent': string(a.share * a.gpus)})})
{{- end }}

{{/* kerf.words are those of an annotation, apart by commas and white space. */}}
{{- define "kerf.words" -}}
variables.notes[?'{{ . }}'].orValue('').replace(' ', ',').replace('\n', ',').replace('\t', ',').split(',').filter(w, w != '')
{{- end }}
