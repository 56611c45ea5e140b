// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"html"
	"regexp"
	"strconv"
	"strings"
)

// The measures of the picture, in pixels.
const (
	width, margin      = 920, 20
	barTop, barHeight  = 52, 56
	textTop, lineSpace = 150, 19
)

// share is one grant on the GPU of the picture.
type share struct {
	name string
	gib  float64
}

var (
	gpuRow   = regexp.MustCompile(`(?m)^(\S+/\d+) +healthy +\S+ +\S+ +([\d.]+)GiB +.*?(NVIDIA .*?) *$`)
	grantRow = regexp.MustCompile(`(?m)^\S+?/(\S+?)/\S+ +(\S+/\d+) +Active +([\d.]+)GiB`)
)

// draw renders a bar of the one GPU that the transcript shows, with its shares, and the transcript below it.
func draw(transcript string) ([]byte, error) {
	gpu := gpuRow.FindStringSubmatch(transcript)
	if gpu == nil {
		return nil, errors.New("no row of a healthy GPU")
	}
	allocatable, err := strconv.ParseFloat(gpu[2], 64)
	if err != nil {
		return nil, fmt.Errorf("allocatable memory: %w", err)
	}
	var shares []share
	free := allocatable
	for _, row := range grantRow.FindAllStringSubmatch(transcript, -1) {
		gib, err := strconv.ParseFloat(row[3], 64)
		if err != nil {
			return nil, fmt.Errorf("memory of %s: %w", row[1], err)
		}
		if row[2] == gpu[1] {
			shares, free = append(shares, share{row[1], gib}), free-gib
		}
	}
	if len(shares) == 0 || free < 0 {
		return nil, fmt.Errorf("%d shares on %s leave %.1f GiB", len(shares), gpu[1], free)
	}
	lines := strings.Split(strings.TrimRight(transcript, "\n"), "\n")
	height := textTop + len(lines)*lineSpace + margin
	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title>%d pods share one GPU</title>\n", len(shares))
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="#111827"/>`+"\n")
	fmt.Fprintf(&b, `<text x="%d" y="34" fill="#f9fafb" font-size="15">GPU %s: %s, %.1f GiB, shared by %d pods</text>`+
		"\n", margin, html.EscapeString(gpu[1]), html.EscapeString(gpu[3]), allocatable, len(shares))
	bar(&b, append(shares, share{"free", free}), allocatable)
	for i, line := range lines {
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s" xml:space="preserve">%s</text>`+"\n", margin,
			textTop+i*lineSpace, color(line), html.EscapeString(line))
	}
	b.WriteString("</svg>\n")
	return []byte(b.String()), nil
}

// bar draws shares side by side; the last one is free memory.
func bar(b *strings.Builder, shares []share, allocatable float64) {
	colors := []string{"#4d7c0f", "#1d4ed8", "#b45309", "#b91c1c", "#6d28d9", "#0f766e"}
	x := float64(margin)
	for i, s := range shares {
		w := s.gib / allocatable * (width - 2*margin)
		fill := colors[i%len(colors)]
		if i == len(shares)-1 {
			fill = "#374151"
		}
		fmt.Fprintf(b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" stroke="#111827"/>`+"\n", x, barTop, w,
			barHeight, fill)
		fmt.Fprintf(b, `<text x="%.1f" y="%d" fill="#f9fafb">%s</text>`+"\n", x+6, barTop+23, html.EscapeString(s.name))
		fmt.Fprintf(b, `<text x="%.1f" y="%d" fill="#f9fafb" font-size="11">%.4g GiB</text>`+"\n", x+6, barTop+42,
			s.gib)
		x += w
	}
}

// color marks commands, and what the driver rejected.
func color(line string) string {
	switch {
	case strings.HasPrefix(line, "$ "):
		return "#76b900"
	case strings.Contains(line, "CUDA_ERROR"):
		return "#f87171"
	}
	return "#d1d5db"
}
