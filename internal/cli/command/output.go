// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/kerf-gpu/kerf/internal/present"
	"github.com/kerf-gpu/kerf/sharing"
)

// OutputFlag defines -o for a command whose answer is text for users, or JSON or YAML for scripts.
func OutputFlag(c *cobra.Command, output *string) {
	c.Flags().StringVarP(output, "output", "o", "", "json or yaml")
	Complete(c, "output", "json", "yaml")
}

// CheckOutput checks what -o says.
func CheckOutput(output string) error {
	switch output {
	case "", "json", "yaml":
		return nil
	}
	return Misused(sharing.Invalid("--output", output, "write json or yaml, or leave it out",
		"is not a form of output"))
}

// Answer writes v in the form that output requires, or the text for users.
func (a *App) Answer(output string, v any, text func() string) error {
	if output == "" {
		_, err := io.WriteString(a.Out, text())
		return err //nolint:wrapcheck // of the output
	}
	data, err := Encoded(output, v)
	if err == nil {
		_, err = a.Out.Write(data)
	}
	return err //nolint:wrapcheck // of the output
}

// ReadBounded reads a file, or the standard input for "-". It reads one byte more than most at the most, so the reader
// of its content can reject it as too large.
func (a *App) ReadBounded(name string, most int64) ([]byte, error) {
	in := a.In
	if name != "-" {
		f, err := os.Open(name) // #nosec G304 -- the user names it
		if err != nil {
			return nil, fmt.Errorf("read input: %w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, most+1))
	if err != nil {
		return nil, fmt.Errorf("read input: %w", err)
	}
	return data, nil
}

// days is a flag's value: a time as Go writes it, such as 1h30m, or as Prometheus does, such as 7d or 2w.
type days struct{ to *time.Duration }

// DaysFlag defines a flag for a time that may be as long as days or weeks.
func DaysFlag(c *cobra.Command, to *time.Duration, name string, value time.Duration, usage string) {
	*to = value
	c.Flags().Var(days{to}, name, usage)
}

// Type names the kind of value in the help.
func (d days) Type() string { return "duration" }

func (d days) String() string {
	if d.to == nil {
		return ""
	}
	return model.Duration(*d.to).String()
}

// Set reads the value. It must be above zero.
func (d days) Set(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil {
		var p model.Duration
		p, err = model.ParseDuration(s)
		v = time.Duration(p)
	}
	if err != nil || v <= 0 {
		return errors.New("write a time with a unit, such as 24h or 7d")
	}
	*d.to = v
	return nil
}

// Encoded is a value for scripts.
func Encoded(form string, v any) ([]byte, error) {
	if form == "yaml" {
		return present.YAML(v)
	}
	return present.JSON(v, true)
}

// UserName is the name of a user id, or empty when there is none.
func UserName(uid uint32) string {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return ""
	}
	return u.Username
}
