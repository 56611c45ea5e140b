// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kerf-gpu/kerf/api/gpunode"
)

// apiProxy is a proxy between a scheduler and the API server that can delay Bindings.
type apiProxy struct {
	*httptest.Server
	mu   sync.Mutex
	shut bool
	// came are the pods whose Binding came while it was shut.
	came []string
	// stop, if it is set, reports that it has taken a request, which then gets no answer.
	stop func(pass http.Handler, r *http.Request) bool
}

// throughProxy has the schedulers that are started from now on reach the API server through the proxy.
func (h *hollow) throughProxy() *apiProxy {
	h.Helper()
	target, err := url.Parse(h.config.Host)
	if err != nil {
		h.Fatal(err)
	}
	transport, err := rest.TransportFor(h.config)
	if err != nil {
		h.Fatal(err)
	}
	pass := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		// who is killed ends its watches
		Transport: transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	d := &apiProxy{}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path, binds := strings.CutSuffix(r.URL.Path, "/binding"); binds &&
			d.holds(path[strings.LastIndex(path, "/")+1:]) {
			_, _ = io.Copy(io.Discard, r.Body) // the end of who asks is seen only behind it
			<-r.Context().Done()
			return
		}
		if d.stop != nil && d.stop(pass, r) {
			return
		}
		pass.ServeHTTP(w, r)
	}))
	h.Cleanup(d.Close)
	h.server = d.URL
	return d
}

// holds tells whether a pod's Binding is held up.
func (d *apiProxy) holds(pod string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut {
		d.came = append(d.came, pod)
	}
	return d.shut
}

func (d *apiProxy) hold(shut bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = shut
}

// bindingCame returns nil once a pod's Binding is held up.
func (d *apiProxy) bindingCame(pod string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Contains(d.came, pod) {
		return fmt.Errorf("only those of %q came", d.came)
	}
	return nil
}

// A scheduler that is killed between Reserve and Bind has taken nothing. If it is killed between Bind and the node's
// report, the next scheduler knows the pod from the API server alone. No other pod gets the GPU that it was planned on,
// with the report from before or after.
func TestSchedulerKilledInBetween(t *testing.T) {
	t.Parallel()
	h := beginWithAgent(t).hollowNodes(1, 2)
	d := h.throughProxy()
	start := func() *started { return h.runScheduler(h.node.program(schedulerName), h.kerfScheduler()) }

	d.hold(true)
	first := h.pod("first", gibs(60), 0)
	s := start()
	eventually(h, "the Binding of the first pod", func() error { return d.bindingCame("first") })
	s.end()
	if o := first.get(); o.Spec.NodeName != "" {
		t.Fatalf("it was bound: %s", describe(o))
	}
	d.hold(false)
	s = start()
	on := h.where(first)

	s.end()
	s = start()
	second := h.pod("second", gibs(60), 0)
	other := h.where(second)
	if other == on {
		t.Errorf("the second is planned on %s, and so was the first by a scheduler that was killed", other)
	}
	third := h.pod("third", gibs(60), 0)
	third.event("FailedScheduling", "too little free on any one GPU")

	// The node tells of one of them; of the other it does not know yet.
	g := 0
	if on == h.gpu(0, 1) {
		g = 1
	}
	h.mustTell(0, h.holds(0, g, first, 60))
	s.end()
	start()
	small := h.pod("small", gibs(15), 0) // with it the scheduler has read all that there is
	beside := h.where(small)
	if o := third.get(); o.Spec.NodeName != "" {
		t.Errorf("the third was bound with 60 GiB, on GPUs of which 19 are free: %v", o.Annotations)
	}

	h.deleteNow(first)
	at := 0
	if beside == h.gpu(0, 1) {
		at = 1
	}
	h.mustTell(0, func(status *gpunode.Status) {
		h.holds(0, 1-g, second, 60)(status)
		h.holds(0, at, small, 15)(status)
	})
	if got := h.where(third); got != on {
		t.Errorf("the third is planned on %s, and %s has room", got, on)
	}
}
