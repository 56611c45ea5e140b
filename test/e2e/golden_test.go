// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/test/golden"
)

var updateGolden = flag.Bool("update", false, "write testdata/golden; commit the difference only if you understand it")

// visible compares what users and other programs see of the node with a golden file.
type visible struct {
	*testCase
	file  *golden.File
	scrub *golden.Scrubber
	// plain is a container without a GPU: what its OCI spec has too, Kerf did not add.
	plain *pod
}

// section is one visible result.
type section struct {
	name string
	look func() (string, error)
}

func (e *testCase) golden() *visible {
	e.Helper()
	v := &visible{testCase: e, scrub: golden.NewScrubber()}
	v.file = golden.Open(e.T, filepath.Join("testdata", "golden", "node.txt"), *updateGolden, *patience)
	v.scrub.Know(e.namespace, "NAMESPACE")
	v.scrub.Know(e.node.env["NODE_NAME"], "NODE")
	v.scrub.Know(e.node.env["BIN"], "BIN")
	v.scrub.Know(filepath.Dir(e.hookPath()), "HOOK-FOLDER") // its last part is the version
	for i, g := range e.node.gpus(e.T) {
		v.scrub.Call("GPU", g.UUID, fmt.Sprintf("GPU-%d", i))
	}
	return v
}

// step compares these results.
func (v *visible) step(name string, sections ...section) {
	v.Helper()
	v.file.Step(v.T, name, func() (string, error) {
		if err := v.callGrants(); err != nil {
			return "", err
		}
		var out strings.Builder
		for _, s := range sections {
			text, err := s.look()
			if err != nil {
				return "", fmt.Errorf("%s: %w", s.name, err)
			}
			fmt.Fprintf(&out, "--- %s\n%s\n", s.name, strings.TrimSpace(text))
		}
		return out.String(), nil
	})
}

// callGrants names what belongs to a container by its pod's name and its own.
func (v *visible) callGrants() error {
	for _, p := range v.pods {
		o, err := p.fetch()
		if err != nil {
			continue // it is deleted
		}
		uid := string(o.UID)
		v.scrub.Know(uid, "UID-"+p.name)
		v.scrub.Know(strings.ReplaceAll(uid, "-", "_"), "UID-"+p.name)
		for _, s := range containerStatuses(o) {
			v.scrub.Know(containerID(s), "CONTAINER-"+p.name+"-"+s.Name)
		}
	}
	s, err := v.status()
	if err != nil {
		return err
	}
	for _, g := range s.Grants {
		if root, _, ok := strings.Cut(g.Cgroup, "/kubepods"); ok {
			v.scrub.Know(root+"/kubepods", "CGROUPS/kubepods")
		}
		name := g.Pod + "-" + g.Container
		v.scrub.Know(g.ID, "GRANT-"+name)
		for i, pid := range g.PIDs {
			v.scrub.Call("PID", strconv.Itoa(pid), fmt.Sprintf("PID-%s-%d", name, i+1))
		}
	}
	return nil
}

// differing are the fields with values that differ between two runs.
var differing = map[string]string{
	"pid": "PID", "pids": "PID", "inode": "INODE", "agentVersion": "VERSION",
	"fingerprint":     golden.MeasuredValue,
	"summary.config":  "CONFIG",
	"resourceVersion": golden.MeasuredValue, "generation": golden.MeasuredValue, "sequence": golden.MeasuredValue,
}

func (v *visible) json(text string, unordered ...string) (string, error) {
	return v.scrub.JSON([]byte(text), golden.Format{Differ: differing, Unordered: unordered})
}

func (v *visible) statusJSON() (string, error) {
	r := v.node.in(v.node.program("kerf"), "status", "-o", "json")
	if r.err != nil {
		return "", errors.New(r.String())
	}
	return v.json(r.out, "grants", "pids", "sharedCap")
}

func (v *visible) checkpoint() (string, error) {
	data, err := os.ReadFile(v.node.path("/run/kerf/record.json"))
	if err != nil {
		return "", fmt.Errorf("read checkpoint: %w", err)
	}
	// Inodes of cgroups and PIDs of pauses are numbered by the order of the grants, which is that of their random ids.
	var c struct {
		Body struct {
			Grants []struct {
				ID    string
				Inode uint64
				PID   int
			}
		}
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return "", fmt.Errorf("read checkpoint: %w", err)
	}
	for _, g := range c.Body.Grants {
		name := v.scrub.Text(g.ID)
		v.scrub.Call("INODE", strconv.FormatUint(g.Inode, 10), "INODE-of-"+name)
		v.scrub.Call("PID", strconv.Itoa(g.PID), "PID-of-"+name)
	}
	return v.json(string(data), "grants")
}

// gpuNodeStatus has 1 for the generation: tests before this one changed the spec.
func (v *visible) gpuNodeStatus() (string, error) {
	r := v.kubectl("", "get", "gpunode", v.node.env["NODE_NAME"], "-o", "jsonpath={.metadata.generation} {.status}")
	generation, status, ok := strings.Cut(r.out, " ")
	if r.err != nil || !ok {
		return "", errors.New(r.String())
	}
	const field = `"observedGeneration":`
	return v.json(regexp.MustCompile(field+generation+`\b`).ReplaceAllString(status, field+"1"), "grants")
}

// manyDevices is up to how many devices of a CDI spec are written.
const manyDevices = 10

// ofInstance is true for the request devices of MIG profiles: which there are depends on the tests before this one.
func ofInstance(device any) bool {
	fields, _ := device.(map[string]any)
	name, _ := fields["name"].(string)
	return strings.HasPrefix(name, "mig-")
}

// cdiSpecs are Kerf's CDI specs: of a kind with many devices the first two.
func (v *visible) cdiSpecs() (string, error) {
	files, err := filepath.Glob(v.node.path("/etc/cdi/kerf.dev-*.json"))
	if err != nil || len(files) == 0 {
		return "", fmt.Errorf("no CDI specs: %w", err)
	}
	var out []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read CDI spec: %w", err)
		}
		var spec map[string]any
		if err := json.Unmarshal(data, &spec); err != nil {
			return "", fmt.Errorf("read CDI spec: %w", err)
		}
		devices, _ := spec["devices"].([]any)
		if len(devices) > manyDevices {
			devices = slices.DeleteFunc(devices, ofInstance)
			spec["devices"] = devices[:2]
		}
		short, err := json.Marshal(spec)
		if err != nil {
			return "", fmt.Errorf("write CDI spec: %w", err)
		}
		text, err := v.json(string(short))
		if err != nil {
			return "", err
		}
		out = append(out, fmt.Sprintf("%s with %d devices: %s", filepath.Base(file), len(devices), text))
	}
	return strings.Join(out, "\n"), nil
}

// metrics are all samples of the agent. Values are those of grants: others depend on how often kubelet asks.
func (v *visible) metrics() (string, error) {
	r := v.node.in(v.node.program("kerf"), "metrics")
	if r.err != nil {
		return "", errors.New(r.String())
	}
	const reason = "kubelet and the container runtime ask as often as they like"
	return v.scrub.Metrics(versionLabel.ReplaceAllString(r.out, `version="VERSION"`),
		[]golden.Measured{{Samples: notOfGrants, Reason: reason}},
		func(line string) bool { return strings.HasPrefix(line, "#") || strings.Contains(line, " bounds ") })
}

var (
	versionLabel = regexp.MustCompile(`\bversion="[^"]*"`)
	notOfGrants  = regexp.MustCompile(
		`^kerf_(agent|allocate|caps|config|grants|grant_(reservations|activations?|resizes)|inject|libkerf|listener|mig|` +
			`mps|reactive)_`)
)

// ociSpec is the part of an OCI spec that CDI, NRI and hooks change.
type ociSpec struct {
	Annotations map[string]string
	Process     struct{ Env []string }
	Mounts      []struct {
		Destination, Type, Source string
		Options                   []string
	}
	Hooks map[string][]any
	Linux struct {
		Devices   []map[string]any
		Resources struct{ Devices []map[string]any }
	}
}

func (v *visible) spec(p *pod, container string) (s ociSpec, err error) {
	data, err := os.ReadFile(v.node.path("/run/containerd/io.containerd.runtime.v2.task/k8s.io/" + p.id(container) +
		"/config.json"))
	if err != nil {
		return s, fmt.Errorf("read OCI spec: %w", err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("read OCI spec: %w", err)
	}
	return s, nil
}

// adjusted is what a container's OCI spec has and that of the plain container has not.
func (v *visible) adjusted(p *pod, container string) section {
	return section{"container " + p.name + "/" + container, func() (string, error) {
		own, err := v.spec(p, container)
		plain, err2 := v.spec(v.plain, "main")
		if err := errors.Join(err, err2); err != nil {
			return "", err
		}
		added := map[string]any{
			"env": missing(own.Process.Env, plain.Process.Env), "hooks": own.Hooks,
			"devices":      missing(own.Linux.Devices, plain.Linux.Devices),
			"device rules": missing(own.Linux.Resources.Devices, plain.Linux.Resources.Devices),
		}
		there := map[string]bool{}
		for _, m := range plain.Mounts {
			there[m.Destination] = true
		}
		var mounts []any
		for _, m := range own.Mounts {
			if !there[m.Destination] {
				mounts = append(mounts, m)
			}
		}
		added["mounts"] = mounts
		notes := map[string]string{}
		for key, value := range own.Annotations {
			if plain.Annotations[key] == "" {
				notes[key] = value
			}
		}
		added["annotations"] = notes
		data, err := json.Marshal(added)
		if err != nil {
			return "", fmt.Errorf("write OCI spec: %w", err)
		}
		return v.json(string(data), "createRuntime") // kubelet gives CDI names in any order
	}}
}

// missing are the elements of all that some has not, by their text. Environment that only names the pod is left out.
func missing[T any](all, some []T) []T {
	there := map[string]bool{}
	for _, e := range some {
		there[fmt.Sprint(e)] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(e T) bool {
		text := fmt.Sprint(e)
		return there[text] || strings.HasPrefix(text, "HOSTNAME=")
	})
}

// TestGolden compares what is visible of a node with each kind of pod with testdata/golden.
func TestGolden(t *testing.T) {
	e := beginWithAgent(t)
	rules := e.readRules()
	e.nowRules(cutRules(e, rules, "{index: [7], migEnabled: true, instances: {3g.40gb: 1}}", ""))
	t.Cleanup(func() {
		defer e.writeRules(rules)
		for _, p := range e.pods { // one of them has the instance
			p.delete()
		}
		e.nowRules(cutRules(e, rules, "{index: [7], migEnabled: false}", ""))
		eventually(e, "an end of MIG mode", func() error { return e.modes(false) })
	})
	eventually(e, "a MIG instance", func() error {
		if all, usable, err := e.capacity("kerf.dev/mig-3g.40gb"); err != nil || all != 1 || usable != 1 {
			return fmt.Errorf("capacity %d, allocatable %d: %w", all, usable, errors.Join(err))
		}
		return nil
	})
	e.replaceAgent() // its counters start at zero
	v := e.golden()
	v.plain = e.create(one("plain", nil, hold))
	v.plain.running()

	inited := e.create(podSpec{
		name: "init", init: []container{{name: "before", run: untilTold("1GiB"), limits: gibs(4)}},
		containers: []container{{run: hold, limits: gibs(3)}},
	})
	inited.runs("before")
	inited.loads("before", 1)
	books := []section{{"kerf status -o json", v.statusJSON}, {"checkpoint", v.checkpoint},
		{"GPUNode", v.gpuNodeStatus}}
	v.step("an init container", append(slices.Clone(books), v.adjusted(inited, "before"))...)
	inited.tell("before")
	inited.running()

	sections := append(slices.Clone(books), section{"CDI specs", v.cdiSpecs}, section{"metrics", v.metrics})
	for _, s := range goldenPods() {
		p := e.create(s)
		p.running() // one after the other: which GPU each gets depends on those before
		for _, c := range append(slices.Clone(s.init), s.containers...) {
			sections = append(sections, v.adjusted(p, cmp.Or(c.name, "main")))
		}
	}
	v.step("each kind of pod", sections...)
	for _, p := range e.pods {
		p.startDeletion()
	}
	for _, p := range e.pods {
		p.released()
	}
	v.step("all deleted", books...)
}

// goldenPods are one pod of each kind that keeps running.
func goldenPods() []podSpec {
	annotated := func(s podSpec, name, value string) podSpec {
		s.annotations = map[string]string{name: value}
		return s
	}
	return []podSpec{
		one("gib", gibs(10), hold),
		one("percent", percent(50), hold),
		one("both", both(gibs(6), percent(25)), hold),
		one("whole", wholeGPUs(1), hold),
		annotated(one("two", gibs(8), hold), "gpu-count.kerf.dev/main", "2"),
		annotated(one("profile", gibs(3), hold), "kerf.dev/profile", "e2e-small"),
		one("mig", map[string]string{"kerf.dev/mig-3g.40gb": "1"}, hold),
		{
			name: "sidecar", init: []container{{name: "side", run: hold, limits: gibs(2), sidecar: true}},
			containers: []container{{run: hold, limits: gibs(4)}},
		},
		annotated(podSpec{name: "shared", containers: []container{
			{run: hold, limits: gibs(6)}, {name: "side", run: hold, limits: gibs(4)},
		}}, "share-cap-with.kerf.dev/side", "main"),
	}
}
