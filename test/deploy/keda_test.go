// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	strict "sigs.k8s.io/yaml"
)

// These types have each documented field of KEDA's ScaledObject:
// https://keda.sh/docs/latest/reference/scaledobject-spec/.
type (
	scaledObject struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              scaledSpec `json:"spec"`
	}
	scaledSpec struct {
		ScaleTargetRef struct {
			APIVersion  string `json:"apiVersion"`
			Kind        string `json:"kind"`
			Name        string `json:"name"`
			EnvSourceOf string `json:"envSourceContainerName"`
		} `json:"scaleTargetRef"`
		PollingInterval       *int32         `json:"pollingInterval"`
		CooldownPeriod        *int32         `json:"cooldownPeriod"`
		InitialCooldownPeriod *int32         `json:"initialCooldownPeriod"`
		IdleReplicaCount      *int32         `json:"idleReplicaCount"`
		MinReplicaCount       *int32         `json:"minReplicaCount"`
		MaxReplicaCount       *int32         `json:"maxReplicaCount"`
		Fallback              *scaleFallback `json:"fallback"`
		Advanced              *scaleAdvanced `json:"advanced"`
		Triggers              []scaleTrigger `json:"triggers"`
	}
	scaleFallback struct {
		FailureThreshold int32  `json:"failureThreshold"`
		Replicas         int32  `json:"replicas"`
		Behavior         string `json:"behavior"`
	}
	scaleAdvanced struct {
		RestoreToOriginalReplicaCount bool `json:"restoreToOriginalReplicaCount"`
		HorizontalPodAutoscalerConfig *struct {
			Name     string                                         `json:"name"`
			Behavior *autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior"`
		} `json:"horizontalPodAutoscalerConfig"`
		ScalingModifiers *struct {
			Target           string `json:"target"`
			ActivationTarget string `json:"activationTarget"`
			MetricType       string `json:"metricType"`
			Formula          string `json:"formula"`
		} `json:"scalingModifiers"`
	}
	scaleTrigger struct {
		Type              string            `json:"type"`
		Name              string            `json:"name"`
		Metadata          map[string]string `json:"metadata"`
		MetricType        string            `json:"metricType"`
		UseCachedMetrics  bool              `json:"useCachedMetrics"`
		AuthenticationRef *struct {
			Name string `json:"name"`
			Kind string `json:"kind"`
		} `json:"authenticationRef"`
	}
)

// prometheusKeys are the documented keys of the trigger: https://keda.sh/docs/latest/scalers/prometheus/.
func prometheusKeys() []string {
	return []string{"serverAddress", "query", "threshold", "activationThreshold", "namespace", "customHeaders",
		"ignoreNullValues", "queryParameters", "unsafeSsl", "timeout", "authModes"}
}

// decodeStrictly decodes as the API server does: a number is no string, and each key is a field.
func decodeStrictly(text string, into any) error {
	data, err := strict.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return fmt.Errorf("read YAML: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("read %T: %w", into, err)
	}
	return nil
}

// scaledObjectOf decodes a ScaledObject strictly, and checks what its fields allow.
func scaledObjectOf(text string) (o scaledObject, err error) {
	if err := decodeStrictly(text, &o); err != nil {
		return o, err
	}
	s := o.Spec
	least, most := int32(0), int32(100)
	if s.MinReplicaCount != nil {
		least = *s.MinReplicaCount
	}
	if s.MaxReplicaCount != nil {
		most = *s.MaxReplicaCount
	}
	switch {
	case o.APIVersion != "keda.sh/v1alpha1" || o.Kind != "ScaledObject" || o.Name == "":
		err = fmt.Errorf("no ScaledObject: %v %q", o.TypeMeta, o.Name)
	case s.ScaleTargetRef.Name == "":
		err = errors.New("scaleTargetRef has no name")
	case least < 0 || most < max(1, least):
		err = fmt.Errorf("replicas from %d to %d", least, most)
	case s.IdleReplicaCount != nil && *s.IdleReplicaCount >= least:
		err = fmt.Errorf("idleReplicaCount %d is not below %d", *s.IdleReplicaCount, least)
	case len(s.Triggers) == 0:
		err = errors.New("no triggers")
	}
	for _, t := range s.Triggers {
		if err == nil {
			err = t.check()
		}
	}
	return o, err
}

// check checks a trigger of type prometheus.
func (t scaleTrigger) check() error {
	m := t.Metadata
	for key := range m {
		if !slices.Contains(prometheusKeys(), key) {
			return fmt.Errorf("the trigger has no field %s", key)
		}
	}
	server, err := url.Parse(m["serverAddress"])
	switch {
	case t.Type != "prometheus":
		return fmt.Errorf("trigger of type %q", t.Type)
	case !slices.Contains([]string{"", "AverageValue", "Value"}, t.MetricType):
		return fmt.Errorf("metricType %q", t.MetricType)
	case err != nil || server.Host == "":
		return fmt.Errorf("serverAddress %q", m["serverAddress"])
	case m["query"] == "":
		return errors.New("no query")
	case t.AuthenticationRef != nil && t.AuthenticationRef.Name == "":
		return errors.New("authenticationRef has no name")
	}
	if _, err := strconv.ParseFloat(m["threshold"], 64); err != nil {
		return fmt.Errorf("threshold %q", m["threshold"])
	}
	return nil
}

// autoscalerOf decodes a HorizontalPodAutoscaler strictly, and checks what the API server checks.
func autoscalerOf(text string) (h autoscalingv2.HorizontalPodAutoscaler, err error) {
	if err := decodeStrictly(text, &h); err != nil {
		return h, err
	}
	least := int32(1)
	if h.Spec.MinReplicas != nil {
		least = *h.Spec.MinReplicas
	}
	ref := h.Spec.ScaleTargetRef
	switch {
	case h.APIVersion != "autoscaling/v2" || h.Kind != "HorizontalPodAutoscaler" || h.Name == "":
		return h, fmt.Errorf("no HorizontalPodAutoscaler: %v %q", h.TypeMeta, h.Name)
	case least < 1 || h.Spec.MaxReplicas < least:
		return h, fmt.Errorf("replicas from %d to %d", least, h.Spec.MaxReplicas)
	case ref.Kind == "" || ref.Name == "":
		return h, fmt.Errorf("scaleTargetRef %+v", ref)
	case len(h.Spec.Metrics) == 0:
		return h, errors.New("no metrics")
	}
	for _, m := range h.Spec.Metrics {
		if m.Type != autoscalingv2.PodsMetricSourceType || m.Pods == nil || m.Pods.Metric.Name == "" ||
			m.Pods.Target.Type != autoscalingv2.AverageValueMetricType || m.Pods.Target.AverageValue == nil ||
			m.Pods.Target.AverageValue.Sign() <= 0 {
			return h, fmt.Errorf("metric %+v", m)
		}
	}
	return h, nil
}

// TestAutoscalerSchemas: the schemas accept the examples. They reject an unknown field, a wrong type, and a missing or
// impossible value.
func TestAutoscalerSchemas(t *testing.T) {
	hpa, keda := read(t, "deploy/monitoring/autoscaling/hpa.yaml"), read(t, "deploy/monitoring/autoscaling/keda.yaml")
	if _, err := autoscalerOf(hpa); err != nil {
		t.Error(err)
	}
	if _, err := scaledObjectOf(keda); err != nil {
		t.Error(err)
	}
	for _, c := range [][2]string{
		{"minReplicas: 1", "minimumReplicas: 1"}, {"maxReplicas: 8", "maxReplicas: many"},
		{"maxReplicas: 8", "maxReplicas: 0"}, {"averageValue: 700m", "averageUtilization: 70"},
		{"type: Pods", "type: Resource"}, {"    name: server\n", ""}, {"autoscaling/v2", "autoscaling/v1"},
		{"stabilizationWindowSeconds", "windowSeconds"},
	} {
		if _, err := autoscalerOf(changed(t, hpa, c)); err == nil {
			t.Errorf("hpa.yaml with %q is valid", c[1])
		}
	}
	for _, c := range [][2]string{
		{"minReplicaCount: 1", "minReplicas: 1"}, {"maxReplicaCount: 8", `maxReplicaCount: "8"`},
		{"maxReplicaCount: 8", "maxReplicaCount: 0"}, {"minReplicaCount: 1", "minReplicaCount: 9"},
		{"minReplicaCount: 1", "idleReplicaCount: 0"}, {`threshold: "0.7"`, "threshold: 0.7"},
		{`threshold: "0.7"`, `threshold: most`}, {"metricType: Value", "metricType: Utilization"},
		{"type: prometheus", "type: cpu"}, {"serverAddress: http://", "serverAddress: /"},
		{"serverAddress", "address"}, {"query: |", "promql: |"}, {"    name: server\n", "    kind: Deployment\n"},
		{"cooldownPeriod", "cooldownSeconds"},
	} {
		if _, err := scaledObjectOf(changed(t, keda, c)); err == nil {
			t.Errorf("keda.yaml with %q is valid", c[1])
		}
	}
}

// changed has one place of a text in another form.
func changed(t *testing.T, text string, change [2]string) string {
	t.Helper()
	if !strings.Contains(text, change[0]) {
		t.Fatalf("no %q", change[0])
	}
	return strings.Replace(text, change[0], change[1], 1)
}
