// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path"

	"github.com/kerf-gpu/kerf/hooks/oci/client"
	"github.com/kerf-gpu/kerf/hooks/oci/wire"
)

// maxSocket is the longest path of a unix socket.
const maxSocket = 107

var errUsage = errors.New("usage: kerf-hook activate --socket PATH [--request RESOURCE:COUNT] " +
	"[--grant ID] [--wait DURATION]")

// parse reads the arguments, the program's name first. It accepts "arm --ask", which OCI specs and CDI specs of earlier
// versions have. Errors wrap errUsage.
func parse(args []string) (client.Options, error) {
	if len(args) < 2 || args[1] != "activate" && args[1] != "arm" {
		return client.Options{}, errUsage
	}
	var o client.Options
	flags := flag.NewFlagSet("activate", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.Socket, "socket", "", "the agent's socket")
	flags.StringVar(&o.Amount, "request", "", "the admitted amount")
	flags.StringVar(&o.Amount, "ask", "", "the name of --request in earlier versions")
	flags.StringVar(&o.Grant, "grant", "", "the grant to activate")
	flags.DurationVar(&o.Wait, "wait", wire.HookDeadline, "how long to wait for an agent")
	if err := flags.Parse(args[2:]); err != nil {
		return client.Options{}, fmt.Errorf("%w: %w", err, errUsage)
	}
	if flags.NArg() > 0 {
		return client.Options{}, fmt.Errorf("argument %q is not expected: %w", flags.Arg(0), errUsage)
	}
	if o.Socket == "" || !path.IsAbs(o.Socket) || len(o.Socket) > maxSocket {
		return client.Options{}, fmt.Errorf("--socket %q is no absolute path of at most %d bytes: %w", o.Socket,
			maxSocket, errUsage)
	}
	if o.Wait <= 0 || o.Wait > wire.HookDeadline {
		return client.Options{}, fmt.Errorf("--wait %s is not between 0 and %s: %w", o.Wait, wire.HookDeadline,
			errUsage)
	}
	// A present but empty flag is an error in the spec. It does not mean that the flag is absent.
	var err error
	flags.Visit(func(f *flag.Flag) {
		if v := f.Value.String(); f.Name != "socket" && f.Name != "wait" && !client.IsToken(v) {
			err = fmt.Errorf("--%s %q is not 1 to %d of a-z A-Z 0-9 . : _ -: %w", f.Name, v, client.MaxTokenBytes,
				errUsage)
		}
	})
	if err != nil {
		return client.Options{}, err
	}
	return o, nil
}
