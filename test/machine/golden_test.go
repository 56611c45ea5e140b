// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/test/golden"
)

// visible is a machine whose visible results are compared with a golden file.
type visible struct {
	*machine
	file  *golden.File
	scrub *golden.Scrubber
	runs  []*viewer
	// mpsFolders are the names of the folders of MPS, by the number of the GPU.
	mpsFolders []string
	// withoutDriver: there is no driver to ask for limits.
	withoutDriver bool
}

// viewer is a program in a grant that first writes down what it sees.
type viewer struct {
	*run
	name, notes string
}

func (m *machine) visible(name string) *visible {
	m.t.Helper()
	v := &visible{machine: m, scrub: golden.NewScrubber()}
	v.file = golden.Open(m.t, filepath.Join("testdata", "golden", name+".txt"), *updateGolden, *patience)
	v.scrub.Know(m.base, "DIR")
	v.scrub.Know(strings.TrimPrefix(m.base, "/tmp"), "DIR") // as a mount's root if /tmp is a separate file system.
	v.scrub.Know(filepath.Dir(bin), "REPOSITORY")
	v.scrub.Know(unified(m.t), "CGROUPS")
	v.callGPUs()
	return v
}

// shows starts a program in a grant, which has this name, and waits until it has written down what it sees. Programs
// start one after the other: what one sees of the others' mounts is the same each time.
func (v *visible) shows(name, request string, argv []string, changes ...how) *viewer {
	v.t.Helper()
	s := &viewer{name: name, notes: filepath.Join(v.work, "sees-"+name)}
	note :=
		`env >$0.env; cat /proc/self/mountinfo >$0.mounts; ls $NVIDIA_DEV_ROOT/dev >$0.dev; touch $0.done; exec "$@"`
	s.run = v.run(flags("--name "+name+" "+request), append([]string{"sh", "-c", note, s.notes}, argv...), changes...)
	v.runs = append(v.runs, s)
	s.granted()
	eventually(v.t, "notes of "+name, func() error {
		_, err := os.Stat(s.notes + ".done")
		return err
	})
	return s
}

// step compares all that is visible now.
func (v *visible) step(name string, sections ...section) {
	v.t.Helper()
	all := slices.Concat([]section{
		{"kerf status -o json", v.status}, {"checkpoint", v.checkpoint}, {"files", v.files},
		{"limits in the driver", v.driverLimits}, {"metrics", v.metrics},
	}, sections)
	v.file.Step(v.t, name, func() (string, error) {
		if err := v.callGrants(); err != nil {
			return "", err
		}
		var out strings.Builder
		for _, s := range all {
			text, err := s.look()
			if err != nil {
				return "", fmt.Errorf("%s: %w", s.name, err)
			}
			fmt.Fprintf(&out, "--- %s\n%s\n", s.name, strings.TrimSpace(text))
		}
		return out.String(), nil
	})
}

// section is one visible result.
type section struct {
	name string
	look func() (string, error)
}

// callGrants names what belongs to a grant by the grant's name: ids are random, and so is their order.
func (v *visible) callGrants() error {
	s := v.state()
	for _, g := range s.Grants {
		if g.Name == "" {
			continue
		}
		v.scrub.Call("GRANT", g.ID, "GRANT-"+g.Name)
		slices.SortFunc(g.PIDs, func(a, b int) int {
			return cmp.Or(cmp.Compare(startOf(a), startOf(b)),
				cmp.Compare(a, b))
		})
		for i, pid := range g.PIDs {
			v.scrub.Call("PID", strconv.Itoa(pid), fmt.Sprintf("PID-%s-%d", g.Name, i+1))
		}
	}
	v.callDomains()
	if v.parent != "" {
		v.scrub.Know("/"+filepath.Base(v.parent)+"/", "/AGENT/")
	}
	record, err := os.ReadFile(v.dir + "/record.json")
	if err != nil {
		return fmt.Errorf("read checkpoint: %w", err)
	}
	type grants struct {
		Body struct {
			Grants []struct {
				Name  string
				Inode uint64
			}
		}
	}
	for _, g := range decode[grants](v.t, string(record)).Body.Grants {
		v.scrub.Call("INODE", strconv.FormatUint(g.Inode, 10), "INODE-"+g.Name)
	}
	return nil
}

// startOf is when a process started, in the kernel's ticks. The kernel reuses PIDs.
func startOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return math.MaxInt // it has ended: a shell's short-lived child
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	ticks, _ := strconv.Atoi(strings.Fields(after)[19])
	return ticks
}

// callGPUs names the GPUs by their numbers: UUIDs are in another order on each machine.
func (v *visible) callGPUs() {
	v.t.Helper()
	type named struct {
		Index int
		UUID  string
	}
	for _, g := range decode[[]named](v.t, v.gpusim("gpus", "-o", "json").out) {
		v.scrub.Call("GPU", g.UUID, fmt.Sprintf("GPU-%d", g.Index))
		v.mpsFolders = append(v.mpsFolders, strings.TrimPrefix(g.UUID, "GPU-")[:13])
		v.scrub.Know("/"+v.mpsFolders[len(v.mpsFolders)-1], fmt.Sprintf("/GPU-%d", g.Index))
	}
}

// callDomains names what belongs to a domain of MPS by the number of its GPU.
func (v *visible) callDomains() {
	for i, folder := range v.mpsFolders {
		domains, _ := filepath.Glob(filepath.Join(v.dir, "mps", folder, "????????????????.json"))
		for j, file := range domains {
			name := fmt.Sprintf("%d-%d", i, j+1)
			v.scrub.Call("DOMAIN", strings.TrimSuffix(filepath.Base(file), ".json"), "DOMAIN-"+name)
			text, err := os.ReadFile(file)
			if err != nil {
				continue // it has ended
			}
			daemon := decode[struct{ PID, Start uint64 }](v.t, string(text))
			v.scrub.Call("PID", strconv.FormatUint(daemon.PID, 10), "PID-DOMAIN-"+name)
			v.scrub.Call("START", strconv.FormatUint(daemon.Start, 10), "START-DOMAIN-"+name)
		}
	}
}

// differing are the fields with values that differ between two runs.
var differing = map[string]string{
	"pid": "PID", "pids": "PID", "inode": "INODE", "start": "START", "agentVersion": "VERSION",
	"atUnixNanos": golden.Time, "sequence": golden.MeasuredValue, "idleSeconds": golden.MeasuredValue,
	"energyJoules.value":    golden.MeasuredValue,
	"memoryPeakBytes.value": golden.MeasuredValue, // kerf-monitor may see memory before it knows the grant
}

func (v *visible) json(text string, unordered ...string) (string, error) {
	return v.scrub.JSON([]byte(text), golden.Format{Differ: differing, Unordered: unordered})
}

func (v *visible) status() (string, error) {
	r := v.kerf("status", "-o", "json")
	if r.code != 0 {
		return "", errors.New(r.String())
	}
	return v.json(r.out, "grants", "pids")
}

func (v *visible) checkpoint() (string, error) {
	record, err := os.ReadFile(v.dir + "/record.json")
	if err != nil {
		return "", fmt.Errorf("read checkpoint: %w", err)
	}
	return v.json(string(record), "grants")
}

func (v *visible) driverLimits() (string, error) {
	if v.withoutDriver {
		return "no driver", nil
	}
	r := v.gpusim("limits", "-o", "json")
	if r.code != 0 {
		return "", errors.New(r.String())
	}
	return v.json(r.out, "")
}

// files are those of the agent's two directories. The text of the small ones, which other starts of the agent read,
// follows.
func (v *visible) files() (string, error) {
	var out, texts []string
	for _, dir := range []string{v.dir, stateDir(v.dir)} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return fmt.Errorf("walk: %w", err)
			}
			if e.Name() == contextsFile {
				return nil
			}
			info, err := e.Info()
			if err != nil {
				return fmt.Errorf("stat: %w", err)
			}
			line := info.Mode().String() + " " + v.scrub.Text(path)
			if to, err := os.Readlink(path); err == nil {
				line += " -> " + v.scrub.Text(to)
			}
			out = append(out, line)
			if !info.Mode().IsRegular() || strings.HasPrefix(e.Name(), "record.") || !readFiles.MatchString(e.Name()) {
				return nil
			}
			text, err := v.textOf(path)
			texts = append(texts, v.scrub.Text(path)+":\n"+text)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	slices.Sort(out)
	slices.Sort(texts)
	return strings.Join(append(out, texts...), "\n"), nil
}

// contextsFile has the sizes of contexts. The agent measures them when a GPU was idle for some time: goldenIdle waits
// for it.
const contextsFile = "contexts.json"

// readFiles are the agent's files whose text matters to another agent.
var readFiles = regexp.MustCompile(`\.(json|yaml)$`)

func (v *visible) textOf(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read file: %w", err)
	}
	if strings.HasSuffix(path, ".json") {
		return v.json(string(data))
	}
	return v.scrub.Text(string(data)), nil
}

// measuredHere are samples that differ between two runs on an agent.
var measuredHere = []golden.Measured{
	{Samples: regexp.MustCompile(`^kerf_reactive_(check_duration_seconds_count|missed_samples_total)`),
		Reason: "the number of samples so far"},
	{Samples: regexp.MustCompile(`^kerf_monitor_(cycle_duration_seconds|cycles_total)`),
		Reason: "the number of samples so far, and their time"},
	{Samples: regexp.MustCompile(`^kerf_listener_(connections|requests|streams)`),
		Reason: "connections that end at this moment"},
	{Samples: regexp.MustCompile(`^kerf_listener_rejected_total\{kind="answer"`),
		Reason: "an answer to a client that has gone counts, too"},
}

// metrics are the samples that tell of grants and events. TestGolden/idle has the others: samples that are 0 or the
// same on each agent, comments, and bounds of histograms.
func (v *visible) metrics() (string, error) {
	omitted := regexp.MustCompile(
		`^#| bounds | MEASURED$|^(go_|process_|kerf_agent_info|kerf_gpu_info)|_overcommit_ratio.* 1$`)
	zero, ofGrant := regexp.MustCompile(` 0$`), regexp.MustCompile(`^kerf_grant_.*\bgrant="`)
	return v.exposition(func(line string) bool {
		return omitted.MatchString(line) || zero.MatchString(line) && !ofGrant.MatchString(line)
	})
}

// version is the label of the metrics with the version of the program.
var version = regexp.MustCompile(`\bversion="[^"]*"`)

func (v *visible) exposition(omit func(line string) bool) (string, error) {
	r := v.kerf("metrics")
	if r.code != 0 {
		return "", errors.New(r.String())
	}
	return v.scrub.Metrics(version.ReplaceAllString(r.out, `version="VERSION"`), measuredHere, omit)
}

// sees is what a program in a grant sees and gets.
func (v *visible) sees(r *viewer) section {
	return section{"program " + r.name, func() (string, error) {
		file, err := v.json(r.read(r.status))
		if err != nil {
			return "", err
		}
		env := slices.DeleteFunc(strings.Split(r.read(r.notes+".env"), "\n"), func(e string) bool {
			name, _, _ := strings.Cut(e, "=")
			// The shell sets it.
			return e == "" || slices.Contains(v.env, e) || slices.Contains([]string{"PWD", "SHLVL", "_", "OLDPWD"},
				name)
		})
		slices.Sort(env)
		return fmt.Sprintf("status file: %s\nenvironment:\n%s\nmounts:\n%s\ndevices: %s\nstderr: %s", file,
			v.scrub.Text(strings.Join(env, "\n")),
			v.mountsIn(r.read(r.notes+".mounts")), strings.Join(strings.Fields(r.read(r.notes+".dev")), " "),
			v.scrub.Text(r.stderr())), nil
	}}
}

// mountsIn are the mounts of a process that this one does not have, with the flags that the files below them have not
// anyway.
func (v *visible) mountsIn(mountinfo string) string {
	own, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		v.t.Fatal(err)
	}
	points, inherited := map[string]bool{}, ""
	for line := range strings.Lines(string(own)) {
		f := strings.Fields(line)
		points[f[4]] = true
		if f[4] == "/" || f[4] == "/tmp" {
			inherited = f[5]
		}
	}
	var out []string
	for line := range strings.Lines(mountinfo) {
		f := strings.Fields(line)
		if !strings.HasPrefix(f[4], v.base+"/") && (points[f[4]] || strings.HasPrefix(f[4], "/tmp/")) {
			continue // It belongs to the machine, or to another test.
		}
		if f[4] == "/etc" || filepath.Dir(f[4]) == "/etc" && f[3] == f[4] {
			continue // a machine without /etc/ld.so.preload gets another /etc with the same files
		}
		flags := slices.DeleteFunc(strings.Split(f[5], ","), func(flag string) bool {
			return flag == "relatime" || flag == "noatime" || flag != "ro" && flag != "rw" &&
				slices.Contains(strings.Split(inherited, ","), flag)
		})
		out = append(out, v.scrub.Text(f[4]+" from "+f[3])+" "+strings.Join(flags, ","))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// audit is the audit log without what chains its entries. Entries on different grants and GPUs have no order.
func (v *visible) audit() section {
	return section{"audit log", func() (string, error) {
		var out []string
		for line := range strings.Lines(v.auditLog()) {
			entry := decode[map[string]any](v.t, line)
			for _, chain := range []string{"seq", "prev", "sum", "time"} {
				delete(entry, chain)
			}
			data, err := json.Marshal(entry)
			if err != nil {
				return "", fmt.Errorf("audit log: %w", err)
			}
			text, err := v.json(string(data))
			if err != nil {
				return "", err
			}
			out = append(out, text)
		}
		slices.SortStableFunc(out, func(a, b string) int { return strings.Compare(subject(a), subject(b)) })
		// A kill of the agent can come before or after a new driver session, which records the health again.
		out = slices.CompactFunc(out, func(a, b string) bool { return a == b && strings.Contains(a, `"type":"health"`) })
		return strings.Join(out, "\n"), nil
	}}
}

// grantIn and gpuIn find what an entry of the audit log is about.
var grantIn, gpuIn = regexp.MustCompile(`"grant": ?"[^"]*"`), regexp.MustCompile(`"gpu": ?"[^"]*"`)

func subject(entry string) string { return cmp.Or(grantIn.FindString(entry), gpuIn.FindString(entry)) }

// TestGolden compares what users and other programs see of one machine, in each kind of grant and event, with
// testdata/golden.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, scenario := range goldenScenarios() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario(t, name)
		})
	}
}
