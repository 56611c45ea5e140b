// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package golden compares what users and other programs see of Kerf with files in testdata: JSON documents, metrics and
// texts. A change of the code that should change nothing visible must leave these files as they are.
//
// A Scrubber replaces values that differ between two runs (UUIDs, PIDs, times) by numbered placeholders. It replaces
// only the kinds that it knows. If a text contains another value that looks random, the comparison fails: nothing is
// ignored.
//
// It says nothing about whether the values in the files are right: other tests do.
package golden
