// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// upgradeFrom is a source tree of another commit, built.
var upgradeFrom = flag.String("from", "", "run TestUpgradeFrom alone, on a cluster that begins with the Kerf of this "+
	"source tree, in which 'make build kerf-scheduler' was done")

// release is Kerf as one source makes it.
type release struct {
	// what is what messages call it, all its manifests, agent and scheduler its images.
	what, all, agent, scheduler string
	// source is its folder, empty for this source.
	source string
	// version is what its agent says that it is, once it has run.
	version string
}

// anySchedulerImage finds the scheduler's image in a manifest, whatever its tag.
var anySchedulerImage = regexp.MustCompile(`kerf\.dev/scheduler:[\w.-]+`)

// renderedFrom is what the chart of a source makes with a set of values of its tests, with these images.
func (e *testCase) renderedFrom(source, set, agent, scheduler string) string {
	e.Helper()
	text, err := os.ReadFile(filepath.Join(source, "tools/chart/testdata", set+".golden.yaml"))
	if err != nil {
		e.Fatal(err)
	}
	made := anySchedulerImage.ReplaceAllString(anyAgentImage.ReplaceAllString(string(text), agent), scheduler)
	var parts []string
	for part := range strings.SplitAfterSeq(made, "---\n# Source: ") {
		switch {
		case strings.HasPrefix(part, "agent/30-agent.yaml"): // only the agent creates MIG instances
			part = forRuntime(simulatedCaps.Replace(part))
		case strings.HasPrefix(part, "tests/"): // of "helm test"
			continue
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "")
}

// imageFrom is an image of this source's with the programs of another instead of this one's. Programs that the other
// source does not have are left out.
func (e *testCase) imageFrom(source, image, ref, entrypoint string) {
	e.Helper()
	root := filepath.Join(e.node.env["E2E_DIR"], "node", image+"-from") // a folder that the node sees, too
	e.Cleanup(func() { _ = os.RemoveAll(root) })
	if out, err := exec.Command("sh", "-ec", `
		mkdir -p "$1"
		tar -xOf "$2" layer.tar | tar -x -C "$1"
		cd "$1/usr/local/bin"
		for program in *; do rm "$program"; [ ! -e "$3/bin/$program" ] || cp "$3/bin/$program" "$program"; done`, "sh", root,
		filepath.Join(e.node.env["E2E_DIR"], "img", image+".tar"), source).CombinedOutput(); err != nil {
		e.Fatalf("make the image of %s from %s: %v\n%s", image, source, err, out)
	}
	e.node.do(e.T, "image", ref, root, "/usr/local/bin/"+entrypoint)
}

// release makes one of another source.
func (e *testCase) release(source string) *release {
	e.Helper()
	r := &release{what: "the Kerf of " + filepath.Base(source), agent: "kerf.test/agent:from",
		scheduler: "kerf.test/scheduler:from", source: source}
	e.imageFrom(source, "agent", r.agent, "kerf-agent")
	e.imageFrom(source, "scheduler", r.scheduler, "kerf-scheduler")
	r.all = e.renderedFrom(source, "cluster", r.agent, r.scheduler)
	return r
}

// objectsOf are the manifests of a text by what they make.
func (e *testCase) objectsOf(text string) map[string]string {
	e.Helper()
	all := map[string]string{}
	for part := range strings.SplitSeq(text, "---\n") {
		var o struct {
			APIVersion, Kind string
			Metadata         struct{ Namespace, Name string }
		}
		if err := yaml.Unmarshal([]byte(part), &o); err != nil {
			e.Fatalf("read a manifest: %v\n%s", err, part)
		}
		if o.Kind != "" {
			group, _, _ := strings.Cut(o.APIVersion, "/v")
			all[group+" "+o.Kind+" "+o.Metadata.Namespace+"/"+o.Metadata.Name] = part
		}
	}
	return all
}

// become is "helm upgrade", or "helm rollback": what the next one has is applied, what only the one before had is
// deleted. It waits until all that runs is the next one's.
func (e *testCase) become(before, next *release) {
	e.Helper()
	if before != nil { // the selector of a DaemonSet cannot change: see docs/operate/install.md
		if r := e.kubectl("", "delete", "daemonset", "-n", kerfNamespace, "-l", "app.kubernetes.io/part-of=kerf",
			"--cascade=foreground"); r.err != nil {
			e.Fatalf("%s: %v", next.what, r)
		}
	}
	if err := e.apply(next.all); err != nil {
		e.Fatalf("%s: %v", next.what, err)
	}
	e.node.source = next.source
	if before != nil {
		has := e.objectsOf(next.all)
		for name, text := range e.objectsOf(before.all) {
			if _, stays := has[name]; stays {
				continue
			}
			e.Logf("%s has no %s", next.what, name)
			if r := e.kubectl(text, "delete", "-f", "-"); r.err != nil {
				e.Fatalf("delete %s: %v", name, r)
			}
		}
	}
	for _, what := range []string{"daemonset/kerf-agent", "daemonset/kerf-monitor", "deployment/kerf-scheduler"} {
		if r := e.kubectl("", "rollout", "status", "-n", kerfNamespace, what, "--timeout=150s"); r.err != nil {
			e.Fatalf("%s: %v", next.what, r)
		}
	}
	e.waitForAgent()
	e.chartReady()
	said := e.agentVersion()
	if next.version == "" {
		next.version = said
	}
	if said != next.version || before != nil && said == before.version {
		e.Fatalf("%s: its agent says that it is %s; it was %s, and the one before %v", next.what, said, next.version,
			before)
	}
	e.Logf("%s runs: %s", next.what, said)
}

// capped checks that the agent and the driver say of a pod's GPU what it asked for. The other GPUs are not looked at:
// one that is in MIG mode by now has no limits.
func (e *testCase) capped(p *pod, memory uint64, percent uint32) {
	e.Helper()
	g := e.grantOf(p, "main")
	if len(g.Shares) != 1 || g.Memory != memory || g.Percent != percent || g.Level != "driver" {
		e.Errorf("%s has the grant %+v", p.name, g)
		return
	}
	if caps := p.caps("main"); caps[g.Shares[0].GPU] != memory {
		e.Errorf("%s is held to %v, want %d on %s", p.name, caps, memory, g.Shares[0].GPU)
	}
}

// neverOffItsGPU searches the driver's log for a limit of the pod's own GPU that is not the pod's cap.
func (e *testCase) neverOffItsGPU(p *pod, memory uint64) {
	e.Helper()
	own, lines := e.grantOf(p, "main").Shares[0].GPU, 0
	id := p.id("main")
	for _, g := range e.node.gpus(e.T) {
		if g.UUID != own {
			continue
		}
		for line := range strings.SplitSeq(since(e.node.log("gpusim"), e.logs["gpusim"]), "\n") {
			if !strings.Contains(line, " msg=limit ") || !strings.Contains(line, id) ||
				!strings.Contains(line, "error=<nil>") || !strings.Contains(line, fmt.Sprintf(" gpu=%d ", g.Minor)) {
				continue
			}
			if lines++; !strings.Contains(line, fmt.Sprintf(" hard=%d ", memory)) {
				e.Errorf("%s is to have %d, and the driver got: %s", p.name, memory, line)
			}
		}
	}
	if lines == 0 {
		e.Errorf("the driver's log has no limit of %s on GPU %s: this check looks at nothing", p.name, own)
	}
}

// releases are Kerf of -from and of this source. The cluster is ready for both, and has none of them.
func (e *testCase) releases() (older, newer *release) {
	e.Helper()
	older = e.release(*upgradeFrom)
	newer = &release{what: "the Kerf of this source", all: e.rendered("cluster")}
	for _, label := range []string{nodeLabel, `{"metadata":{"labels":{"kerf.dev/node":"true"}}}`} {
		if r := e.kubectl("", "patch", "node", e.node.env["NODE_NAME"], "-p", label); r.err != nil {
			e.Fatal(r)
		}
	}
	namespace, err := os.ReadFile(filepath.Join(*upgradeFrom, "deploy/manifests/00-namespace.yaml"))
	if err == nil {
		err = e.apply(string(namespace))
	}
	if err != nil {
		e.Fatal(err)
	}
	return older, newer
}

// From another source to this one, back, and here again. Running containers are not disturbed, new and restarted ones
// are capped, and ended ones release their grants.
func TestUpgradeFrom(t *testing.T) {
	if *upgradeFrom == "" {
		t.Skip("it takes another source: 'make e2e-upgrade FROM=COMMIT' runs it")
	}
	e := begin(t)
	older, newer := e.releases()
	e.become(nil, older)

	again := one("again", gibs(5), untilTold("4GiB"))
	again.restart = corev1.RestartPolicyAlways
	restarts := e.create(again)
	runs := e.create(one("runs", gibs(10), "exec gpuload --json --alloc 9GiB --hold 1h"))
	pods := []*pod{restarts, runs, e.create(one("half", percent(50), hold)), e.create(one("whole", wholeGPUs(1), hold)),
		e.create(named("named", "e2e-small"))}
	ends := e.create(one("ends", gibs(7), hold))
	for _, p := range append(pods, ends) {
		p.running()
	}
	before, now := e.heldBy(pods...), older
	for i, next := range []*release{newer, older, newer} {
		e.become(now, next)
		e.wantSame(before, pods...)
		e.neverOffItsGPU(runs, 10*gib)
		fresh := e.create(one(fmt.Sprintf("new-%d", i), gibs(5), hold))
		called := e.create(named(fmt.Sprintf("named-%d", i), "e2e-small"))
		fresh.running()
		called.running()
		e.capped(fresh, 5*gib, 0)
		e.capped(called, 4*gib, 10)
		// where GPUs go into MIG mode as pods ask
		if _, usable, err := e.capacity("kerf.dev/mig-1g.10gb"); err == nil && usable > 0 {
			cut := e.create(one(fmt.Sprintf("cut-%d", i), instance("1g.10gb"), hold))
			cut.running()
			if g := e.grantOf(cut, "main"); g.Level != "hardware" {
				t.Errorf("a new instance has %+v", g)
			}
			pods = append(pods, cut) // which the next ones find
		}
		restarts.tell("main")
		restarts.anotherInstance(before["again/main"].container)
		e.capped(restarts, 5*gib, 0)
		ends.delete() // one that the one before has started
		ends.released()
		ends = fresh
		before, now = e.heldBy(pods...), next
		if t.Failed() {
			return
		}
	}
	if l := runs.loads("main", 1); len(l) != 1 || l[0].Error != nil {
		t.Errorf("the load was disturbed: %v", l)
	}
	if hooks := e.hooksOnNode(); !slices.Contains(hooks, older.version) || !slices.Contains(hooks, newer.version) {
		t.Errorf("hooks of %q are there, want those of %s and %s", hooks, older.version, newer.version)
	}
}
