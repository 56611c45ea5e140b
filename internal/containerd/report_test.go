// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package containerd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	introspectionv1 "github.com/containerd/containerd/api/services/introspection/v1"
	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/test/eventually"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReport(t *testing.T) {
	nri := []*introspectionv1.Plugin{{Type: nriPlugin, ID: "nri"}}
	systemd := criv1.CgroupDriver_SYSTEMD
	dirs := []string{"/etc/cdi", "/var/run/cdi"}
	tests := map[string]struct {
		fake *fake
		want Report
	}{
		"containerd 2.4": {
			&fake{name: "containerd", version: "v2.4.2", config: string(golden(t, "containerd-2.4.json")), plugins: nri,
				driver: &systemd},
			Report{
				Name: "containerd", Version: "2.4.2", CRI: Yes, CDI: Yes, CDIDirs: dirs, CgroupDriver: CgroupSystemd,
				DefaultRuntime: "runc", Handlers: []Handler{{Name: "runc", Type: runc}},
			},
		},
		"1.6 has no NRI": {
			&fake{name: "containerd", version: "1.6.20~ds1", config: `{"containerd":{}}`},
			Report{Name: "containerd", Version: "1.6.20~ds1", CRI: Yes, NRI: No, CDI: No,
				Unchecked: []string{"the cgroup driver is not known"}},
		},
		"NRI that failed": {
			&fake{
				name: "containerd", version: "2.1.0", config: `{}`, driver: &systemd,
				plugins: []*introspectionv1.Plugin{
					{Type: nriPlugin, InitErr: &rpcstatus.Status{Message: "address in use"}}},
			},
			Report{Name: "containerd", Version: "2.1.0", CRI: Yes, NRI: No, CDI: Yes, CgroupDriver: CgroupSystemd,
				Unchecked: []string{"NRI did not start: address in use"}},
		},
		"docker's containerd": {
			&fake{version: "1.7.24", plugins: nri},
			Report{Name: "containerd", Version: "1.7.24", CRI: No,
				Unchecked: []string{
					"its CDI, cgroup driver and runtimes are settings of the CRI plugin, which is off"}},
		},
		"another": {
			&fake{name: "frakti", version: "3", driver: &systemd},
			Report{Name: "frakti", Version: "3", CRI: Yes, CgroupDriver: CgroupSystemd,
				Unchecked: []string{`"frakti" is a container runtime that Kerf does not know`}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, _ := open(t, tt.fake)
			got, err := c.Report(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// CRI-O's configuration comes over HTTP on the socket that gRPC uses; a CRI-O that does not serve it is said
// to be silent.
func TestReportOfCRIO(t *testing.T) {
	c, path := open(t, &fake{name: "CRI-O", version: "1.31.0"})
	r, err := c.Report(t.Context())
	if err != nil || r.Name != NameCRIO || r.NRI != Unknown || len(r.Unchecked) != 2 ||
		!strings.Contains(r.Unchecked[0], "crio status config") {
		t.Errorf("silent: %+v, %v", r, err)
	}
	l, err := net.Listen("unix", path+"2")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/config" {
				_, _ = w.Write(golden(t, "crio-1.31.toml"))
			}
		})}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	defer func() { _ = s.Close(); <-done }()
	c.socket = path + "2"
	r = Report{Name: NameCRIO}
	c.reportCRIO(t.Context(), &r)
	if r.NRI != Yes || r.CDI != Yes || r.CgroupDriver != CgroupSystemd || len(r.Unchecked) != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestNoRuntime(t *testing.T) {
	c, path := open(t, nil)
	if _, err := c.Report(t.Context()); !errors.Is(err, ErrNoRuntime) || !strings.Contains(err.Error(), path) {
		t.Errorf("absent: %v", err)
	}
	// It comes and goes, and the same client finds it.
	f := &fake{name: "containerd", version: "2.4.2", config: `{}`}
	f.start(t, path)
	eventually.True(t, "the condition", func() bool { _, err := c.Report(t.Context()); return err == nil })
	f.stop()
	if _, err := c.Report(t.Context()); err == nil || !errors.Is(err, sharing.ErrUnavailable) &&
		!errors.Is(err, ErrNoRuntime) {
		t.Errorf("gone: %v", err)
	}
	again := &fake{name: "containerd", version: "2.4.3", config: `{}`}
	again.start(t, path)
	eventually.True(t, "the condition", func() bool {
		r, err := c.Report(t.Context())
		return err == nil &&
			r.Version == "2.4.3"
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Report(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestProbeNRI(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nri.sock")
	if got := ProbeNRI(t.Context(), path); got != No {
		t.Errorf("absent: %s", got)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if got := ProbeNRI(t.Context(), path); got != Yes {
		t.Errorf("listening: %s", got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ProbeNRI(t.Context(), path); got != No {
		t.Errorf("left over: %s", got)
	}
}

func TestTimeouts(t *testing.T) {
	for method, want := range map[string]time.Duration{
		"/containerd.services.tasks.v1.Tasks/Wait":             0,
		"/containerd.services.tasks.v1.Tasks/Create":           createTimeout,
		"/containerd.services.tasks.v1.Tasks/List":             callTimeout,
		"/containerd.services.diff.v1.Diff/Apply":              unpackTimeout,
		"/containerd.services.containers.v1.Containers/Create": callTimeout,
		"/runtime.v1.RuntimeService/Status":                    callTimeout,
	} {
		if got := timeoutOf(method); got != want {
			t.Errorf("%s: %s, want %s", method, got, want)
		}
	}
}

// Errors keep their kind, whether they come from the wire or from containerd's own client, and say when the
// runtime is not there.
func TestKinds(t *testing.T) {
	c, _ := open(t, &fake{version: "2.4.2"})
	for _, tt := range []struct{ err, want error }{
		{status.Error(codes.NotFound, "x"), sharing.ErrNotFound},
		{fmt.Errorf("a: %w", status.Error(codes.AlreadyExists, "x")), sharing.ErrConflict},
		{fmt.Errorf("a: %w", errdefs.ErrInvalidArgument), sharing.ErrInvalid},
		{errdefs.ErrNotImplemented, sharing.ErrUnsupported},
		{errors.Join(errdefs.ErrPermissionDenied), sharing.ErrDenied},
		{status.Error(codes.ResourceExhausted, "x"), sharing.ErrExhausted},
		{context.DeadlineExceeded, sharing.ErrUnavailable},
		{sharing.Invalid("f", "v", "r", "p"), sharing.ErrInvalid},
		{errors.New("x"), sharing.ErrUnavailable},
	} {
		if got := c.Plain(t.Context(), "do it", tt.err); !errors.Is(got, tt.want) ||
			!strings.HasPrefix(got.Error(), "do it: ") {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.want)
		}
	}
}
