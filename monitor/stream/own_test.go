// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	telemetryapi "github.com/kerf-gpu/kerf/api/telemetry/v1alpha1"
	"github.com/kerf-gpu/kerf/monitor/attribution"
	"github.com/kerf-gpu/kerf/monitor/collect"
	"github.com/kerf-gpu/kerf/sharing"
)

// TestOwn asks as processes of different cgroups: each gets its pod's grants and no others, and nothing of the GPU.
func TestOwn(t *testing.T) {
	grant := func(id, uid string) collect.Grant {
		return collect.Grant{
			ID: id, Name: id, Pod: "p", PodUID: uid, Container: id,
			Claims: []string{id + "/gpu"},
			Attachment: attribution.Attachment{Grant: id, Cgroup: "/cg/" + id,
				Shares: []attribution.Share{{GPU: sharing.GPURef{UUID: "GPU-0"}}}},
			Caps: []collect.Cap{{Memory: sharing.GiB}},
		}
	}
	s := &collect.Snapshot{Seq: 3, Grants: map[string]collect.Grant{
		"a": grant("a", "one"), "b": grant("b", "one"), "ab": grant("ab", "two"), "run": grant("run", ""),
		"other":   grant("other", ""),
		"waiting": {ID: "waiting", Name: "waiting"},
	}}
	d := attribution.Device{GPU: "GPU-0", Memory: attribution.Known(sharing.GiB),
		SM: attribution.Known(attribution.Ratio(1)), Listed: true}
	var attachments []attribution.Attachment
	for _, g := range s.Grants {
		attachments = append(attachments, g.Attachment)
	}
	s.GPUs = []collect.GPU{
		{Info: collect.Info{UUID: "GPU-0", Model: "H100"}, Device: d,
			Fields: map[collect.Field]float64{collect.FieldPower: 300, collect.FieldTemperature: 50},
			Use:    attribution.Attribute(d, attachments)},
		{Info: collect.Info{UUID: "GPU-1", Index: 1}, Err: sharing.ErrLost},
	}
	hub := collect.NewBroadcaster()
	ask := func(dir, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		Own(hub, dir).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		return w
	}
	if w := ask("/cg/a", "/"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("before the first sample: %d", w.Code)
	}
	hub.Publish(s)
	cases := map[string]struct {
		dir  string
		want []string
	}{
		"a container sees its pod":             {"/cg/a", []string{"a", "b"}},
		"the other container, from below":      {"/cg/b/x/y", []string{"a", "b"}},
		"one whose name begins like another's": {"/cg/ab", []string{"ab"}},
		"a process that is no pod's":           {"/cg/run", []string{"run"}},
		"an unmanaged process":                 {"/user", nil},
		"above all":                            {"/cg", nil},
		"no one knows where":                   {"", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := ask(c.dir, "/")
			if c.want == nil {
				if w.Code != http.StatusForbidden {
					t.Errorf("%d %s", w.Code, w.Body)
				}
				return
			}
			var got telemetryapi.Sample
			if err := protojson.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.GetGpus()) != 1 {
				t.Fatalf("%d %s: %v", w.Code, w.Body, err)
			}
			var ids []string
			for _, u := range got.GetGpus()[0].GetUsages() {
				ids = append(ids, u.GetGrantId())
				if want := []string{u.GetGrantId() + "/gpu"}; !slices.Equal(u.GetClaims(), want) {
					t.Errorf("grant %s has claims %v, want %v", u.GetGrantId(), u.GetClaims(), want)
				}
			}
			slices.Sort(ids)
			g := got.GetGpus()[0]
			if !slices.Equal(ids, c.want) || g.MemoryUsedBytes != nil || g.SmRatio != nil || g.PowerWatts != nil ||
				g.TemperatureCelsius != nil {
				t.Errorf("%v, want %v: %s", ids, c.want, w.Body)
			}
		})
	}
	for dir, want := range map[string]string{"/cg/a": "pod one", "/cg/b/x": "pod one", "/cg/ab": "pod two",
		"/cg/run": "run", "/user": "", "": ""} {
		if got := Tenant(hub, dir); got != want {
			t.Errorf("the tenant at %q is %q, want %q", dir, got, want)
		}
	}
	if w := ask("/cg/a", "/metrics"); w.Code != http.StatusNotFound {
		t.Errorf("elsewhere: %d", w.Code)
	}
}
