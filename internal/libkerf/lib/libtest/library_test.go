// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package libtest_test

import (
	"debug/elf"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kerf-gpu/kerf/internal/libkerf"
)

func library(t *testing.T) *elf.File {
	t.Helper()
	f, err := elf.Open(filepath.Join(built, "libkerf.so"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// wrapped are the entries of wrapped.def, and what is excused there.
func wrapped(t *testing.T) (names, excused []string) {
	t.Helper()
	text, err := os.ReadFile("../wrapped.def")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^(WRAP|EXCUSE)\((\w+)(?:, "[^"]+")?\)$`).FindAllStringSubmatch(
		string(text), -1) {
		if m[1] == "WRAP" {
			names = append(names, m[2])
		} else {
			excused = append(excused, m[2])
		}
	}
	slices.Sort(names)
	slices.Sort(excused)
	return names, excused
}

// A program may see nothing of the library but what it stands in front of.
func TestExports(t *testing.T) {
	symbols, err := library(t).DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			got = append(got, s.Name)
		}
	}
	slices.Sort(got)
	names, _ := wrapped(t)
	want := append([]string{"dlmopen", "dlopen", "dlsym", "dlvsym"}, names...)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Whatever charges, releases, takes time, tells a size or resolves is wrapped or excused, and nothing is both.
func TestCoversTheFamilies(t *testing.T) {
	table, err := libkerf.Families()
	if err != nil {
		t.Fatal(err)
	}
	names, excused := wrapped(t)
	var open []string
	for _, class := range []libkerf.Class{libkerf.Charge, libkerf.Release, libkerf.Time, libkerf.Size,
		libkerf.Resolve} {
		for _, name := range table.Names(class) {
			if !slices.Contains(names, name) {
				open = append(open, name)
			}
		}
	}
	slices.Sort(open)
	if d := cmp.Diff(excused, open); d != "" {
		t.Errorf("what is let be (-excused +found):\n%s", d)
	}
}

// notInMusl are functions that glibc's headers lead to and musl's do not.
func notInMusl() []string {
	return []string{
		"__register_atfork", "__open_2", "__open64_2", "__strcat_chk", "__strcpy_chk", "__memcpy_chk", "__read_chk",
		"__readlink_chk", "__snprintf_chk", "dlvsym", "dlmopen",
	}
}

// It loads wherever CUDA does: with a C library from 2012 on, and nothing else. It loads with musl, too.
func TestNeeds(t *testing.T) {
	f := library(t)
	needed, err := f.ImportedLibraries()
	if err != nil || !slices.Equal(needed, []string{"libc.so.6"}) {
		t.Errorf("needs %q, %v", needed, err)
	}
	symbols, err := f.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, s := range symbols {
		version, ok := strings.CutPrefix(s.Version, "GLIBC_2.")
		if !ok {
			continue
		}
		seen++
		minor, err := strconv.Atoi(strings.Split(version, ".")[0])
		if err != nil || minor > 17 {
			t.Errorf("%s is of %s", s.Name, s.Version)
		}
	}
	if seen < 5 {
		t.Errorf("looked at %d symbols only", seen)
	}
	all, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if slices.Contains(notInMusl(), s.Name) && s.Section == elf.SHN_UNDEF && elf.ST_BIND(s.Info) != elf.STB_WEAK {
			t.Errorf("it needs %s, which musl does not have", s.Name)
		}
	}
	stack := false
	for _, p := range f.Progs {
		stack = stack || p.Type == elf.PT_GNU_STACK && p.Flags&elf.PF_X == 0
	}
	if now, err := f.DynValue(elf.DT_FLAGS); err != nil || len(now) == 0 || now[0]&uint64(elf.DF_BIND_NOW) == 0 ||
		!stack {
		t.Errorf("flags %v, %v; stack not executable: %v", now, err, stack)
	}
}

// notTheLibrarys are functions that end, signal or change the program, start something, or write where it writes.
var notTheLibrarys = []string{
	"exit", "_exit", "_Exit", "quick_exit", "abort", "__assert_fail", "exit_group", "err", "errx", "error",
	"raise", "tgkill", "pthread_kill", "sigqueue", "alarm", "setitimer", "timer_create",
	"signal", "bsd_signal", "sysv_signal", "__sysv_signal", "sigaction", "__sigaction", "sigprocmask",
	"pthread_sigmask", "sigaltstack", "siginterrupt",
	"pthread_create", "thrd_create", "clone", "fork", "vfork", "posix_spawn", "posix_spawnp", "execv", "execve",
	"system", "popen",
	"umask", "chdir", "fchdir", "setenv", "putenv", "unsetenv", "clearenv", "setrlimit", "prctl", "dup2", "dup3",
	"closefrom", "close_range",
	"printf", "vprintf", "fprintf", "vfprintf", "dprintf", "vdprintf", "__printf_chk", "__vprintf_chk", "__fprintf_chk",
	"__vfprintf_chk", "__dprintf_chk", "__vdprintf_chk",
	"puts", "putchar", "fputs", "fputc", "putc", "_IO_putc", "fwrite", "fflush", "perror", "psignal", "stdout",
	"stderr", "writev", "pwrite",
}

// The library cannot do to the program what it has not linked, but by three calls of many uses, of which it has these.
func TestCannotChangeTheProgram(t *testing.T) {
	symbols, err := library(t).ImportedSymbols()
	if err != nil || len(symbols) < 5 {
		t.Fatalf("%d symbols, %v", len(symbols), err)
	}
	for _, s := range symbols {
		if slices.Contains(notTheLibrarys, s.Name) {
			t.Errorf("it needs %s", s.Name)
		}
	}
	uses := map[string]*regexp.Regexp{
		"kill":    regexp.MustCompile(`^\(.*, 0\) < 0 && errno == ESRCH;$`), // whether a process is there
		"syscall": regexp.MustCompile(`^\(SYS_futex, .*FUTEX_WAIT,`),
		"write":   regexp.MustCompile(`^\((STDERR_FILENO|ends\[1\]),`), // its one line, and its pipe
	}
	sources, err := filepath.Glob("../*.[ch]")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, file := range sources {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\b(kill|syscall|write)(\(.*)`).FindAllStringSubmatch(string(text), -1) {
			if seen[m[1]]++; !uses[m[1]].MatchString(m[2]) {
				t.Errorf("%s: %s%s", filepath.Base(file), m[1], m[2])
			}
		}
	}
	for name := range uses {
		if seen[name] == 0 {
			t.Errorf("no use of %s was found", name)
		}
	}
}
