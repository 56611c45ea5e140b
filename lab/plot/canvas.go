// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// canvas collects the elements of an SVG; lengths are pixels.
type canvas struct{ body bytes.Buffer }

// The weights of lines and the colours that are not those of a policy.
const (
	ink   = "#222"
	faint = "#ddd"
)

// text is anchored at its start, middle or end.
func (c *canvas) text(x, y float64, anchor string, size int, s string) {
	_, _ = fmt.Fprintf(&c.body, "<text x=\"%s\" y=\"%s\" text-anchor=\"%s\" font-size=\"%d\">%s</text>\n", px(x), px(y),
		anchor, size, escape(s))
}

func (c *canvas) rect(x, y, w, h float64, style string) {
	_, _ = fmt.Fprintf(&c.body, "<rect x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" %s/>\n", px(x), px(y), px(w), px(h),
		style)
}

func (c *canvas) line(x1, y1, x2, y2 float64, style string) {
	c.path("M"+px(x1)+" "+px(y1)+"L"+px(x2)+" "+px(y2), style)
}

func (c *canvas) path(d, style string) {
	if d != "" {
		_, _ = fmt.Fprintf(&c.body, "<path d=\"%s\" %s/>\n", d, style)
	}
}

// page is the whole SVG. The background is white, since a page may be dark.
func (c *canvas) page(w, h float64, title string) []byte {
	var out bytes.Buffer
	_, _ = fmt.Fprintf(&out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%s\" height=\"%s\" viewBox=\"0 0 %s "+
		"%s\" role=\"img\" font-family=\"sans-serif\" fill=\"%s\">\n",
		px(w), px(h), px(w), px(h), ink)
	_, _ = fmt.Fprintf(&out, "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
		escape(title))
	out.Write(c.body.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// px is a length to a tenth of a pixel, so that a file is the same on every machine.
func px(v float64) string {
	v = math.Round(v*10) / 10
	if v == 0 {
		v = 0 // not -0
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

func escape(s string) string {
	var b strings.Builder
	// It writes to memory, which takes all; what XML cannot hold is replaced.
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}
