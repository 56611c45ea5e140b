// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package assign

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// leaseNamespace and leaseName are those of the Lease of the controller that writes.
	leaseNamespace = "kerf-system"
	leaseName      = "kerf-claim-controller"
	// leaseTime is how long the Lease of a controller that is gone lasts. A controller stops writing after renewTime
	// without a renewal, which is tried each retryTime.
	leaseTime = 15 * time.Second
	renewTime = 10 * time.Second
	retryTime = 2 * time.Second
)

// errLost is why a controller ends that cannot renew its Lease.
var errLost = errors.New("another controller may have the Lease " + leaseNamespace + "/" + leaseName)

// Options say which cluster, and as whom.
type Options struct {
	// Kubeconfig is a file; empty means the service account of the pod that this process runs in.
	Kubeconfig string
	// Identity is the holder in the Lease, another one for each process.
	Identity string
	Log      *slog.Logger
}

// Run assigns claims while it has the Lease, until ctx ends. It returns an error once it has lost the Lease, and for a
// wrong configuration (sharing.ErrInvalid).
func Run(ctx context.Context, o Options) error {
	config, err := configure(o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("find the cluster: %w (%w)", err, sharing.ErrInvalid)
	}
	config.UserAgent = manager
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for %q: %w (%w)", config.Host, err, sharing.ErrInvalid)
	}
	nodes, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for %q: %w (%w)", config.Host, err, sharing.ErrInvalid)
	}
	ctx = logr.NewContext(ctx, logr.FromSlogHandler(o.Log.Handler()))
	return lead(ctx, client, o, func(ctx context.Context) error {
		c, err := newController(o.Log, client, nodes)
		if err != nil {
			return err
		}
		return c.run(ctx)
	})
}

func configure(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig() //nolint:wrapcheck // the caller does
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig) //nolint:wrapcheck // as above
}

// lead calls work once this process has the Lease. It returns nil after ctx, and else why it does not go on.
func lead(ctx context.Context, client kubernetes.Interface, o Options, work func(context.Context) error) error {
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: leaseNamespace, Name: leaseName},
			Client: client.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: o.Identity}},
		LeaseDuration: leaseTime, RenewDeadline: renewTime, RetryPeriod: retryTime, Name: leaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { ended <- work(ctx); cancel() },
			OnStoppedLeading: func() {},
		}})
	if err != nil {
		return fmt.Errorf("elect a claim controller: %w", err)
	}
	elector.Run(run)
	select {
	case err = <-ended:
	default:
	}
	if ctx.Err() != nil || err != nil {
		return err
	}
	return errLost
}
