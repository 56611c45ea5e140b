// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path"
	"time"
)

const (
	// maxWait is half of the timeout that the hook has in its spec: the hook ends by itself, with its own
	// words, well before the runtime ends it.
	maxWait = 60 * time.Second
	// maxSocket is the longest path of a unix socket.
	maxSocket = 107
	// maxWord is the longest ask and grant; the agent looks at what they say.
	maxWord = 128
)

var errUsage = errors.New("usage: kerf-hook arm --socket PATH [--ask RESOURCE:COUNT] [--grant ID] [--wait DURATION]")

// options is what the arguments say.
type options struct {
	socket string
	ask    string
	grant  string
	wait   time.Duration
}

// parse reads the arguments, the program's name first. Errors wrap errUsage.
func parse(args []string) (options, error) {
	if len(args) < 2 || args[1] != "arm" {
		return options{}, errUsage
	}
	var o options
	flags := flag.NewFlagSet("arm", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.socket, "socket", "", "the agent's socket")
	flags.StringVar(&o.ask, "ask", "", "the amount that was admitted")
	flags.StringVar(&o.grant, "grant", "", "the claim to arm")
	flags.DurationVar(&o.wait, "wait", maxWait, "how long to wait for an agent")
	if err := flags.Parse(args[2:]); err != nil {
		return options{}, fmt.Errorf("%w: %w", err, errUsage)
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("argument %q is not expected: %w", flags.Arg(0), errUsage)
	}
	if o.socket == "" || !path.IsAbs(o.socket) || len(o.socket) > maxSocket {
		return options{}, fmt.Errorf("--socket %q is no absolute path of at most %d bytes: %w", o.socket, maxSocket, errUsage)
	}
	if o.wait <= 0 || o.wait > maxWait {
		return options{}, fmt.Errorf("--wait %s is not between 0 and %s: %w", o.wait, maxWait, errUsage)
	}
	// A flag that is there and says nothing is a mistake of who wrote the spec, not the same as no flag.
	var err error
	flags.Visit(func(f *flag.Flag) {
		if v := f.Value.String(); (f.Name == "ask" || f.Name == "grant") && !isWord(v) {
			err = fmt.Errorf("--%s %q is not 1 to %d of a-z A-Z 0-9 . : _ -: %w", f.Name, v, maxWord, errUsage)
		}
	})
	if err != nil {
		return options{}, err
	}
	return o, nil
}

func isWord(s string) bool {
	if s == "" || len(s) > maxWord {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlnum(c) && c != '.' && c != ':' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
