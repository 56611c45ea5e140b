// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// holdAnswers makes the page keep each question until held[since] is called with its answer.
const holdAnswers = `window.held = {};
	window.tick = () => new Promise((done) => setTimeout(done));
	window.fetch = (url) => new Promise((done) => {
		held[new URL(url, location.href).searchParams.get("since")] =
			(answer) => done({ ok: true, text: async () => JSON.stringify(answer) });
	});
	window.choose = (since) => {
		const s = [...document.querySelectorAll("select")].find((s) => [...s.options].some((o) => o.value === since));
		s.value = since;
		s.dispatchEvent(new Event("change"));
	}; true`

// late chooses two times, answers the question of the second one first, and returns the text of an element.
func (p page) late(first, second, firstAnswer, secondAnswer, element string) string {
	p.Helper()
	var text string
	p.run(chromedp.Evaluate(holdAnswers, nil), chromedp.Evaluate(fmt.Sprintf(`(async () => {
		choose(%[1]q); choose(%[2]q);
		held[%[2]q](%[4]s); await tick();
		held[%[1]q](%[3]s); await tick();
		return document.querySelector(%[5]q).textContent;
	})()`, first, second, firstAnswer, secondAnswer, element), &text, promised))
	return text
}

// An answer that arrives after the one of a newer question is not shown.
func TestLateAnswers(t *testing.T) {
	p := open(t)
	p.view("Teams")
	p.waits(`document.body.innerText.includes("wastes most")`)
	const usage = `{by: "namespace", currency: "EUR", rows: [%s]}`
	newer := fmt.Sprintf(usage, `{labels: {namespace: "newer"}, grantedGPUHours: 2, usedGPUHours: 1, wastedGPUHours: 1,
		idleGPUHours: 0, unknownGPUHours: 0, cost: null, enoughPercent: null, savedCost: null}`)
	got := p.late("1h", "168h", fmt.Sprintf(usage, ""), newer, "main [role=status]")
	if want := "newer wastes most: 1.0 of 2.0 granted GPU hours."; got != want {
		t.Errorf("teams: %q, want %q", got, want)
	}
	p = open(t)
	p.gpu()
	points := `{points: [{time: "2026-01-01T12:00:00Z", memory: 1}, {time: "2026-01-01T12:01:00Z", memory: 2}]}`
	if got := p.late("24h", "168h", `{points: []}`, points, "main .note"); got != "" {
		t.Errorf("usage of the GPU: %q", got)
	}
}

// A user whose session has ended logs in again, instead of a browser that tries without end.
func TestLoginAfterTheSession(t *testing.T) {
	p := open(t)
	p.run(chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := cdppage.AddScriptToEvaluateOnNewDocument(`window.EventSource = class extends EventSource {
			constructor(url) { super(url); window.opened = this; }
		};`).Do(ctx)
		return err
	}), chromedp.Navigate(p.host))
	p.waits(`document.querySelector(".live")?.textContent === "live"`)
	p.run(network.ClearBrowserCookies(), chromedp.Evaluate(`// as the browser does after an answer of 401
		opened.close(); opened.dispatchEvent(new Event("error"))`, nil))
	p.waits(`document.querySelector("h1").textContent === "Kerf" && !!document.querySelector("form #token")`)
}
