// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"maps"
	"strings"
)

// renamedKeys are the keys of pod annotations of earlier versions, with the keys that replace them.
func renamedKeys() map[string]string {
	return map[string]string{"gpus": keyGPUs, "placement": keyPlacement, "share-with": keyShareCapWith,
		"translated": keyTranslatedFrom}
}

// currentKey is the key that replaces one of an earlier version, of a pod or of one container; empty for others. The
// earlier key placement of a container belonged to the scheduler.
func currentKey(key, container string) string {
	if key == "placement" && container != "" {
		return keyScheduling
	}
	return renamedKeys()[key]
}

// keyRemedy says what to write for an unknown key.
func keyRemedy(key, container string) string {
	switch current := currentKey(key, container); {
	case current == keyScheduling:
		return "leave it out: only the scheduler sets " + keyScheduling + "." + Domain + "/" + container
	case current != "":
		return "write " + annotationName(current, container)
	}
	return "use one of " + strings.Join(annotationKeys(), ", ")
}

// annotationName joins what splitAnnotation splits.
func annotationName(key, container string) string {
	if container == "" {
		return Domain + "/" + key
	}
	return key + "." + Domain + "/" + container
}

// CurrentAnnotations returns the annotations of a bound pod with the keys of this version. A pod that an earlier
// version bound keeps its keys, and its containers must still start. Of two spellings, the current one counts.
// all is not changed.
func CurrentAnnotations(all map[string]string) map[string]string {
	var out map[string]string
	for name, value := range all {
		key, container, ours := splitAnnotation(name)
		if !ours {
			continue
		}
		current := currentKey(key, container)
		if current == "" {
			continue
		}
		if out == nil {
			out = maps.Clone(all)
		}
		delete(out, name)
		if _, has := all[annotationName(current, container)]; !has {
			out[annotationName(current, container)] = value
		}
	}
	if out == nil {
		return all
	}
	return out
}

// RenamedTaint is the taint of a new node in earlier versions, which no agent removes.
const RenamedTaint = Domain + "/starting"

// RenamedLabels are the labels of earlier versions that administrators set, with the labels that replace them.
func RenamedLabels() map[string]string {
	return map[string]string{
		Domain + "/node=true": LabelNode + "=true", Domain + "/scheduler=own": LabelScheduler + "=false",
		Domain + "/host-paths=allowed":      LabelHostPaths + "=true",
		Domain + "/privileged-pods=allowed": LabelPrivileged + "=true",
	}
}
