// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/kerf-gpu/kerf/internal/process"
)

// neighbors is where hack/neighbors.sh has unpacked Podman and Slurm; without it their tests are left out.
var neighbors = flag.String("neighbors", "",
	"run Podman and Slurm, which hack/neighbors.sh has unpacked into this folder")

// site is a machine of namespaces: it has a simulated driver, and programs of Debian at their usual places. All its
// processes end with it.
type site struct {
	*machine
	pid string // of its first process
	// group is the cgroup that it has as root.
	group string
}

// newSite makes a site whose driver's files are at the usual places, too.
func newSite(t *testing.T) *site {
	t.Helper()
	if *neighbors == "" {
		t.Skip("runs by make e2e-neighbors")
	}
	m := newMachine(t, setup{noDriver: true, noAgent: true})
	root, err := filepath.Abs(filepath.Join(*neighbors, "root"))
	if err != nil {
		t.Fatal(err)
	}
	in, keep, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	folder := m.base + "/site"
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	s := &site{machine: m, group: filepath.Join(unified(t), "kerf-test-"+filepath.Base(m.base))}
	group := s.makeGroup()
	defer group.Close()
	cmd := exec.Command("unshare", "--mount", "--net", "--uts", "--ipc", "--cgroup", "--pid", "--fork", "--mount-proc",
		"--kill-child", "testdata/site.sh")
	cmd.Stdin = in
	cmd.Env = append([]string{"NEIGHBORS=" + root, "SITE=" + folder, "BIN=" + bin, "MACHINE=" + m.hardware,
		"DRIVER=" + m.driver}, m.env[:4]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	p := launch(t, m.work, "site", cmd)
	t.Cleanup(func() {
		_ = keep.Close()
		<-p.exited
		p.kill()
		if t.Failed() {
			t.Log(tail(p.stderr()))
		}
		removeTree(s.group)
	})
	p.lines(1) // it is ready
	s.pid = m.childOf(p)
	s.emptyRoot()
	return s
}

// makeGroup makes the cgroup, and one in it for the site's own processes.
func (s *site) makeGroup() *os.File {
	s.t.Helper()
	if err := os.MkdirAll(s.group+"/init", 0o755); err != nil {
		s.t.Fatal(err)
	}
	group, err := os.Open(s.group)
	if err != nil {
		s.t.Fatal(err)
	}
	return group
}

// emptyRoot moves the site's own processes out of its root cgroup. A cgroup with controllers has processes or children.
func (s *site) emptyRoot() {
	s.t.Helper()
	text, err := os.ReadFile(s.group + "/cgroup.procs")
	if err != nil {
		s.t.Fatal(err)
	}
	for pid := range strings.FieldsSeq(string(text)) {
		if err := os.WriteFile(s.group+"/init/cgroup.procs", []byte(pid), 0); err != nil {
			s.t.Fatal(err)
		}
	}
}

// childOf is the pid of the one process that p has started.
func (m *machine) childOf(p *proc) (pid string) {
	m.t.Helper()
	eventually(m.t, "the first process", func() error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.pid(), p.pid()))
		if pid = strings.TrimSpace(string(text)); err == nil && pid == "" {
			err = errors.New("there is none")
		}
		return err
	})
	return pid
}

// try runs a script on the site, as root.
func (s *site) try(script string) result {
	s.t.Helper()
	var pid int
	if _, err := fmt.Sscan(s.pid, &pid); err != nil {
		s.t.Fatal(err)
	}
	space, err := process.PIDSpace(pid)
	if err != nil {
		s.t.Fatal(err)
	}
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/var/tmp", "LC_ALL=C",
		"TERM=dumb", "TMPDIR=/var/tmp", "KERF_TEST_PID_NAMESPACE=" + fmt.Sprint(space)}
	return call(s.t, env, "sh", "-c", `echo $$ >"$0/init/cgroup.procs" && exec nsenter --target "$@"`, s.group, s.pid,
		"--mount", "--net", "--uts", "--ipc", "--cgroup", "--pid", "bash", "-euo", "pipefail", "-c",
		"cd /var/tmp\n"+script)
}

// shell runs a script, which must succeed, and returns what it prints.
func (s *site) shell(script string) string {
	s.t.Helper()
	r := s.try(script)
	if r.code != 0 {
		s.t.Fatalf("%s\n%v", script, r)
	}
	return r.out
}

// put writes a file on the site.
func (s *site) put(path, text string) {
	s.t.Helper()
	s.shell("mkdir -p " + filepath.Dir(path) + "\ncat >" + path + " <<'THE_END'\n" + text + "THE_END\n")
}

// block is a block of code of a page.
type block struct{ language, text string }

var fence = regexp.MustCompile("(?s)(?:^|\n)```([a-z.]+)\n(.*?)```(?:\n|$)")

// page reads the blocks of a page in docs that have a language.
func page(t *testing.T, name string) (out []block) {
	t.Helper()
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range fence.FindAllStringSubmatch(string(text), -1) {
		out = append(out, block{found[1], found[2]})
	}
	return out
}

// wantShown requires what a page shows after a command: each line is in the output, in this order. "..." is any text.
func wantShown(t *testing.T, out, shown string) {
	t.Helper()
	rest := out
	for line := range strings.Lines(shown) {
		words := strings.Split(strings.TrimSpace(line), "...")
		for i, word := range words {
			words[i] = regexp.QuoteMeta(word)
		}
		found := regexp.MustCompile(strings.Join(words, ".*")).FindStringIndex(rest)
		if found == nil {
			t.Errorf("the page shows %q, and the output is\n%s", line, out)
			return
		}
		rest = rest[found[1]:]
	}
}
