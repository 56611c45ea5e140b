// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const monitorPort, prometheusPort = "9446", "9090"

// drawings is the folder that docs/operate/monitoring.md has its pictures in, docs/dashboards.
var drawings = flag.String("draw", "", "draw the dashboards of TestMonitoring into this folder of the repository, "+
	"after some minutes of work on the GPUs")

// daemon starts a daemon on the node, which ends with the test.
func (e *testCase) daemon(name, script string) {
	e.Helper()
	e.node.do(e.T, "svc", name, "/bin/sh", "-c", script)
	e.Cleanup(func() {
		e.node.do(e.T, "kill", name)
		_ = os.Remove(filepath.Join(e.node.env["RUN"], name+".cmd")) // it is no daemon of the node's
	})
}

// get asks over HTTP.
func get(at string) ([]byte, error) {
	c := http.Client{Timeout: 20 * time.Second}
	r, err := c.Get(at)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s", r.Status, body)
	}
	return body, err
}

// A real Prometheus scrapes monitor and agent, takes the rules, and answers every query of the dashboards. Usage is
// added up from its data. A pod finds its own numbers, and no other pod's, where NRI has mounted them.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	e := beginWithAgent(t)
	e.daemon("monitor",
		fmt.Sprintf(
			`eval "$(gpusim env --dir %s)"; exec %s --run-dir /run/kerf --metrics-bind-address :%s --node-name node-1 --interval 500ms`,
			e.node.env["GPUSIM_DIR"], e.node.program("kerf-monitor"), monitorPort))
	p := e.create(one("own", map[string]string{"kerf.dev/gpu-memory-gib": "4", "kerf.dev/gpu-percent": "5"},
		"exec gpuload --json --alloc 2GiB --hold 1h"))
	other := e.create(one("other", gibs(3), "exec gpuload --json --alloc 1GiB --hold 1h"))
	p.running()
	other.running()
	e.ownNumbers(p)

	at := e.prometheus()
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	// Two scrapes after the pods' start, so that there are rates.
	eventually(e, "rates of what the pods use", func() error {
		body, err := get(at + "/api/v1/query?query=" +
			url.QueryEscape(`rate(kerf_usage_observed_seconds_total{namespace="`+e.namespace+
				`"}[5m]) and on (node) kerf_agent_ready`))
		if err != nil {
			return err
		}
		if err := json.Unmarshal(body, &answer); err != nil || len(answer.Data.Result) != 2 {
			return fmt.Errorf("%w: %s", err, body)
		}
		return nil
	})
	e.dashboards(at)
	e.draw(at)
	r := e.kerf("usage", "--prometheus", at, "--by", "namespace", "-o", "csv")
	if r.err != nil || !strings.Contains(r.out, "\n"+e.namespace+",") {
		t.Errorf("kerf usage --prometheus: %v", r)
	}
}

// ownNumbers asks from inside a pod's container.
func (e *testCase) ownNumbers(p *pod) {
	e.Helper()
	pids := e.grantOf(p, "main").PIDs
	if len(pids) == 0 {
		e.Fatal("nothing runs in the container")
	}
	ask := e.node.path(fmt.Sprintf("/proc/%d/root/tmp/askown", pids[0]))
	build := exec.CommandContext(e.Context(), "go", "build", "-ldflags", "-s -w", "-o", ask, "./askown")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		e.Fatalf("build askown: %v: %s", err, out)
	}
	eventually(e, "the pod's own numbers", func() error {
		out, errOut, err := p.exec("main", "/tmp/askown", "/run/kerf-pod/telemetry.sock")
		if err != nil {
			return fmt.Errorf("%w: %s", err, errOut)
		}
		_, body, _ := strings.Cut(out, "\r\n\r\n")
		var sample struct {
			GPUs []struct {
				Used   string `json:"memoryUsedBytes"`
				Usages []struct {
					Pod    string
					Memory struct{ Value float64 } `json:"memoryBytes"`
				}
			} `json:"gpus"`
		}
		if err := json.Unmarshal([]byte(body), &sample); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if len(sample.GPUs) != 1 || len(sample.GPUs[0].Usages) != 1 || sample.GPUs[0].Used != "" {
			return fmt.Errorf("it gets %s", out)
		}
		if u := sample.GPUs[0].Usages[0]; u.Pod != p.name || u.Memory.Value < float64(2*gib) ||
			u.Memory.Value > float64(4*gib) {
			return fmt.Errorf("it gets %s", out)
		}
		return nil
	})
	if out, errOut, err := p.exec("main", "/bin/sh", "-c", "echo x >/run/kerf-pod/x"); err == nil ||
		!strings.Contains(errOut, "Read-only") {
		e.Errorf("the folder can be written to: %q, %q, %v", out, errOut, err)
	}
}

// prometheus starts one that scrapes monitor and agent every second, with the rules, and returns its address.
func (e *testCase) prometheus() (at string) {
	e.Helper()
	program := e.node.env["BIN"] + "/prometheus"
	if r := command(filepath.Join(e.node.env["REPO"], "hack/promtool.sh"), program); r.err != nil {
		e.Fatal(r)
	}
	pods, err := e.agentPods()
	if err != nil || len(pods) != 1 {
		e.Fatalf("%d pods of the agent: %v", len(pods), err)
	}
	dir := e.node.env["E2E_DIR"] + "/node/prometheus" // a folder that the node sees, too
	e.Cleanup(func() { _ = os.RemoveAll(dir) })
	job := func(name, address string) string {
		return fmt.Sprintf("- {job_name: %s, honor_labels: true, static_configs: [{targets: ['%s'], labels: {node: "+
			"node-1}}]}\n", name, address)
	}
	config := "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [" +
		e.node.env["REPO"] + "/deploy/monitoring/rules.yaml]\nscrape_configs:\n" +
		job("kerf-monitor", "127.0.0.1:"+monitorPort) + job("kerf-agent", pods[0].Status.PodIP+":9445")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(dir+"/prometheus.yml", []byte(config),
		0o644)); err != nil {
		e.Fatal(err)
	}
	e.daemon("prometheus",
		fmt.Sprintf("exec %s --config.file=%s/prometheus.yml --storage.tsdb.path=%s/data --web.listen-address=:%s",
			program, dir, dir, prometheusPort))
	at = "http://" + e.node.env["NODE_IP"] + ":" + prometheusPort
	eventually(e, "Prometheus", func() error {
		_, err := get(at + "/-/ready")
		return err
	})
	return at
}

// dashboards asks every query of the dashboards until all have an answer but those that tell of what is not there.
func (e *testCase) dashboards(at string) {
	e.Helper()
	files, err := filepath.Glob(filepath.Join(e.node.env["REPO"], "deploy/monitoring/dashboards/*.json"))
	if err != nil || len(files) == 0 {
		e.Fatalf("dashboards: %v", err)
	}
	list := exec.CommandContext(e.Context(), "go", append([]string{"run", "./dashqueries"}, files...)...)
	list.Dir = filepath.Join(e.node.env["REPO"], "tools")
	text, err := list.Output()
	if err != nil {
		e.Fatalf("queries of the dashboards: %v", err)
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Expr   string
				Labels struct{ Panel string }
			}
		}
	}
	if err := json.Unmarshal(text, &rules); err != nil || len(rules.Groups) != 1 || len(rules.Groups[0].Rules) == 0 {
		e.Fatalf("queries of the dashboards: %v in %s", err, text)
	}
	// A board of a node shows the one that is chosen, and costs are added up from minute to minute: here all nodes are
	// meant, and each second.
	here := strings.NewReplacer(`=".*"`, `=~".*"`, ":1m]", ":1s]")
	eventually(e, "answers to the dashboards", func() error {
		var silent []string
		for _, q := range rules.Groups[0].Rules {
			body, err := get(at + "/api/v1/query?query=" + url.QueryEscape(here.Replace(q.Expr)))
			var answer struct {
				Status string
				Data   struct{ Result []json.RawMessage }
			}
			if err != nil || json.Unmarshal(body, &answer) != nil || answer.Status != "success" {
				return final("%s: %q: %w, %.300s", q.Labels.Panel, q.Expr, err, body)
			}
			if len(answer.Data.Result) == 0 && !mayBeSilent(q.Labels.Panel) {
				silent = append(silent, q.Labels.Panel)
			}
		}
		if len(silent) > 0 {
			return fmt.Errorf("none for %q", silent)
		}
		return nil
	})
}

// drawnTime is how much is shown on drawings of the dashboards.
const drawnTime = 4 * time.Minute

// draw draws the dashboards, if that is wanted: after pods have come, worked by turns, and gone, so that there is
// something to see.
func (e *testCase) draw(at string) {
	e.Helper()
	if *drawings == "" {
		return
	}
	began := time.Now()
	work := e.create(one("train", map[string]string{"kerf.dev/gpu-memory-gib": "24", "kerf.dev/gpu-percent": "50"},
		"exec gpuload --json --alloc 18GiB --launch plain --kernel 20ms --hold 1h"))
	e.create(one("notebook", gibs(10), "gpuload --json --alloc 3GiB --hold 60s; exec gpuload --json --alloc 8GiB "+
		"--launch plain --kernel 5ms --hold 1h")).running()
	e.create(one("whole", map[string]string{"kerf.dev/gpu": "1"},
		"exec gpuload --json --alloc 40GiB --launch plain --kernel 50ms --hold 1h")).running()
	work.running()
	time.Sleep(time.Until(began.Add(drawnTime)))
	files, err := filepath.Glob(filepath.Join(e.node.env["REPO"], "deploy/monitoring/dashboards/*.json"))
	if err != nil {
		e.Fatal(err)
	}
	out := filepath.Join(e.node.env["REPO"], *drawings)
	if err := os.MkdirAll(out, 0o755); err != nil {
		e.Fatal(err)
	}
	draw := exec.CommandContext(e.Context(), "go",
		append([]string{"run", "./dashdraw", "-prometheus", at, "-out", out, "-range", drawnTime.String(), "-node",
			"node-1"}, files...)...)
	draw.Dir = filepath.Join(e.node.env["REPO"], "tools")
	if text, err := draw.CombinedOutput(); err != nil {
		e.Errorf("draw the dashboards: %v: %s", err, text)
	}
}

// mayBeSilent reports whether a panel has nothing to show on a node where all is well and no pod waits.
func mayBeSilent(panel string) bool {
	return slices.Contains([]string{
		"Kerf / Cluster: GPUs that take no grants, by health", "Kerf / Cluster: Processes without a grant",
		"Kerf / Cost: Granted and idle for more than an hour", "Kerf / Pod: Waiting for a turn",
	}, panel)
}
