// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kerf-gpu/kerf/sharing/config"
)

// A scheduler reads the config that commit b8a025f's chart wrote, and the copy that a scheduler of it kept.
func TestStoredVersion(t *testing.T) {
	old, err := os.ReadFile("../../sharing/config/testdata/v1alpha1/walk.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files := []config.File{{Name: "sharing.yaml", Data: old}}
	m := inKerf(lastGoodName, map[string]string{"sharing.yaml": string(old)})
	m.Annotations = map[string]string{hashAnnotation: config.Hash(files)}
	client := fake.NewClientset(m)
	file := filepath.Join(t.TempDir(), "sharing.yaml")
	if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := unread(t)
	r.Read(t.Context(), Sources{File: file})
	l := lastGood{newOwned(r, client, "kerf-system/"+lastGoodName, "me")}
	if err := l.look(t.Context()); err != nil || r.Err() != nil || len(r.profiles) != 4 {
		t.Fatalf("from the copy: %v, %v, %d profiles", err, r.Err(), len(r.profiles))
	}
	if err := l.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	m, err = client.CoreV1().ConfigMaps("kerf-system").Get(t.Context(), lastGoodName, metav1.GetOptions{})
	if err != nil || m.Data["sharing.yaml"] != string(old) || m.Annotations[hashAnnotation] != config.Hash(files) {
		t.Errorf("the copy changed: %v, %+v", err, m)
	}
	found := candidate("a test", files)
	if r.take(t.Context(), found); found.Err != nil || r.hash != found.Hash || config.Warning(r.files...) == "" {
		t.Errorf("from the ConfigMap: %v", found.Err)
	}
}
