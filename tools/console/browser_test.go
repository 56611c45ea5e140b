// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var (
	browserPath = flag.String("browser", "", "Chromium for the browser tests; without it, they are skipped")
	axeFile     = flag.String("axe", "", "axe.min.js of axe-core for the accessibility test")
	pictures    = flag.String("pictures", "", "folder for a picture of each view")
)

const patience = 2 * time.Minute

// page is a browser with the console of an invented cluster.
type page struct {
	*testing.T

	ctx  context.Context
	host string
}

// open starts the console and a browser, and logs in.
func open(t *testing.T, args ...string) page {
	t.Helper()
	if *browserPath == "" {
		t.Skip("not supported here: no browser; hack/console-browser.sh downloads Chromium and runs these tests")
	}
	address := start(t, args...)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(*browserPath), chromedp.NoSandbox,
		chromedp.WindowSize(1400, 1000), chromedp.WSURLReadTimeout(patience)) // a busy machine starts it slowly
	all, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(all)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 2*patience)
	t.Cleanup(cancel)
	host, _, _ := strings.Cut(address, "/login")
	p := page{t, ctx, host}
	p.run(chromedp.Navigate(address))
	p.waits(`document.querySelector("h1")?.textContent === "Cluster"`)
	p.waits(`/^[1-9][0-9,]* GPU/.test(document.querySelector("[role=status]:not(.live)")?.textContent)`)
	return p
}

// start runs the console's test server, and returns its address.
func start(t *testing.T, args ...string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(root, ".cache", "console", "consoleserver") // kept: the next test need not link it
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./test/consoleserver")
	build.Dir, build.Stderr = root, os.Stderr
	if err := build.Run(); err != nil {
		t.Fatal(err)
	}
	serve := exec.CommandContext(t.Context(), program, args...)
	serve.Stderr = os.Stderr
	out, err := serve.StdoutPipe()
	if err == nil {
		err = serve.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = serve.Process.Kill(); _ = serve.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func (p page) run(actions ...chromedp.Action) {
	p.Helper()
	if err := chromedp.Run(p.ctx, actions...); err != nil {
		p.Fatal(err)
	}
}

// waits waits until an expression is true.
func (p page) waits(expression string) {
	p.Helper()
	var ok bool
	if err := chromedp.Run(p.ctx, chromedp.Poll(expression, &ok, chromedp.WithPollingTimeout(patience))); err != nil {
		var text string
		_ = chromedp.Run(p.ctx, chromedp.Evaluate(`document.body.innerText`, &text))
		p.Fatalf("%s: %v\n%s", expression, err, text)
	}
}

func (p page) text(expression string) string {
	p.Helper()
	var s string
	p.run(chromedp.Evaluate(expression, &s))
	return s
}

// view opens a view by its link, as a user does.
func (p page) view(name string) {
	p.Helper()
	p.run(chromedp.Evaluate(fmt.Sprintf(`[...document.querySelectorAll("nav a")].find((a) =>
		a.textContent === %q).click()`, name), nil))
	p.waits(fmt.Sprintf(`document.querySelector("h1").textContent === %q`, name))
}

// gpu opens the first GPU that has grants.
func (p page) gpu() {
	p.Helper()
	p.view("Cluster")
	p.run(chromedp.Evaluate(`document.querySelector("details").open = true`, nil))
	p.waits(`[...document.querySelectorAll("tbody tr")].some((r) => r.cells[4]?.textContent === "shared")`)
	p.run(chromedp.Evaluate(`[...document.querySelectorAll("tbody tr")].find((r) =>
		r.cells[4]?.textContent === "shared").querySelector("a").click()`, nil))
	p.waits(`document.querySelector("h1").textContent.startsWith("GPU ") &&
		document.body.innerText.includes("GrantActive")`)
}

// promised waits for the value of a promise.
func promised(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

// picture writes a picture of the page if a folder is given, in light and dark.
func (p page) picture(name string) {
	p.Helper()
	if *pictures == "" {
		return
	}
	for _, scheme := range []string{"light", "dark"} {
		var png []byte
		p.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme",
			Value: scheme}}), chromedp.Evaluate(`new Promise((done) => requestAnimationFrame(() =>
				requestAnimationFrame(() => done(true))))`, nil, promised), chromedp.FullScreenshot(&png, 100))
		at := filepath.Join(*pictures, name+"-"+scheme+".png")
		if err := os.WriteFile(at, png, 0o644); err != nil {
			p.Fatal(err)
		}
	}
}

// each calls do in each view, once it has its data.
func (p page) each(do func(name string)) {
	p.Helper()
	do("cluster")
	p.gpu()
	do("gpu")
	p.view("Pods")
	p.waits(`[...document.querySelectorAll("tbody tr")].length >= 3 && document.body.innerText.includes("Add a node")`)
	do("pods")
	p.view("Teams")
	p.waits(`document.body.innerText.includes("wastes most")`)
	do("teams")
	p.view("What if")
	p.run(chromedp.Evaluate(`document.querySelector("form").requestSubmit()`, nil))
	p.waits(`document.body.innerText.includes("Allocated:")`)
	do("whatif")
	p.view("Config")
	p.waits(`document.body.innerText.includes("1 pool")`)
	p.run(chromedp.SetValue("textarea", "apiVersion: kerf.dev/v1alpha2\nkind: SharingConfig\nspec:\n  pols: []\n"),
		chromedp.Evaluate(`document.querySelector("form").requestSubmit()`, nil))
	p.waits(`document.querySelector("section[aria-label=Result] [role=alert]")?.textContent.includes("2 errors")`)
	do("config")
}

// A click-through finds why a pod waits, which pods to move so that it fits, and which team wastes most.
func TestClickThrough(t *testing.T) {
	p := open(t)
	p.view("Pods")
	p.waits(`[...document.querySelectorAll("tbody a")].some((a) => a.textContent === "vision/detector")`)
	p.run(chromedp.Evaluate(`[...document.querySelectorAll("tbody a")].find((a) => a.textContent === "vision/detector")
		.click()`, nil))
	p.waits(`document.querySelector("section h2")?.textContent === "vision/detector"`)
	p.waits(`document.querySelectorAll("section ol li").length >= 2`)
	p.picture("pod")
	said := p.text(`document.querySelector("section").innerText`)
	for _, want := range []string{"needs 79 GiB on one GPU", "Request ", "Move pod ", "Add a node like h100-"} {
		if !strings.Contains(said, want) {
			t.Errorf("the pod's reason lacks %q: %s", want, said)
		}
	}
	p.view("Teams")
	p.waits(`document.body.innerText.includes("wastes most")`)
	if got := p.text(`document.querySelector("main [role=status]").textContent`); !strings.HasPrefix(got,
		"search wastes most") {
		t.Errorf("waste: %s", got)
	}
}

func TestViews(t *testing.T) {
	p := open(t)
	p.each(func(name string) { p.picture(name) })
	got := p.text(`[...document.querySelectorAll("section[aria-label=Result] tbody tr")].map((r) =>
		r.cells[0].textContent + " " + r.cells[1].textContent).join("\n")`)
	if want := "4 spec.pols\n4 spec.pools"; got != want {
		t.Errorf("lines and fields of the config's errors: %q, want %q", got, want)
	}
}

// The address leads to what was shown, keys open the views and a GPU, and a user can save a table and a drawing.
func TestAddressesKeysAndFiles(t *testing.T) {
	const shown = `(document.querySelector("[role=status]:not(.live)")?.textContent ?? "")`
	p := open(t)
	const one = shown + `.startsWith("8 GPUs on 1 node")`
	p.run(chromedp.SendKeys(`input[type=search]`, "h100-003", chromedp.ByQuery))
	p.waits(one)
	p.run(chromedp.Navigate(p.text(`location.href`)))
	p.waits(one + ` && document.querySelector("input[type=search]").value === "h100-003"`)

	p.run(chromedp.Evaluate(`window.saved = []; URL.createObjectURL = (b) => { saved.push(b); return ""; };
		HTMLAnchorElement.prototype.click = () => {}; document.querySelector("details").open = true;`, nil))
	p.waits(`document.querySelectorAll("tbody tr").length === 8`)
	p.run(chromedp.Evaluate(`for (const text of ["Export CSV", "Export PNG"])
			[...document.querySelectorAll("button")].find((b) => b.textContent === text).click()`, nil))
	p.waits(`saved.length === 2`)
	var csv, png string
	p.run(chromedp.Evaluate(`saved.find((b) => b.type === "text/csv").text()`, &csv, promised),
		chromedp.Evaluate(`saved.find((b) => b.type === "image/png").text().then((t) => t.slice(1, 4))`, &png, promised))
	if lines := strings.Split(csv, "\r\n"); len(lines) < 9 || !strings.Contains(lines[0], `"Model"`) ||
		!strings.Contains(lines[1], `"h100-003"`) {
		t.Errorf("the CSV is %q", csv)
	}
	if png != "PNG" {
		t.Errorf("the picture begins with %q", png)
	}

	p.run(chromedp.Focus("canvas", chromedp.ByQuery), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.Enter))
	p.waits(`document.querySelector("h1").textContent.startsWith("GPU ") && window.saved.length === 2`) // not loaded again
	for key, view := range map[string]string{"1": "Cluster", "2": "Pods", "3": "Teams", "4": "What if", "5": "Config"} {
		p.run(chromedp.KeyEvent(key))
		p.waits(fmt.Sprintf(`document.querySelector("h1").textContent === %q`, view))
	}
	p.run(chromedp.KeyEvent("?"))
	p.waits(`document.querySelector("dialog").open`)
}

// Markup in every text of a tenant stays text.
func TestMarkupStaysText(t *testing.T) {
	p := open(t, "-hostile")
	seen := map[string]bool{}
	p.each(func(name string) {
		var ran bool
		p.run(chromedp.Evaluate(`window.xss === 1 || !!document.querySelector("main img, main script")`, &ran))
		if ran {
			t.Errorf("view %s ran markup", name)
		}
		seen[name] = strings.Contains(p.text(`document.body.innerText`), "onerror=")
	})
	for _, name := range []string{"cluster", "gpu", "pods", "teams"} {
		if !seen[name] {
			t.Errorf("view %s shows no markup: the test proves nothing", name)
		}
	}
}

// axe-core finds no violation in any view.
func TestAccessibility(t *testing.T) {
	if *axeFile == "" {
		t.Skip("not supported here: no axe-core; hack/console-browser.sh downloads it")
	}
	script, err := os.ReadFile(*axeFile)
	if err != nil {
		t.Fatal(err)
	}
	p := open(t)
	for _, scheme := range []string{"light", "dark"} {
		p.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme",
			Value: scheme}}))
		p.view("Cluster")
		p.each(func(name string) {
			p.run(chromedp.Evaluate(string(script)+"; true", nil))
			var found []string
			p.run(chromedp.Evaluate(`axe.run(document).then((r) => r.violations.map((v) => v.id + ": " +
				v.nodes.map((n) => n.target + " " + n.failureSummary).join("; ")))`, &found, promised))
			for _, v := range found {
				t.Errorf("%s, %s: %s", name, scheme, v)
			}
		})
	}
}

// TestFrameTime reports how long a drawing of 40,000 GPUs takes, and the time to the first paint.
func TestFrameTime(t *testing.T) {
	p := open(t, "-nodes", "5000")
	p.waits(`document.querySelector("[role=status]:not(.live)").textContent.startsWith("40,000 GPUs")`)
	var frames []float64
	p.run(chromedp.Evaluate(`Array.from({length: 30}, (_, i) => { kerfView.zoom(i % 2 ? 1.01 : 1 / 1.01);
		return kerfView.frame; }).sort((a, b) => a - b)`, &frames))
	var paint float64
	p.run(chromedp.Evaluate(`performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? -1`, &paint))
	for key, ms := range map[string]float64{"frame.p50": frames[len(frames)/2], "frame.max": frames[len(frames)-1],
		"paint": paint} {
		t.Logf("RESULT console.%s %.3g ms", key, ms)
	}
	p.picture("large")
}
