// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"

	"github.com/kerf-gpu/kerf/test/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, Commands) }
