// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package golden_test

import (
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/test/golden"
)

// A value has the same placeholder wherever it is, and what is alike in two runs stays.
func TestScrub(t *testing.T) {
	s := golden.NewScrubber()
	s.Know("/tmp/kf1", "DIR")
	s.Call("GRANT", "k-0123456789", "GRANT-a")
	const document = `{"at": "2026-11-23T16:05:59.991848484Z", "id": "k-0123456789", "pids": [12, 0], "gpu": "GPU-df89a287-04d9-5a89-9433-d74ca6f3ab10",
		"text": "PIDs 12, 13 use /tmp/kf1/x of GPU-df89a287-04d9-5a89-9433-d74ca6f3ab10", "memory": 4294967296, "energy": {"value": 1.5}, "list": ["b", "a"]}`
	got, err := s.JSON([]byte(document), golden.Format{
		Differ: map[string]string{"pids": "PID", "energy.value": golden.MeasuredValue}, Unordered: []string{"list"},
	})
	const want = `{
  "at": "TIME",
  "energy": {"value":"MEASURED"},
  "gpu": "GPU-#1", "id": "GRANT-a",
  "list": ["a","b"],
  "memory": 4294967296,
  "pids": ["PID-#1",0],
  "text": "PIDs PID-#1, PID-#2 use DIR/x of GPU-#1"
}`
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, golden.Diff(want, got))
	}
	if found := golden.Strange(got); len(found) > 0 {
		t.Errorf("strange: %q", found)
	}
}

// A value that looks random and has no placeholder is found, and so are two keys that become one.
func TestStrange(t *testing.T) {
	for _, text := range []string{"3ef574a1", "/tmp/x", "it took 3.2ms", "on 2026-11-23", "sha 1a2b3c4d5e6f"} {
		if len(golden.Strange(text)) != 1 {
			t.Errorf("%q: %q", text, golden.Strange(text))
		}
	}
	s := golden.NewScrubber()
	s.Know("x1", "x")
	s.Know("x2", "x")
	got, err := s.JSON([]byte(`{"x1": 1, "x2": 2}`), golden.Format{})
	if err != nil || len(golden.Strange(got)) == 0 {
		t.Errorf("%v: %s", err, got)
	}
}

// Samples keep their names, labels and values. Values of durations are replaced, and bounds have one line.
func TestMetrics(t *testing.T) {
	const exposition = `# HELP a Help.
# TYPE a gauge
a{gpu="k-0123456789"} 2
a{gpu="b"} 1
d_seconds_bucket{le="0.1"} 3
d_seconds_bucket{le="+Inf"} 4
d_seconds_sum 0.25
d_seconds_count 4
go_threads 12
`
	const want = `# HELP a Help.
# TYPE a gauge
a{gpu="GRANT-#1"} 2
a{gpu="b"} 1
d_seconds_bucket bounds 0.1 +Inf
d_seconds_count 4
d_seconds_sum MEASURED
go_threads MEASURED`
	got, err := golden.NewScrubber().Metrics(exposition, nil, nil)
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, golden.Diff(want, got))
	}
	if _, err := golden.NewScrubber().Metrics("what is this\n", nil, nil); err == nil ||
		!strings.Contains(err.Error(), "what is this") {
		t.Errorf("no sample: %v", err)
	}
}

func TestDiff(t *testing.T) {
	if got, want := golden.Diff("a\nb\nc", "a\nx\nc\nd"), "-   2 b\n+   2 x\n+   4 d\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
