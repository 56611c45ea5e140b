// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"log/slog"
)

// stubLog passes the stub's log on. What it tells as news is detail here: the plugin logs its own.
type stubLog struct{ log *slog.Logger }

// Debugf logs at debug level.
func (l stubLog) Debugf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelDebug, format, args)
}

// Infof logs at debug level.
func (l stubLog) Infof(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelDebug, format, args)
}

// Warnf logs at warning level.
func (l stubLog) Warnf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelWarn, format, args)
}

// Errorf logs at warning level: the plugin tells what became of it.
func (l stubLog) Errorf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelWarn, format, args)
}

func (l stubLog) write(ctx context.Context, level slog.Level, format string, args []any) {
	if l.log.Enabled(ctx, level) {
		l.log.Log(ctx, level, "the NRI stub says", "text", fmt.Sprintf(format, args...))
	}
}
