// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kerf-gpu/kerf/hooks/oci/client"
	"github.com/kerf-gpu/kerf/hooks/oci/wire"
)

func TestParse(t *testing.T) {
	good := map[string]struct {
		args string
		want client.Options
	}{
		"guard": {"activate --socket /run/kerf/hook.sock", client.Options{Socket: "/run/kerf/hook.sock",
			Wait: time.Minute}},
		"ask": {"activate --socket /s --request gpu-memory-gib:10",
			client.Options{Socket: "/s", Amount: "gpu-memory-gib:10",
				Wait: time.Minute}},
		"of an earlier version": {"activate --socket /s --ask gpu-memory-gib:10", client.Options{Socket: "/s",
			Amount: "gpu-memory-gib:10", Wait: time.Minute}},
		"no pod": {"activate --socket /s --grant k-1a --request gpu:1", client.Options{Socket: "/s", Amount: "gpu:1",
			Grant: "k-1a", Wait: time.Minute}},
		"other wait": {"activate --socket=/s --wait=1s", client.Options{Socket: "/s", Wait: time.Second}},
	}
	for name, tc := range good {
		t.Run(name, func(t *testing.T) {
			got, err := parse(append([]string{"kerf-hook"}, strings.Fields(tc.args)...))
			if err != nil || got != tc.want {
				t.Errorf("got %+v (%v), want %+v", got, err, tc.want)
			}
		})
	}
	bad := map[string][]string{
		"nothing":         {},
		"no subcommand":   {"--socket", "/s"},
		"other":           {"disarm", "--socket", "/s"},
		"no socket":       {"activate"},
		"relative socket": {"activate", "--socket", "hook.sock"},
		"abstract socket": {"activate", "--socket", "@kerf"},
		"long socket":     {"activate", "--socket", "/" + strings.Repeat("s", 107)},
		"empty ask":       {"activate", "--socket", "/s", "--request", ""},
		"long ask":        {"activate", "--socket", "/s", "--request", strings.Repeat("a", 129)},
		"odd ask":         {"activate", "--socket", "/s", "--request", "gpu:1\n"},
		"empty grant":     {"activate", "--socket", "/s", "--grant="},
		"odd grant":       {"activate", "--socket", "/s", "--grant=../k"},
		"no wait":         {"activate", "--socket", "/s", "--wait", "0s"},
		"long wait":       {"activate", "--socket", "/s", "--wait", "61s"},
		"unknown flag":    {"activate", "--socket", "/s", "--cap", "none"},
		"argument":        {"activate", "--socket", "/s", "gpu:1"},
	}
	for name, args := range bad {
		t.Run(name, func(t *testing.T) {
			if o, err := parse(append([]string{"kerf-hook"}, args...)); !errors.Is(err, errUsage) ||
				o != (client.Options{}) {
				t.Errorf("got %+v (%v), want the usage", o, err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("--socket\x00/s\x00--request\x00gpu:1")
	f.Add("--socket=/s\x00--grant=k-1\x00--wait=1s")
	f.Fuzz(func(t *testing.T, joined string) {
		o, err := parse(append([]string{"kerf-hook", "activate"}, strings.Split(joined, "\x00")...))
		if err != nil {
			if !errors.Is(err, errUsage) {
				t.Errorf("error %v is no usage", err)
			}
			return
		}
		if o.Wait <= 0 || o.Wait > wire.HookDeadline || !strings.HasPrefix(o.Socket, "/") || o.Amount != "" &&
			!client.IsToken(o.Amount) || o.Grant != "" && !client.IsToken(o.Grant) {
			t.Errorf("%+v was taken", o)
		}
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
