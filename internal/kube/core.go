// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
)

// core asks for the kinds of the group "" that are used here. The client library's own client of that group knows the
// kinds of all groups, which is half of what such a program holds in memory.
type core struct {
	rest   rest.Interface
	params runtime.ParameterCodec
}

// newCore makes one that speaks through h.
func newCore(c *rest.Config, h *http.Client) (*core, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	utilruntime.Must(corev1.AddToScheme(scheme)) // it fails only for kinds that contradict each other
	config, version := *c, corev1.SchemeGroupVersion
	config.GroupVersion, config.APIPath = &version, "/api"
	config.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(scheme, serializer.NewCodecFactory(scheme)).WithoutConversion()
	client, err := rest.RESTClientForConfigAndClient(&config, h)
	if err != nil {
		return nil, err
	}
	return &core{client, runtime.NewParameterCodec(scheme)}, nil
}

// RESTClient is for what has no kind here.
func (c *core) RESTClient() rest.Interface { return c.rest }

// Pods are those of a namespace, or all.
func (c *core) Pods(namespace string) *gentype.ClientWithList[*corev1.Pod, *corev1.PodList] {
	return gentype.NewClientWithList("pods", c.rest, c.params, namespace,
		func() *corev1.Pod { return &corev1.Pod{} }, func() *corev1.PodList { return &corev1.PodList{} }, gentype.PrefersProtobuf[*corev1.Pod]())
}

// ConfigMaps are those of a namespace.
func (c *core) ConfigMaps(namespace string) *gentype.ClientWithList[*corev1.ConfigMap, *corev1.ConfigMapList] {
	return gentype.NewClientWithList("configmaps", c.rest, c.params, namespace,
		func() *corev1.ConfigMap { return &corev1.ConfigMap{} }, func() *corev1.ConfigMapList { return &corev1.ConfigMapList{} }, gentype.PrefersProtobuf[*corev1.ConfigMap]())
}

// Nodes are all.
func (c *core) Nodes() *gentype.ClientWithList[*corev1.Node, *corev1.NodeList] {
	return gentype.NewClientWithList("nodes", c.rest, c.params, "",
		func() *corev1.Node { return &corev1.Node{} }, func() *corev1.NodeList { return &corev1.NodeList{} }, gentype.PrefersProtobuf[*corev1.Node]())
}

// Events are those of a namespace.
func (c *core) Events(namespace string) *gentype.Client[*corev1.Event] {
	return gentype.NewClient("events", c.rest, c.params, namespace,
		func() *corev1.Event { return &corev1.Event{} }, gentype.PrefersProtobuf[*corev1.Event]())
}
