// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

//go:build tools

// Package tools pins the API of OpenShift, with whose security objects its preset is tested.
package tools

import _ "github.com/openshift/api/security/v1"
