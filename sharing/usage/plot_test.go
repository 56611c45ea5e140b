// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"testing"
)

func TestPlot(t *testing.T) {
	rows := []Row{
		{Labels: map[string]string{"namespace": "small"}, Granted: 1, Used: 0.5, Wasted: 0.5, Idle: 0.25},
		{Labels: map[string]string{"namespace": `<a> & "b"`}, Granted: 4, Used: 1, Wasted: 2, Idle: 1, Unknown: 1},
		{Labels: map[string]string{}},
	}
	svg := Plot(rows, []string{"namespace"})
	if !bytes.Equal(svg, Plot(rows, []string{"namespace"})) {
		t.Error("the same rows give other bytes")
	}
	d := xml.NewDecoder(bytes.NewReader(svg))
	var texts []string
	widths := map[string]float64{} // of bars, by their y
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch x := tok.(type) {
		case xml.CharData:
			if s := string(bytes.TrimSpace(x)); s != "" {
				texts = append(texts, s)
			}
		case xml.StartElement:
			at := map[string]string{}
			for _, a := range x.Attr {
				at[a.Name.Local] = a.Value
			}
			if w, err := strconv.ParseFloat(at["width"], 64); x.Name.Local == "rect" && err == nil &&
				at["height"] == strconv.Itoa(plotBar) {
				widths[at["y"]] += w
			}
		}
	}
	first, second := strconv.Itoa(plotTop), strconv.Itoa(plotTop+plotBar+plotGap)
	if w := widths[first]; w < plotWidth-1 || w > plotWidth+1 {
		t.Errorf("the longest bar has %f", w)
	}
	if w := widths[second]; w < plotWidth/4-1 || w > plotWidth/4+1 || len(widths) != 2 {
		t.Errorf("bars %v", widths)
	}
	if len(texts) != 4+2*3 || texts[4] != `<a> & "b"` || texts[5] != "4.0 GPU h" || texts[8] != "all others" {
		t.Errorf("texts %q", texts)
	}
	if empty := Plot(nil, nil); !bytes.Contains(empty, []byte("</svg>")) {
		t.Errorf("%s", empty)
	}
}
