// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const transcript = `$ kubectl kerf status
NODE/GPU  STATE    GRANTED  FREE     USABLE   PERCENT  ENFORCEMENT       MODEL
node-1/0  healthy  30GiB    49.1GiB  79.1GiB  0%       exclusive,driver  NVIDIA H100 80GB HBM3

GRANT             NODE/GPU  STATE   MEMORY  PERCENT  LEVEL
team/a/main       node-1/0  Active  10GiB   -        driver
team/b/main       node-1/0  Active  20GiB   -        driver
team/other/main   node-2/0  Active  20GiB   -        driver
$ kubectl logs b
gpuload[7]: allocated <9216.0 MiB>, CUDA_ERROR_OUT_OF_MEMORY
`

func TestDraw(t *testing.T) {
	svg, err := draw(transcript)
	if err != nil {
		t.Fatal(err)
	}
	text := string(svg)
	for _, want := range []string{">a<", ">b<", ">free<", ">10 GiB<", ">20 GiB<", ">49.1 GiB<",
		"NVIDIA H100 80GB HBM3, 79.1 GiB, shared by 2 pods", "&lt;9216.0 MiB&gt;"} {
		if !strings.Contains(text, want) {
			t.Errorf("the picture lacks %q", want)
		}
	}
	if strings.Contains(text, ">other<") {
		t.Error("the picture has a share of another GPU")
	}
	decoder := xml.NewDecoder(strings.NewReader(text))
	for err == nil {
		_, err = decoder.Token()
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("not well-formed: %v", err)
	}
}

func TestDrawRejects(t *testing.T) {
	for name, text := range map[string]string{
		"no GPU":        "$ kubectl kerf status\n",
		"no share":      strings.ReplaceAll(transcript, "Active", "Reserved"),
		"too many GiB":  strings.Replace(transcript, "20GiB   -", "90GiB   -", 1),
		"another state": strings.ReplaceAll(transcript, "healthy", "lost"),
	} {
		if _, err := draw(text); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "a.txt"), filepath.Join(dir, "a.svg")
	if err := os.WriteFile(in, []byte(transcript), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{in, out}); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"--check", in, out}); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(out, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"--check", in, out}); err == nil || !strings.Contains(err.Error(), "make generate") {
		t.Errorf("an old picture: %v", err)
	}
	if err := run(nil); err == nil {
		t.Error("no arguments: no error")
	}
}
