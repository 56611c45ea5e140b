// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/kerf-gpu/kerf/sharing/config"
)

// Page is the reference as a page in Markdown.
func Page() []byte {
	var out bytes.Buffer
	out.WriteString("# SharingConfig reference\n\n" +
		"`make generate` writes this page from the code. [Configuration](../operate/configuration.md) says how to " +
		"use the config.\n" +
		"Editors can check it with [sharingconfig.schema.json](../../deploy/sharingconfig.schema.json).\n\n" +
		"- A memory amount is a text with a unit (`10GiB`, `512MiB`) or a number of bytes.\n" +
		"- A time has a unit (`30s`, `1h30m`).\n" +
		"- A glob matches the name of the GPU model. `*` matches any text.\n" +
		"- A field that is left out has its default. A dash means that there is none.\n")
	section(&out, "", config.Describe().Fields)
	return out.Bytes()
}

// Renames are the renamed fields and values of the SharingConfig as a section in Markdown.
func Renames() []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, "## SharingConfig\n\n`%s` replaces `%s`. `kerf config migrate` converts files.\n"+
		"For one release, agent and scheduler also read the old version, and accept `client` in the new one.\n\n"+
		"| field of | old | new |\n|---|---|---|\n", config.APIVersion, config.OldAPIVersion)
	for _, r := range config.Renames() {
		fmt.Fprintf(&out, "| `%s` | `%s` | `%s` |\n", r.Where, r.Old, r.New)
	}
	return out.Bytes()
}

// section writes the fields of one mapping, and then those of the mappings in it.
func section(out *bytes.Buffer, path string, fields []config.Field) {
	title := "Top level"
	if path != "" {
		title = "`" + path + "`"
	}
	fmt.Fprintf(out, "\n## %s\n\n| field | value | left out | meaning |\n|---|---|---|---|\n", title)
	for _, f := range fields {
		left := f.Default
		switch {
		case f.Required:
			left = "not possible"
		case left == "":
			left = "-"
		}
		fmt.Fprintf(out, "| `%s` | %s | %s | %s |\n", f.Name, value(f.Type), escape(left), escape(f.Doc))
	}
	for _, f := range fields {
		below := f.Name
		if path != "" {
			below = path + "." + f.Name
		}
		switch t := f.Type; {
		case t.Kind == config.KindObject:
			section(out, below, t.Fields)
		case t.Kind == config.KindList && t.Of.Kind == config.KindObject:
			section(out, below+"[]", t.Of.Fields)
		}
	}
}

// value says what may be written.
func value(t config.Type) string {
	text := ""
	switch t.Kind {
	case config.KindText:
		text = "text"
	case config.KindEnum:
		text = "`" + strings.Join(t.Values, "`, `") + "`"
	case config.KindWhole:
		text = "whole number, " + t.Min + " to " + t.Max
	case config.KindNumber:
		text = "number, " + t.Min + " to " + t.Max
	case config.KindSize:
		text = "size"
	case config.KindTime:
		text = "time up to " + t.Max
		if least, err := strconv.Atoi(strings.TrimSuffix(t.Min, "ns")); err != nil || least > 1 {
			text = "time, " + t.Min + " to " + t.Max
		}
	case config.KindFlag:
		text = "`true`, `false`"
	case config.KindList:
		if text = "list"; t.Of.Kind != config.KindObject {
			text = "list of: " + value(*t.Of)
		}
	case config.KindMap:
		text = "mapping to: " + value(*t.Of)
	case config.KindObject:
		text = "mapping"
	}
	if t.Example != "" {
		text += ", such as `" + t.Example + "`"
	}
	return escape(text)
}

func escape(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
