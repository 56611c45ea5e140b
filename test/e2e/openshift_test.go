// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// constraints are the parts of OpenShift's SecurityContextConstraints by which its API server rejects pods.
type constraints struct {
	HostDir       bool                `json:"allowHostDirVolumePlugin"`
	HostIPC       bool                `json:"allowHostIPC"`
	HostNetwork   bool                `json:"allowHostNetwork"`
	HostPID       bool                `json:"allowHostPID"`
	HostPorts     bool                `json:"allowHostPorts"`
	Privileged    bool                `json:"allowPrivilegedContainer"`
	Escalation    bool                `json:"allowPrivilegeEscalation"`
	Capabilities  []corev1.Capability `json:"allowedCapabilities"`
	ReadOnlyRoot  bool                `json:"readOnlyRootFilesystem"`
	Volumes       []string            `json:"volumes"`
	Users         []string            `json:"users"`
	NonRoot       bool                `json:"-"`
	OwnCapability bool                `json:"-"` // whether a container can keep the runtime's default capabilities
}

// nonRoot is what OpenShift's nonroot-v2 allows.
// https://docs.redhat.com/en/documentation/openshift_container_platform/4.17/html/authentication_and_authorization/managing-pod-security-policies
var nonRoot = constraints{Capabilities: []corev1.Capability{"NET_BIND_SERVICE"}, NonRoot: true,
	Volumes: []string{"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected",
		"secret"}}

// withConstraints gives the API server OpenShift's kind of security objects, until the test ends.
func (s *system) withConstraints() {
	s.Helper()
	kinds := s.buildOperator("openshift") + ".yaml"
	text, err := os.ReadFile(kinds)
	if err != nil {
		s.Fatal(err)
	}
	if err := s.apply(string(text)); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if r := s.kubectl("", "delete", "--timeout=60s", "-f", kinds); r.err != nil {
			s.Error(r)
		}
	})
	s.types("kubectl wait --for=condition=Established --timeout=60s -f " + kinds)
}

// admitted fails the test unless OpenShift would admit each of Kerf's pods: kerf-scheduler by nonroot-v2, and the
// others by what the chart installed. OpenShift's own admission is not there.
func (s *system) admitted() {
	s.Helper()
	var ours constraints
	out := s.types("kubectl get securitycontextconstraints kerf -o json")
	if err := json.Unmarshal([]byte(out), &ours); err != nil {
		s.Fatal(err)
	}
	ours.OwnCapability = true
	pods, err := s.client.CoreV1().Pods(kerfNamespace).List(background(), metav1.ListOptions{})
	if err != nil || len(pods.Items) == 0 {
		s.Fatalf("%d pods: %v", len(pods.Items), err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		by := ours
		user := "system:serviceaccount:" + kerfNamespace + ":" + p.Spec.ServiceAccountName
		if p.Spec.ServiceAccountName == "kerf-scheduler" {
			by = nonRoot
		} else if !slices.Contains(ours.Users, user) {
			s.Errorf("%s: no constraints for %s", p.Name, user)
		}
		for _, why := range by.rejects(&p.Spec) {
			s.Errorf("OpenShift rejects %s: %s", p.Name, why)
		}
		if p.Labels["app.kubernetes.io/name"] == "kerf-agent" && len(nonRoot.rejects(&p.Spec)) < 3 {
			s.Errorf("the check accepts %s by constraints that reject it", p.Name)
		}
	}
}

// rejects is why the constraints reject a pod.
func (c *constraints) rejects(p *corev1.PodSpec) (why []string) {
	no := func(rejected bool, format string, args ...any) {
		if rejected {
			why = append(why, fmt.Sprintf(format, args...))
		}
	}
	no(p.HostIPC && !c.HostIPC, "hostIPC")
	no(p.HostNetwork && !c.HostNetwork, "hostNetwork")
	no(p.HostPID && !c.HostPID, "hostPID")
	for _, v := range p.Volumes {
		kind := volumeKind(v.VolumeSource)
		no(!slices.Contains(c.Volumes, kind) || kind == "hostPath" && !c.HostDir, "volume %s is a %s", v.Name, kind)
	}
	for _, o := range slices.Concat(p.InitContainers, p.Containers) {
		for _, part := range c.rejectsContainer(&o, p.SecurityContext) {
			no(true, "%s: %s", o.Name, part)
		}
	}
	return why
}

func (c *constraints) rejectsContainer(o *corev1.Container, pod *corev1.PodSecurityContext) (why []string) {
	sc := o.SecurityContext
	if sc == nil {
		return []string{"no security context"}
	}
	is := func(b *bool) bool { return b != nil && *b }
	no := func(rejected bool, text string) {
		if rejected {
			why = append(why, text)
		}
	}
	no(is(sc.Privileged) && !c.Privileged, "privileged")
	no(is(sc.AllowPrivilegeEscalation) && !c.Escalation, "allowPrivilegeEscalation")
	no(c.ReadOnlyRoot && sc.ReadOnlyRootFilesystem != nil && !*sc.ReadOnlyRootFilesystem, "root file system")
	for _, port := range o.Ports {
		no(port.HostPort != 0 && !c.HostPorts, "host port")
	}
	var add, drop []corev1.Capability
	if sc.Capabilities != nil {
		add, drop = sc.Capabilities.Add, sc.Capabilities.Drop
	}
	for _, name := range add {
		no(!slices.Contains(c.Capabilities, name), "capability "+string(name))
	}
	no(!c.OwnCapability && !slices.Contains(drop, "ALL"), "does not drop ALL")
	user := sc.RunAsUser
	if user == nil && pod != nil {
		user = pod.RunAsUser
	}
	no(c.NonRoot && (user == nil || *user == 0), "no user other than root")
	if p := sc.SeccompProfile; p != nil {
		no(p.Type != corev1.SeccompProfileTypeRuntimeDefault, "seccomp profile "+string(p.Type))
	}
	return why
}

// volumeKind is the name of a kind of volume in the constraints, which is that of the field.
func volumeKind(v corev1.VolumeSource) string {
	value := reflect.ValueOf(v)
	for i := range value.NumField() {
		if !value.Field(i).IsNil() {
			name, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return "emptyDir"
}
