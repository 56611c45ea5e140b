{{/*
Copyright 2026 The Kerf Authors
SPDX-License-Identifier: Apache-2.0

kerf.amounts are the rules for what a container may request; kerf-amounts and kerf-amounts-of-templates have them in common.
The variable "spec" is the pod's.
*/}}
{{- define "kerf.amounts" }}
{{- $profile := "^kerf[.]dev/mig-[1-9][0-9]?g([.][1-9][0-9]{0,3}gb)?([.-][a-z][a-z0-9.]*)?$" }}
  # Each container that requests something of Kerf's.
  - name: asking
    expression: >-
      (variables.spec.containers + variables.spec.?initContainers.orValue([]))
      .filter(c, c.?resources.?limits.orValue({}).exists(r, r.startsWith('kerf.dev/')))
  - name: unknown
    expression: >-
      variables.asking.filter(c, c.resources.limits.exists(r, r.startsWith('kerf.dev/') && !(r in variables.known) && !r.startsWith('kerf.dev/mig-')))
  - name: memory
    expression: >-
      variables.asking.filter(c, 'kerf.dev/gpu-memory-gib' in c.resources.limits &&
      !(quantity(c.resources.limits['kerf.dev/gpu-memory-gib']).isInteger() &&
      quantity(c.resources.limits['kerf.dev/gpu-memory-gib']).isGreaterThan(quantity('0')) &&
      !quantity(c.resources.limits['kerf.dev/gpu-memory-gib']).isGreaterThan(quantity('100000'))))
  - name: percent
    expression: >-
      variables.asking.filter(c, 'kerf.dev/gpu-percent' in c.resources.limits &&
      !(quantity(c.resources.limits['kerf.dev/gpu-percent']).isInteger() &&
      quantity(c.resources.limits['kerf.dev/gpu-percent']).isGreaterThan(quantity('0')) &&
      !quantity(c.resources.limits['kerf.dev/gpu-percent']).isGreaterThan(quantity('6400'))))
  - name: whole
    expression: >-
      variables.asking.filter(c, 'kerf.dev/gpu' in c.resources.limits &&
      !(quantity(c.resources.limits['kerf.dev/gpu']).isInteger() &&
      quantity(c.resources.limits['kerf.dev/gpu']).isGreaterThan(quantity('0')) &&
      !quantity(c.resources.limits['kerf.dev/gpu']).isGreaterThan(quantity('64'))))
  # What stands after mig- is the name of a profile as the driver has it, with . for +.
  - name: misnamed
    expression: >-
      variables.asking.filter(c, c.resources.limits.exists(r, r.startsWith('kerf.dev/mig-') && !r.matches('{{ $profile }}')))
  # A program uses one MIG instance at a time, whatever it is given.
  - name: several
    expression: >-
      variables.asking.filter(c, c.resources.limits.exists(r, r.startsWith('kerf.dev/mig-') && quantity(c.resources.limits[r]).compareTo(quantity('1')) != 0))
  - name: severalOf
    expression: >-
      variables.several.map(c, c.resources.limits.filter(r, r.startsWith('kerf.dev/mig-') && quantity(c.resources.limits[r]).compareTo(quantity('1')) != 0)[0])
  # Memory and percent together are one kind; every other resource is one by itself.
  - name: mixed
    expression: >-
      variables.asking.filter(c, c.resources.limits.filter(r, r.startsWith('kerf.dev/') && !(r in ['kerf.dev/gpu-memory-gib', 'kerf.dev/gpu-percent'])).size() +
      (c.resources.limits.exists(r, r in ['kerf.dev/gpu-memory-gib', 'kerf.dev/gpu-percent']) ? 1 : 0) > 1)
  validations:
  - expression: variables.unknown.size() == 0
    reason: Invalid
    message: this is no resource of Kerf; request kerf.dev/gpu-memory-gib, kerf.dev/gpu-percent, kerf.dev/gpu or kerf.dev/mig-<profile>
    messageExpression: >-
      'container "' + variables.unknown[0].name + '" requests ' +
      variables.unknown[0].resources.limits.filter(r, r.startsWith('kerf.dev/') && !(r in variables.known) && !r.startsWith('kerf.dev/mig-'))[0] +
      ', which is no resource of Kerf; request kerf.dev/gpu-memory-gib, kerf.dev/gpu-percent, kerf.dev/gpu or kerf.dev/mig-<profile>'
  - expression: variables.memory.size() == 0
    reason: Invalid
    message: kerf.dev/gpu-memory-gib must be a whole number from 1 to 100000; write 10, the unit is GiB
    messageExpression: >-
      'container "' + variables.memory[0].name + '": kerf.dev/gpu-memory-gib must be a whole number from 1 to 100000, and is "' +
      variables.memory[0].resources.limits['kerf.dev/gpu-memory-gib'] + '"; write ' +
      (variables.memory[0].resources.limits['kerf.dev/gpu-memory-gib'].matches('^[1-9][0-9]{0,5}Gi$') ?
      variables.memory[0].resources.limits['kerf.dev/gpu-memory-gib'].replace('Gi', '') : '10') + ', the unit is GiB'
  - expression: variables.percent.size() == 0
    reason: Invalid
    message: kerf.dev/gpu-percent must be a whole number from 1 to 6400; write 25 for a quarter of one GPU
    messageExpression: >-
      'container "' + variables.percent[0].name + '": kerf.dev/gpu-percent must be a whole number from 1 to 6400, and is "' +
      variables.percent[0].resources.limits['kerf.dev/gpu-percent'] + '"; write 25 for a quarter of one GPU'
  - expression: variables.whole.size() == 0
    reason: Invalid
    message: kerf.dev/gpu must be a whole number from 1 to 64; for a part of one GPU use kerf.dev/gpu-memory-gib or kerf.dev/gpu-percent
    messageExpression: >-
      'container "' + variables.whole[0].name + '": kerf.dev/gpu must be a whole number from 1 to 64, and is "' +
      variables.whole[0].resources.limits['kerf.dev/gpu'] + '"; for a part of one GPU use kerf.dev/gpu-memory-gib or kerf.dev/gpu-percent'
  - expression: variables.misnamed.size() == 0
    reason: Invalid
    message: this is not the name of a MIG profile; write it as in kerf.dev/mig-1g.10gb, with . for +
    messageExpression: >-
      'container "' + variables.misnamed[0].name + '" requests ' +
      variables.misnamed[0].resources.limits.filter(r, r.startsWith('kerf.dev/mig-') && !r.matches('{{ $profile }}'))[0] +
      ', which is not the name of a MIG profile; write it as in kerf.dev/mig-1g.10gb, with . for +'
  - expression: variables.several.size() == 0
    reason: Invalid
    message: a container has one MIG instance, since a program uses one at a time; write 1, and use more containers, or a larger profile
    messageExpression: >-
      'container "' + variables.several[0].name + '": ' + variables.severalOf[0] + ' must be 1, and is "' +
      variables.several[0].resources.limits[variables.severalOf[0]] +
      '": a program uses one MIG instance at a time; write 1, and use more containers, or a larger profile'
  - expression: variables.mixed.size() == 0
    reason: Invalid
    message: one container requests one kind (shares, whole GPUs or MIG instances); keep one of them
    messageExpression: >-
      'container "' + variables.mixed[0].name + '" requests ' + variables.mixed[0].resources.limits.filter(r, r.startsWith('kerf.dev/')).join(', ') +
      '; one container requests one kind (shares, whole GPUs or MIG instances); keep one of them' +
      (variables.mixed[0].resources.limits.exists(r, r.startsWith('kerf.dev/mig-')) && variables.mixed[0].resources.limits.exists(r, r in ['kerf.dev/gpu-memory-gib', 'kerf.dev/gpu-percent']) ?
      '. A MIG instance has its own memory and compute, and takes no cap on top: leave the cap out, or choose another profile' : '')
{{- end }}
