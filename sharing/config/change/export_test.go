// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package change

// EffectsOfPool and EffectsOfProfile are what tests see.
func EffectsOfPool() map[string]Effect    { return poolEffects() }
func EffectsOfProfile() map[string]Effect { return profileEffects() }
