// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/kerf-gpu/kerf/internal/console"
	"github.com/kerf-gpu/kerf/internal/console/auth"
	"github.com/kerf-gpu/kerf/internal/console/source"
	"github.com/kerf-gpu/kerf/internal/kube/access"
)

// options are the flags.
type options struct {
	address, certFile, keyFile, kubeconfig, prometheus string
}

// parse reads the flags. The exit status is -1 if the program goes on.
func parse(args []string, out io.Writer) (options, int) {
	var o options
	f := flag.NewFlagSet("kerf-console", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.address, "bind-address", ":8443", "address to listen on")
	f.StringVar(&o.certFile, "tls-cert-file", "", "TLS certificate; without it, the console speaks plain HTTP")
	f.StringVar(&o.keyFile, "tls-key-file", "", "key of the TLS certificate")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default: the pod's service account)")
	f.StringVar(&o.prometheus, "prometheus", "", "address of a Prometheus that scrapes kerf-monitor")
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return o, 0
	case err != nil:
		return o, 2
	case f.NArg() > 0 || (o.certFile == "") != (o.keyFile == ""):
		_, _ = fmt.Fprintln(out, "kerf-console: write --tls-cert-file and --tls-key-file together, and no argument")
		return o, 2
	}
	return o, -1
}

// run serves the console until ctx ends.
func run(ctx context.Context, o options, log *slog.Logger) error {
	api, err := access.Open(access.Options{File: o.kubeconfig})
	if err != nil {
		return err
	}
	defer api.Close()
	create := func(ctx context.Context, path string, object, into any) error {
		return api.Do(ctx, http.MethodPost, path, nil, &access.Body{Type: access.JSON, Value: object}, into)
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", o.address)
	if err != nil {
		return fmt.Errorf("listen for the console: %w", err)
	}
	log.Info("listening", "address", l.Addr().String(), "tls", o.certFile != "")
	s := console.New(console.Options{Source: source.NewCluster(api, "", o.prometheus),
		Auth: auth.NewCluster(create, time.Now), CertFile: o.certFile, KeyFile: o.keyFile, Log: log})
	return s.Run(ctx, l)
}
