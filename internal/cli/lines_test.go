// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/test/clitest"
)

// Wrong usage is 2, names the flag and what is allowed; an agent that is not there is 1.
func TestUsage(t *testing.T) {
	dir := t.TempDir()
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"status -o xml":                             {2, `--output "xml"`},
		"status --wait soon":                        {2, "write ready, or grants=N"},
		"status --wait=":                            {2, "write ready, or grants=N"},
		"status --wait grants=":                     {2, "write ready, or grants=N"},
		"status --wait grants=-1":                   {2, "negative"},
		"status --wait grants=1.5":                  {2, "whole number"},
		"status --wait grants=99999999999999999999": {2, "too many"},
		"status --wait ready --timeout 0s":          {2, "--timeout"},
		"status --wait ready --timeout -1s":         {2, "--timeout"},
		"status --wait ready --timeout soon":        {2, "--timeout"},
		"status --timeout 5s":                       {2, "--wait CONDITION"},
		"status --watch --wait ready":               {2, "--watch"},
		"status extra":                              {2, "extra"},
		"status --bogus":                            {2, "--bogus"},
		"frobnicate":                                {2, "frobnicate"},
		"metrics extra":                             {2, "extra"},
		"doctor -o xml":                             {2, `--output "xml"`},
		"version extra":                             {2, "extra"},
		"status":                                    {1, "no kerf-agent at"},
		"metrics":                                   {1, "no kerf-agent at"},
		"status --wait ready --timeout 300ms":       {1, "last seen: no kerf-agent at"},
		"version":                                   {2, "--run-dir"},
		"--version":                                 {0, ""},
		"staus":                                     {2, "did you mean kerf status?"},
		"config valdate":                            {2, "did you mean kerf config validate?"},
		"status --ouptut json":                      {2, "did you mean --output?"},
		"drain node-1/0":                            {2, "has no effect on"},
		"usage --since 1x":                          {2, "such as 24h or 7d"},
		"usage --since -1d":                         {2, "such as 24h or 7d"},
		"completion bash":                           {0, ""},
		"help":                                      {0, ""},
	} {
		t.Run(line, func(t *testing.T) {
			p := clitest.New(nil)
			code, _ := p.App.Execute(append([]string{"--run-dir", dir}, strings.Fields(line)...), Commands)
			if code != want.code || !strings.Contains(p.ErrOut.String(), want.text) {
				t.Errorf("got %d, %q; want %d, %q", code, p.ErrOut.String(), want.code, want.text)
			}
		})
	}
}
