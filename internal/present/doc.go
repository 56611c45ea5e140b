// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package present turns the node API's picture of a node into what people and scripts read: a JSON document
// with stable names, tables, and bars.
//
// It promises to be pure (no I/O, no clock, no terminal: width, colour and user names are given), to give the
// same output for the same picture, never to show a number that is not known as a number, and never to let
// control characters of a name or a reason reach a terminal.
//
// It does not decide anything about grants, and the text forms are for people: only the JSON (and YAML) is
// an interface.
package present
